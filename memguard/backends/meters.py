"""Three ways to a batch's peak: shared with other readers, exclusive, or only watched (option ``peaks``)."""

from __future__ import annotations

from typing import Any, Protocol, final

from memguard.backends.counters import Look, Peaks, look_of
from memguard.backends.peaks import PeakLedger, raised

MODES = ("shared", "exclusive", "off")


class Meter(Protocol):
    """Looks at a device's statistics; the peaks are those since the last boundary."""

    def read(self) -> Look:
        """The statistics now and the peaks so far."""
        ...

    def boundary(self) -> Look:
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

    def read(self) -> Look:
        """The statistics now and the peaks since the last reset of anybody's."""
        return raised(look_of(getattr(self._module, self._read_name)(self._device)), self._start)

    def boundary(self) -> Look:
        """The same, then a reset."""
        look = self.read()
        getattr(self._module, self._reset_name)(self._device)
        self._start = look.allocated, look.reserved, look.active
        return look

    def close(self) -> None:
        """Leaves the counters as they are."""


@final
class Watched:
    """Never resets: a stretch's peak is known only when it raised the peak since the last reset of anybody's."""

    def __init__(self, module: Any, read: str, device: int) -> None:
        self._module, self._read_name, self._device = module, read, device
        self._before: Peaks | None = None

    def read(self) -> Look:
        """The statistics now and the peaks that are certain; None for the others."""
        return self._certain(look_of(getattr(self._module, self._read_name)(self._device)))

    def boundary(self) -> Look:
        """The same at the end of a stretch."""
        look = look_of(getattr(self._module, self._read_name)(self._device))
        certain, self._before = self._certain(look), look.peaks
        return certain

    def close(self) -> None:
        """Has nothing to leave."""

    def _certain(self, look: Look) -> Look:
        if self._before is None:
            return look._replace(peaks=Peaks(None, None, None))
        pairs = zip(look.peaks, self._before, strict=True)
        return look._replace(peaks=Peaks(*(now if (now or 0) > (before or 0) else None for now, before in pairs)))


def open_meter(mode: str, ledger: PeakLedger, device: int) -> Meter:
    """The meter for a value of the option ``peaks``.

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
