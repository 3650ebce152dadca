"""A forward inside the handler of an out-of-memory error: the exception keeps the failed step's tensors."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import ClassVar, final

import torch

from memguard.facts import ExceptionHolds, Fact, Place
from memguard.probes.interface import Probe, Watch
from memguard.probes.objects.frames import is_user_frame, read_locals, user_frames
from memguard.probes.objects.nested import tensors_in
from memguard.probes.objects.sites import call_site, place_of
from memguard.probes.objects.sizes import held_bytes, owned_storages
from memguard.source.sites import handler_at

MAX_FRAMES = 64
MAX_LOOKS = 3


@final
class ExceptionsProbe(Probe):
    """Asks at each forward whether an out-of-memory error is being handled right now."""

    name: ClassVar[str] = "exceptions"

    def __init__(self, watch: Watch, report: Callable[[Fact], None]) -> None:
        super().__init__(watch, report)
        self._looks = 0
        self._told: set[tuple[str | None, int]] = set()
        """File and line of the handlers."""

    def on_forward_in_handler(self) -> None:
        """One look at the error that is being handled."""
        error = sys.exc_info()[1]
        if error is None or self._looks >= MAX_LOOKS or not is_out_of_memory(error):
            return
        self._looks += 1
        place, handler = _retry_site()
        if (place.file, handler) in self._told:
            return  # a retry in two halves is one fault: the place is where the first of them runs
        self._told.add((place.file, handler))
        names, nbytes = _held(error.__traceback__, owned_storages(self.watch.models))
        self.report(
            ExceptionHolds(
                batch=self.watch.batch,
                stage=self.watch.stage,
                place=place,
                exception=type(error).__name__,
                handling=True,
                names=names,
                bytes=nbytes,
            )
        )


def _retry_site() -> tuple[Place, int]:
    """The line of the innermost handler that runs now, and where that begins, else where the model is called."""
    for frame in user_frames():
        handler = handler_at(frame.f_code.co_filename, frame.f_lineno)
        if handler is not None:
            return place_of(frame), handler
    place = call_site()
    return place, place.line or 0


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory ran out."""
    if isinstance(error, (torch.OutOfMemoryError, MemoryError)):
        return True
    return type(error) is RuntimeError and "out of memory" in str(error)


def _held(trace: TracebackType | None, ignore: dict[int, int]) -> tuple[tuple[str, ...], int]:
    """The local variables of the failed frames that hold tensors, largest first, and their bytes."""
    running: set[int] = set()
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        running.add(id(frame))
        frame = frame.f_back
    sizes: dict[str, int] = {}
    total: dict[int, int] = {}
    for _ in range(MAX_FRAMES):
        if trace is None:
            break
        current = trace.tb_frame
        if id(current) not in running and is_user_frame(current):
            for name, value in read_locals(current).items():
                held: dict[int, int] = {}
                for tensor in tensors_in(value, 2):
                    held.update(held_bytes(tensor, ignore))
                if held:
                    sizes[f"{current.f_code.co_name}() {name}"] = sum(held.values())
                    total.update(held)
        trace = trace.tb_next
    return tuple(sorted(sizes, key=lambda name: -sizes[name])), sum(total.values())
