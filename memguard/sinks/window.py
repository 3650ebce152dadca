"""The highest figures of a stretch of batches, so that no spike is lost."""

from __future__ import annotations

from typing import final

from memguard.records.stats import Series, Stage
from memguard.text.units import GIB

_SIZES = (
    ("allocated_peak_gib", "allocated_peak_bytes"),
    ("allocated_end_gib", "allocated_end_bytes"),
    ("reserved_gib", "reserved_peak_bytes"),
    ("device_used_gib", "device_used_bytes"),
    ("host_rss_gib", "host_rss_bytes"),
)
_RETRIES = "alloc_retries"


@final
class Window:
    """The maxima of the batches since the last point."""

    __slots__ = ("batch", "count", "maxima", "retries")

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Begins the next window."""
        self.count, self.batch = 0, 0
        self.retries: int | None = None
        self.maxima: list[int | None] = [None] * len(_SIZES)

    def take(self, records: Series) -> None:
        """Takes some more records in."""
        self.count += len(records)
        self.batch = records[-1].batch
        record = records[0]
        values = (
            record.allocated_peak_bytes,
            record.allocated_end_bytes,
            record.reserved_peak_bytes,
            record.device_used_bytes,
            record.host_rss_bytes,
        )
        for position, value in enumerate(values):
            known = self.maxima[position]
            if value is not None and (known is None or value > known):
                self.maxima[position] = value
        for record in records:
            if record.num_alloc_retries is not None:
                self.retries = (self.retries or 0) + record.num_alloc_retries

    def scalars(self, stage: Stage) -> dict[str, float]:
        """Tag to value, of what is known, such as ``memory/validation/reserved_gib``; training's have no stage."""
        prefix = "memory/" if stage is Stage.TRAIN else f"memory/{stage.value}/"
        known = {tag: value / GIB for (tag, _), value in zip(_SIZES, self.maxima, strict=True) if value is not None}
        if self.retries is not None:
            known[_RETRIES] = float(self.retries)
        return {prefix + tag: value for tag, value in known.items()}
