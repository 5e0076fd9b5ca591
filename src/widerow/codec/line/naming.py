"""How a line's measurement, tags and fields become a device, metrics and tags."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from string import Formatter

from widerow.model.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class LineNaming:
    """The naming rules of a decoder. They hold for all bodies it reads."""

    device_tags: tuple[str, ...] = ("device", "device_id", "host")
    """The first of these tags that a line has names its device, and is not kept as a tag. The others stay tags."""
    metric: str = "{measurement}_{field}"
    """The metric's name; `{field}` must be part of it, `{measurement}` may be."""
    fold_tags: tuple[str, ...] = ()
    """Tags that split a series: each value is appended to the metric as `.value`, in this order, and not kept as a tag."""

    def __post_init__(self) -> None:
        if not self.device_tags:
            raise ConfigError("line.device_tags: name at least one tag")
        tags = self.device_tags + self.fold_tags
        if "" in tags or len(set(tags)) < len(tags):
            raise ConfigError(f"line.device_tags and line.fold_tags: {', '.join(tags)}: a tag is empty or named twice")
        try:
            pieces = list(Formatter().parse(self.metric))
        except ValueError as e:
            raise ConfigError(f"line.metric {self.metric!r}: {e}") from None
        places = [(name, bool(spec or conversion)) for _, name, spec, conversion in pieces if name is not None]
        if ("field", False) not in places or not set(places) <= {("field", False), ("measurement", False)}:
            raise ConfigError(
                f"line.metric {self.metric!r}: use {{field}} and, if wanted, {{measurement}}; nothing else in braces"
            )

    def device_of(self, tags: dict[str, str]) -> str | None:
        """The tag that names the device, or None."""
        return next((tag for tag in self.device_tags if tag in tags), None)

    def suffix_of(self, tags: dict[str, str]) -> str:
        """What the folded tags add to the name of each metric."""
        return "".join(f".{tags[tag]}" for tag in self.fold_tags if tag in tags)

    def metric_of(self, measurement: str, field: str, suffix: str) -> str:
        return self.metric.format(measurement=measurement, field=field) + suffix

    def folded_of(self, tags: dict[str, str]) -> Sequence[str]:
        """The values of the folded tags in their order, empty where a line lacks one."""
        return [tags.get(tag, "") for tag in self.fold_tags]
