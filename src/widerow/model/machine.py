"""The machine instructions that kernels need and Numba does not offer: loads, stores and bit counts at addresses.

Kernels pass addresses to their helpers (`array.ctypes.data`), never arrays: passing an array on counts references with
atomic instructions, which made a 2 ns hash cost 18 ns. Rule: whoever computes an address keeps the array behind it alive,
and leaves spare bytes where whole words are read or written past the end.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from widerow.model.kernel import inlined

_BYTE, _WORD = ir.IntType(8), ir.IntType(64)


@intrinsic  # type: ignore[untyped-decorator]
def peek64(_context: Any, address: Any) -> Any:  # noqa: ARG001
    """The 8 bytes at an address, little-endian, at any alignment."""

    def generate(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        word = builder.load(builder.inttoptr(args[0], ir.PointerType(ir.IntType(64))))
        word.align = 1
        return word

    return types.uint64(types.int64), generate


@intrinsic  # type: ignore[untyped-decorator]
def umulh(_context: Any, a: Any, b: Any) -> Any:  # noqa: ARG001
    """The upper 64 bits of a * b."""

    def generate(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        wide = ir.IntType(128)
        product = builder.mul(builder.zext(args[0], wide), builder.zext(args[1], wide))
        return builder.trunc(builder.lshr(product, ir.Constant(wide, 64)), ir.IntType(64))

    return types.uint64(types.uint64, types.uint64), generate


@intrinsic  # type: ignore[untyped-decorator]
def peek8(_context: Any, address: Any) -> Any:  # noqa: ARG001
    """The byte at an address."""

    def generate(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        return builder.zext(builder.load(builder.inttoptr(args[0], ir.PointerType(_BYTE))), _WORD)

    return types.int64(types.int64), generate


@intrinsic  # type: ignore[untyped-decorator]
def poke8(_context: Any, address: Any, value: Any) -> Any:  # noqa: ARG001
    """Store a byte at an address."""

    def generate(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        builder.store(builder.trunc(args[1], _BYTE), builder.inttoptr(args[0], ir.PointerType(_BYTE)))
        return _context.get_dummy_value()

    return types.void(types.int64, types.int64), generate


@intrinsic  # type: ignore[untyped-decorator]
def peek(_context: Any, address: Any) -> Any:  # noqa: ARG001
    """The signed word at an aligned address."""

    def generate(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        return builder.load(builder.inttoptr(args[0], ir.PointerType(_WORD)))

    return types.int64(types.int64), generate


@intrinsic  # type: ignore[untyped-decorator]
def poke(_context: Any, address: Any, value: Any) -> Any:  # noqa: ARG001
    """Store a word at an address, at any alignment."""

    def generate(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        store = builder.store(args[1], builder.inttoptr(args[0], ir.PointerType(_WORD)))
        store.align = 1
        return _context.get_dummy_value()

    return types.void(types.int64, types.int64), generate


@intrinsic  # type: ignore[untyped-decorator]
def peek_acquire(_context: Any, address: Any) -> Any:  # noqa: ARG001
    """The word at an aligned address; what its writer stored before it is seen as well."""

    def generate(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        return builder.load_atomic(builder.inttoptr(args[0], ir.PointerType(_WORD)), "acquire", 8)

    return types.int64(types.int64), generate


@intrinsic  # type: ignore[untyped-decorator]
def poke_release(_context: Any, address: Any, value: Any) -> Any:  # noqa: ARG001
    """Store a word at an aligned address, after everything stored before."""

    def generate(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        builder.store_atomic(args[1], builder.inttoptr(args[0], ir.PointerType(_WORD)), "release", 8)
        return _context.get_dummy_value()

    return types.void(types.int64, types.int64), generate


@intrinsic  # type: ignore[untyped-decorator]
def trailing_zeros(_context: Any, word: Any) -> Any:  # noqa: ARG001
    """How many of the lowest bits are 0; 64 for 0."""

    def generate(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        return builder.cttz(args[0], ir.Constant(ir.IntType(1), 0))

    return types.int64(types.uint64), generate


@intrinsic  # type: ignore[untyped-decorator]
def leading_zeros(_context: Any, word: Any) -> Any:  # noqa: ARG001
    """How many of the highest bits are 0; 64 for 0."""

    def generate(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        return builder.ctlz(args[0], ir.Constant(ir.IntType(1), 0))

    return types.int64(types.uint64), generate


@intrinsic  # type: ignore[untyped-decorator]
def float_of_bits(_context: Any, word: Any) -> Any:  # noqa: ARG001
    """The 64-bit float with these bits."""

    def generate(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], ir.DoubleType())

    return types.float64(types.uint64), generate


@intrinsic  # type: ignore[untyped-decorator]
def signed(_context: Any, word: Any) -> Any:  # noqa: ARG001
    """The same bits as a signed word."""

    def generate(_context: Any, _builder: Any, _signature: Any, args: Any) -> Any:
        return args[0]

    return types.int64(types.uint64), generate


@inlined
def copy_bytes(to: Any, source: Any, length: Any) -> None:
    """Copy word by word: up to 7 bytes behind the end of `to` are overwritten."""
    i = 0
    while i < length:
        poke(to + i, signed(peek64(source + i)))
        i += 8
