"""Every batch's true peak, while everybody else's view of torch's peak counters stays what it would be without us.

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
from typing import Any, NamedTuple, final

try:
    from torch._C._dynamo.eval_frame import skip_code  # type: ignore[attr-defined]
except ImportError:  # a torch without torch.compile
    skip_code = None

from memguard.backends.counters import Peaks, Reading, held_in, peaks_of
from memguard.forks import pid

Read = Callable[[int], Reading]
Bytes = tuple[int, int, int]
"""Allocated, reserved and active bytes."""
Floor = Bytes | Reading
"""The least that a stretch's peaks can be: numbers, or the reading it began with, not looked into yet."""

AT_ONCE = 16
"""Resets that wait to be written down: what everybody would have seen is worked out when somebody asks, or then."""


class Mark(NamedTuple):
    """A boundary that was taken and not worked out yet: code that runs in a row costs a third of code run now and then.

    Attributes:
        floor: Of the stretch that ends here.
        reading: The counters at its end, before the reset.
    """

    floor: Floor
    reading: Reading


@final
class Stretch:
    """The time between two boundaries of one guard on one device, with the peaks that resets of others wiped out."""

    __slots__ = ("_floor", "_ledger", "device")

    def __init__(self, ledger: PeakLedger, device: int) -> None:
        self.device = device
        self._ledger = ledger
        self._floor: Floor = (0, 0, 0)

    def read(self) -> tuple[Reading, Peaks]:
        """The statistics now and the peaks of the stretch so far."""
        return self._ledger.look(self)

    def mark(self) -> Mark:
        """The statistics now, and a new stretch; `work_out` tells the peaks of the one that ended."""
        floor, self._floor = self._floor, self._ledger.turn(self)
        return Mark(floor, self._floor)

    def boundary(self) -> tuple[Reading, Peaks]:
        """The statistics now and the peaks of the stretch, which begins anew."""
        return work_out(self.mark())

    def close(self) -> None:
        """The guard needs no more peaks."""
        self._ledger.close(self)

    def keep(self, reading: Reading) -> None:
        """Remembers the peaks of a reading that is about to be reset."""
        self._floor = _raised(self._floor, reading)

    def peaks(self, reading: Reading) -> Peaks:
        """The peaks of the stretch, given the counters as they stand."""
        return _peaks(self._floor, reading)


def work_out(mark: Mark) -> tuple[Reading, Peaks]:
    """The statistics at a mark, and the peaks of the stretch that ended with it."""
    return mark.reading, _peaks(mark.floor, mark.reading)


def _raised(floor: Floor, reading: Reading) -> Bytes:
    # The driver's own allocator counts its peaks from zero after a reset, so what was held then counts as well.
    allocated, reserved, active = held_in(floor) if isinstance(floor, dict) else floor
    peaks = peaks_of(reading)
    return max(allocated, peaks[0]), max(reserved, peaks[1]), max(active, peaks[2])


def _peaks(floor: Floor, reading: Reading) -> Peaks:
    return Peaks(*_raised(floor, reading))


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
        self._wiped: dict[int, Reading] = {}
        self._waiting: dict[int, list[Reading]] = {}
        self._patched: dict[str, tuple[Any, Any]] = {}
        # Re-entrant: a garbage collection or a signal may run a reader of the user's while we hold it.
        self._lock = threading.RLock()
        self._pid = pid()
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
        if self._pid != pid():  # a forked child: the parent's guards are not ours, its lock may be held for ever
            self._lock, self._pid = threading.RLock(), pid()
            self._stretches.clear()
            self._wiped.clear()
            self._waiting.clear()
        with self._lock:
            if not self._patched:
                self._install()
            stretch = Stretch(self, device)
            self._stretches.setdefault(device, []).append(stretch)
            return stretch

    def close(self, stretch: Stretch) -> None:
        """Ends a stretch; the last one to go takes the ledger away, unless someone is owed a peak."""
        if self._pid != pid():
            return
        with self._lock:
            stretches = self._stretches.get(stretch.device, [])
            if stretch not in stretches:
                return
            stretches.remove(stretch)
            if stretches:
                return
            del self._stretches[stretch.device]
            wiped = self._owed(stretch.device)
            if wiped is not None and not lift(self._read(stretch.device), wiped):
                del self._wiped[stretch.device]
            self._remove_if_idle()

    def look(self, stretch: Stretch) -> tuple[Reading, Peaks]:
        """The statistics of a stretch's device and its peaks so far."""
        with self._lock:
            reading = self._read(stretch.device)
            return reading, stretch.peaks(reading)

    def turn(self, stretch: Stretch) -> Reading:
        """The statistics at the end of a stretch; the counters are reset, and everybody's loss will be written down."""
        device = stretch.device
        with self._lock:
            reading = self._read(device)
            stretches = self._stretches[device]
            if len(stretches) > 1:
                for other in stretches:
                    if other is not stretch:
                        other.keep(reading)
            waiting = self._waiting.get(device)
            if waiting is None:
                waiting = self._waiting[device] = []
            waiting.append(reading)
            self._reset(device)
            if len(waiting) >= AT_ONCE:
                self._owed(device)
        return reading

    def _owed(self, device: int) -> Reading | None:
        """What our resets wiped out on a device so far, the last ones included; None if there were none."""
        waiting = self._waiting.pop(device, None)
        if not waiting:
            return self._wiped.get(device)
        owed = _copy(waiting[-1])
        for reading in waiting[:-1]:
            lift(owed, reading)
        if (before := self._wiped.get(device)) is not None:
            lift(owed, before)
        self._wiped[device] = owed
        return owed

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
            if self._pid != pid():
                return function(device)
            with self._lock:
                reading = function(device)
                if (wiped := self._owed(device)) is not None:
                    lift(reading, wiped)
                return reading

        return read

    def _noted(self, function: Callable[[int], None]) -> Callable[[int], None]:
        """A resetter that lets us write down what it wipes out."""

        def reset(device: int, /) -> None:
            if self._pid != pid():
                return function(device)
            with self._lock:
                for stretch in self._stretches.get(_index(device), ()):
                    stretch.keep(self._read(stretch.device))
                function(device)
                self._waiting.pop(_index(device), None)
                if self._wiped.pop(_index(device), None) is not None:
                    self._remove_if_idle()

        return reset


def _copy(reading: Reading) -> Reading:
    """The same numbers in containers of its own: marks still need those of the original."""
    return {name: _copy(value) if type(value) is dict else value for name, value in reading.items()}


def lift(reading: Reading, floor: Reading) -> bool:
    """Raises every peak of a reading to that of another; tells whether one was lower. 3 us.

    What only one of them has (the pool of a CUDA graph that came or went) stays as it is.
    """
    lifted = False
    for name, lower in floor.items():
        if type(lower) is not dict or not (value := reading.get(name)):
            continue
        if "all" in lower:  # the usual shape, written out because every batch pays for it
            for pool, low in lower.items():
                high, peak = value[pool], low["peak"]
                if high["peak"] < peak:
                    high["peak"] = peak
                    lifted = True
        elif "peak" in lower:
            if value["peak"] < lower["peak"]:
                value["peak"] = lower["peak"]
                lifted = True
        elif lift(value, lower):
            lifted = True
    return lifted


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
