"""How a line's measurement, tags and fields become a device, metrics and tags."""

from __future__ import annotations

from dataclasses import dataclass
from string import Formatter

from widerow.model.check import tags_fault
from widerow.model.errors import ConfigError
from widerow.model.labels import Labels, labelled


@dataclass(frozen=True, slots=True, kw_only=True)
class LineNaming:
    """The naming rules of a decoder. They hold for all bodies it reads."""

    device_tags: tuple[str, ...] = ("device", "device_id", "host")
    """The first of these tags that a line has names its device. The others are tags like any."""
    metric: str = "{measurement}_{field}"
    """The metric's name; `{field}` must be part of it, `{measurement}` may be."""
    attribute_tags: tuple[str, ...] = ()
    """Tags that say something about the report, and are kept beside its values. All others are labels of its metrics."""

    def __post_init__(self) -> None:
        if not self.device_tags:
            raise ConfigError("line.device_tags: name at least one tag")
        for setting in ("device_tags", "attribute_tags"):
            fault = tags_fault(getattr(self, setting))
            if fault:
                raise ConfigError(f"line.{setting}: {fault}")
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

    def metric_of(self, measurement: str, field: str, labels: Labels) -> str:
        """The stored name of a metric."""
        return labelled(self.metric.format(measurement=measurement, field=field), labels)
