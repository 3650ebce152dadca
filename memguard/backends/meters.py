"""Three ways to a batch's peak: shared with all other readers, for us alone, or only watched (option ``peaks``)."""

from __future__ import annotations

from typing import Any, Protocol, final

from memguard.backends.counters import Peaks, Reading, held_in, peaks_of
from memguard.backends.peaks import Mark, PeakLedger

MODES = ("shared", "exclusive", "off")


class Meter(Protocol):
    """Reads a device's statistics together with the peaks since the last boundary."""

    def read(self) -> tuple[Reading, Peaks]:
        """The statistics now and the peaks so far."""
        ...

    def mark(self) -> Mark | tuple[Reading, Peaks]:
        """A boundary: the stretch begins anew. A `Mark` is to be worked out (`memguard.backends.peaks.work_out`)."""
        ...

    def boundary(self) -> tuple[Reading, Peaks]:
        """The statistics now and the peaks of the stretch, which begins anew."""
        ...

    def close(self) -> None:
        """No more peaks are needed."""
        ...


@final
class Exclusive:
    """Resets the counters at each boundary, so other readers see the peak of the last batch only."""

    def __init__(self, module: Any, read: str, reset: str, device: int) -> None:
        self._module, self._read_name, self._reset_name, self._device = module, read, reset, device
        self._start = (0, 0, 0)

    def read(self) -> tuple[Reading, Peaks]:
        """The statistics now and the peaks since the last reset of anybody's."""
        reading = getattr(self._module, self._read_name)(self._device)
        return reading, Peaks(*map(max, self._start, peaks_of(reading)))

    def mark(self) -> tuple[Reading, Peaks]:
        """A boundary, worked out at once."""
        return self.boundary()

    def boundary(self) -> tuple[Reading, Peaks]:
        """The same, then a reset."""
        reading, peaks = self.read()
        getattr(self._module, self._reset_name)(self._device)
        self._start = held_in(reading)
        return reading, peaks

    def close(self) -> None:
        """Leaves the counters as they are."""


@final
class Watched:
    """Never resets: a stretch's peak is known only when it raised the peak since the last reset of anybody's."""

    def __init__(self, module: Any, read: str, device: int) -> None:
        self._module, self._read_name, self._device = module, read, device
        self._before: tuple[int, int, int] | None = None

    def read(self) -> tuple[Reading, Peaks]:
        """The statistics now and the peaks that are certain; None for the others."""
        reading = getattr(self._module, self._read_name)(self._device)
        if self._before is None:
            return reading, Peaks(None, None, None)
        pairs = zip(peaks_of(reading), self._before, strict=True)
        return reading, Peaks(*(now if now > before else None for now, before in pairs))

    def mark(self) -> tuple[Reading, Peaks]:
        """A boundary, worked out at once."""
        return self.boundary()

    def boundary(self) -> tuple[Reading, Peaks]:
        """The same at the end of a stretch."""
        reading, peaks = self.read()
        self._before = peaks_of(reading)
        return reading, peaks

    def close(self) -> None:
        """Has nothing to leave."""


def open_meter(mode: str, ledger: PeakLedger, device: int) -> Meter:
    """The meter for a value of the option ``peaks``.

    Args:
        mode: One of `MODES`.
        ledger: The process's ledger for this kind of device.
        device: Number of the device.

    Raises:
        ValueError: The mode is not one of `MODES`.
    """
    if mode == "shared":
        return ledger.open(device)
    if mode == "exclusive":
        return Exclusive(ledger.module, ledger.reader, ledger.resetter, device)
    if mode == "off":
        return Watched(ledger.module, ledger.reader, device)
    raise ValueError(f"peaks must be one of {', '.join(MODES)}, got {mode!r}")
