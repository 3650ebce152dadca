"""The true peak of each batch, without changing what other readers of torch's peak counters see.

torch keeps one set of peak counters per device for the whole process. A batch's own peak needs a reset at each batch;
a reset spoils the answer of everybody else: the ``max_memory_allocated()`` at the end of a script, a callback that
logs `memory_stats()`, a benchmark that resets by itself. So the `PeakLedger` writes down what each of our resets wipes
out (a peak over a long time is the maximum of the peaks over its parts) and gives it back to whoever asks. Likewise
it writes down for us what the resets of others wipe out.

It works at the lowest point that Python sees, the functions of ``torch._C``, so it holds for every function above
them, also for those imported by name before. Names checked with torch 2.13 and 2.15. What it cannot see: names of
``torch._C`` itself that were imported by name before, and an allocation of another thread within the ten microseconds
between our reading of the counters and our reset.
"""

from __future__ import annotations

import functools
import operator
import threading
from collections.abc import Callable
from typing import Any, final

try:
    from torch._C._dynamo.eval_frame import skip_code  # type: ignore[attr-defined]
except ImportError:  # a torch without torch.compile
    skip_code = None

from memguard.backends.counters import Look, Peaks, Reading, look_of
from memguard.backends.reset_peaks import ResetPeaks
from memguard.forks import process

Read = Callable[[int], Reading]
Bytes = tuple[int, int, int]
"""Allocated, reserved and active bytes."""


@final
class Stretch:
    """The time between two boundaries of one guard on one device, with the peaks that resets of others wiped out."""

    __slots__ = ("_floor", "_ledger", "device")

    def __init__(self, ledger: PeakLedger, device: int) -> None:
        self.device = device
        self._ledger = ledger
        self._floor: Bytes = (0, 0, 0)
        """The least that the stretch's peaks can be."""

    def read(self) -> Look:
        """The statistics now and the peaks of the stretch so far."""
        return raised(look_of(self._ledger.look(self.device)), self._floor)

    def boundary(self) -> Look:
        """The statistics now and the peaks of the stretch, which begins anew."""
        look = self._ledger.turn(self)
        floor, self._floor = self._floor, look[:3]
        return raised(look, floor)

    def close(self) -> None:
        """The guard needs no more peaks."""
        self._ledger.close(self)

    def keep(self, reading: Reading) -> None:
        """Remembers the peaks of a reading that is about to be reset."""
        allocated, reserved, active = raised(look_of(reading), self._floor).peaks
        self._floor = allocated or 0, reserved or 0, active or 0


def raised(look: Look, floor: Bytes) -> Look:
    """The same look, its peaks no lower than the floor.

    They can be: a reset of others wiped out what came before it, and the driver's own allocator counts its peaks from
    zero after a reset, so what was held then counts as well.
    """
    least_allocated, least_reserved, least_active = floor
    allocated, reserved, active = look[4]
    if (allocated or 0) >= least_allocated and (reserved or 0) >= least_reserved and (active or 0) >= least_active:
        return look
    return look._replace(peaks=Peaks(*(max(peak or 0, least) for peak, least in zip(look.peaks, floor, strict=True))))


@final
class PeakLedger:
    """What our resets of the peak counters wiped out, per device, and the functions that give it back.

    It is in place while a stretch is open. When the last one closes, it goes at once if nobody is owed a peak; else it
    stays, reading only, until the user's next reset, because a script asks for its peak after the training.

    Args:
        module: Where torch's functions are: ``torch._C``.
        readers: Names of the functions that return nested statistics of a device, the fullest first.
        resetters: Names of the functions that reset the peaks of a device.
    """

    def __init__(self, module: Any, readers: tuple[str, ...], resetters: tuple[str, ...]) -> None:
        self.module = module
        self.readers, self.resetters = readers, resetters
        self._stretches: dict[int, list[Stretch]] = {}
        self._wiped: dict[int, ResetPeaks] = {}
        self._patched: dict[str, tuple[Any, Any]] = {}
        # Re-entrant: a garbage collection or a signal may run a reader of the user's while we hold it.
        self._lock = threading.RLock()
        self._pid = process.pid
        self._read: Read
        self._reset: Callable[[int], None]

    @property
    def reader(self) -> str:
        """The name of the fullest reader that this torch has."""
        return next(name for name in self.readers if hasattr(self.module, name))

    @property
    def resetter(self) -> str:
        """The name of a resetter that this torch has."""
        return next(name for name in self.resetters if hasattr(self.module, name))

    @property
    def installed(self) -> bool:
        """Whether functions of torch are replaced at the moment."""
        return bool(self._patched)

    def open(self, device: int) -> Stretch:
        """A new stretch on a device; puts the ledger in place if it is the first."""
        if self._pid != process.pid:  # a forked child: the parent's guards are not ours, its lock may be held for ever
            self._lock, self._pid = threading.RLock(), process.pid
            self._stretches.clear()
            self._wiped.clear()
        with self._lock:
            if not self._patched:
                self._install()
            stretch = Stretch(self, device)
            self._stretches.setdefault(device, []).append(stretch)
            return stretch

    def close(self, stretch: Stretch) -> None:
        """Ends a stretch; the last one to go takes the ledger away, unless someone is owed a peak."""
        if self._pid != process.pid:
            return
        with self._lock:
            stretches = self._stretches.get(stretch.device, [])
            if stretch not in stretches:
                return
            stretches.remove(stretch)
            if stretches:
                return
            del self._stretches[stretch.device]
            wiped = self._wiped.get(stretch.device)
            if wiped is not None and not wiped.lift(self._read(stretch.device)):
                del self._wiped[stretch.device]
            self._remove_if_idle()

    def look(self, device: int) -> Reading:
        """The statistics of a device as torch tells them."""
        with self._lock:
            return self._read(device)

    def turn(self, stretch: Stretch) -> Look:
        """The statistics at the end of a stretch; the counters are reset, and everybody's loss is written down."""
        device = stretch.device
        with self._lock:
            reading = self._read(device)
            if len(stretches := self._stretches[device]) > 1:
                for other in stretches:
                    if other is not stretch:
                        other.keep(reading)
            wiped = self._wiped.get(device)
            if wiped is None:
                wiped = self._wiped[device] = ResetPeaks(reading)
            look = wiped.take(reading)
            self._reset(device)
        return look

    def _install(self) -> None:
        self._read = getattr(self.module, self.reader)
        self._reset = getattr(self.module, self.resetter)
        for names, replace in ((self.readers, self._lifted), (self.resetters, self._noted)):
            for name in names:
                if (function := getattr(self.module, name, None)) is not None:
                    replacement = hide_from_dynamo(functools.wraps(function)(replace(function)))
                    self._patched[name] = function, replacement
                    setattr(self.module, name, replacement)

    def _remove_if_idle(self) -> None:
        if self._stretches or self._wiped:
            return
        for name, (function, replacement) in self._patched.items():
            if getattr(self.module, name) is replacement:  # else someone patched over us; ours only passes on then
                setattr(self.module, name, function)
        self._patched.clear()

    def _lifted(self, function: Read) -> Read:
        """A reader that gives back what we wiped out."""

        def read(device: int, /) -> Reading:
            if self._pid != process.pid:
                return function(device)
            with self._lock:
                reading = function(device)
                if (wiped := self._wiped.get(device)) is not None:
                    wiped.lift(reading)
                return reading

        return read

    def _noted(self, function: Callable[[int], None]) -> Callable[[int], None]:
        """A resetter that lets us write down what it wipes out."""

        def reset(device: int, /) -> None:
            if self._pid != process.pid:
                return function(device)
            with self._lock:
                for stretch in self._stretches.get(_index(device), ()):
                    stretch.keep(self._read(stretch.device))
                function(device)
                if self._wiped.pop(_index(device), None) is not None:
                    self._remove_if_idle()

        return reset


def hide_from_dynamo(function: Any) -> Any:
    """The same function, marked so that torch.compile never compiles its frame; torch's private switch for that."""
    if skip_code is not None:
        skip_code(function.__code__)
    return function


def _index(device: object) -> int:
    """The device number, or -1 for what torch is about to refuse."""
    try:
        return operator.index(device)  # type: ignore[arg-type]
    except TypeError:
        return -1
