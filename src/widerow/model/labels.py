r"""Metric names with labels, as in `disk_used{fstype=ext4,path=/}`.

Rule 1: a labelled name has one form: the plain name, then its labels in byte order of their names, each once, in braces.
Rule 2: in the plain name, in names of labels and in values, `\`, `,`, `=`, `{` and `}` are escaped by a backslash.
Rule 3: a stored name that is not in this form has no labels. Its plain name is the stored name as it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from types import MappingProxyType

from widerow.model.errors import Rejected

Labels = Mapping[str, str]

_NO_LABELS: Labels = MappingProxyType({})
_SPECIAL = re.compile(r"([\\,={}])")
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_PIECE = r"(?:[^\\,={}]|\\[\\,={}])+"
_LABEL = re.compile(rf"({_PIECE})=({_PIECE})", re.DOTALL)
_LABELLED = re.compile(rf"({_PIECE})\{{({_PIECE}={_PIECE}(?:,{_PIECE}={_PIECE})*)\}}", re.DOTALL)


def labelled(name: str, labels: Labels) -> str:
    """The stored name of a metric with labels. Without labels it is the name as it is."""
    if not labels:
        return name
    pairs = sorted((label.encode(), _escaped(label), _escaped(value)) for label, value in labels.items())
    return f"{_escaped(name)}{{{','.join(f'{label}={value}' for _, label, value in pairs)}}}"


@lru_cache(4096)  # a fleet has few names, and every chunk that is read brings them again
def parted(stored: str) -> tuple[str, Labels]:
    """The plain name and the labels of a stored name."""
    name, pairs = _read(stored)
    # What is escaped, and how, the pattern has checked; the order of texts is that of their bytes.
    if all(before < after for (before, _), (after, _) in pairwise(pairs)):
        return name, MappingProxyType(dict(pairs))
    return stored, _NO_LABELS


@dataclass(frozen=True, slots=True)
class Selector:
    """The metrics that a question means by one name: every variant that has at least these labels."""

    text: str
    name: str
    labels: Labels
    stem: str
    """The stored names of variants with labels begin with this."""

    @classmethod
    def of(cls, text: str) -> Selector:
        """`disk_used` means all its variants, `disk_used{path=/}` those with that label, in any order of labels."""
        name, pairs = _read(text)
        return cls(text, name, dict(pairs), _escaped(name) + "{")

    def means(self, stored: str) -> bool:
        if stored == self.text:  # also a name that only looks labelled, such as `x{b=1,a=2}`
            return True
        return stored.startswith(self.stem) and bool(labels := parted(stored)[1]) and self.labels.items() <= labels.items()


@dataclass(frozen=True, slots=True)
class Selectors:
    """The metrics that a question means by several names: `stored in selectors` says whether one of them means it."""

    names: tuple[str, ...]
    selectors: Sequence[Selector] = field(init=False, compare=False, repr=False)
    _exact: frozenset[str] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "selectors", tuple(map(Selector.of, self.names)))
        object.__setattr__(self, "_exact", frozenset(self.names))

    def __len__(self) -> int:
        return len(self.names)

    def __contains__(self, stored: str) -> bool:
        """A name without labels is meant as it is, or not at all: of those, the whole costs one look into a set."""
        return stored in self._exact or (stored.endswith("}") and any(one.means(stored) for one in self.selectors))

    @classmethod
    def of(cls, names: Sequence[str] | None) -> Selectors | None:
        """None, or no names: all metrics."""
        return cls(tuple(dict.fromkeys(names))) if names else None


def cut_names(text: str) -> Sequence[str]:
    """The names in a list, which commas outside braces part: `a,b{x=1,y=2}` has two. Empty ones are left out."""
    return [name for name in _cut(text) if name]


def _cut(text: str) -> Iterator[str]:
    start, inside, escaped = 0, False, False
    for at, character in enumerate(text):
        if escaped:
            escaped = False
        elif character == "\\":
            escaped = True
        elif character == "{":
            inside = True
        elif character == "}":
            inside = False
        elif character == "," and not inside:
            yield text[start:at]
            start = at + 1
    if inside and start < text.rfind(","):
        raise Rejected(f"{text!r}: a brace is not closed; a name with a brace in it cannot be part of a list")
    yield text[start:]


def _read(text: str) -> tuple[str, list[tuple[str, str]]]:
    found = _LABELLED.fullmatch(text)
    if found is None:
        return text, []
    return _plain(found[1]), [(_plain(label), _plain(value)) for label, value in _LABEL.findall(found[2])]


def _escaped(text: str) -> str:
    return _SPECIAL.sub(r"\\\1", text)


def _plain(text: str) -> str:
    return _ESCAPED.sub(r"\1", text) if "\\" in text else text
