"""Whole numbers in as few bytes as they need: seven bits a byte, the lowest first; all but the last have the eighth set."""

from __future__ import annotations

from typing import Any

import numpy as np

from widerow.model.kernel import pasted


@pasted
def varint_bytes(number: Any) -> Any:
    """How many bytes a number from 0 to 2^63 - 1 takes."""
    size = 1
    while number >= 0x80:
        number >>= 7
        size += 1
    return size


@pasted
def put_varint(data: Any, at: Any, number: Any) -> Any:
    """Where it ends."""
    while number >= 0x80:
        data[at] = (number & 0x7F) | 0x80
        number >>= 7
        at += 1
    data[at] = number
    return at + 1


@pasted
def take_varint(data: Any, at: Any, stop: Any) -> Any:
    """The number and where it ends; -1: it does not. From -1 on it never does."""
    if at < 0 or at >= stop:
        return np.int64(0), np.int64(-1)
    byte = np.int64(data[at])
    at += 1
    if byte < 0x80:  # most are; and a loop alone takes ten times as long
        return byte, at
    number, shift = byte & 0x7F, 7
    while at < stop and shift < 63:
        byte = np.int64(data[at])
        number |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return number, at
        shift += 7
    return np.int64(0), np.int64(-1)


@pasted
def zigzag(number: Any) -> Any:
    """Numbers of either sign as numbers from 0 on, small ones staying small."""
    return (number << 1) ^ (number >> 63)


@pasted
def unzigzag(number: Any) -> Any:
    return (number >> 1) ^ -(number & 1)
