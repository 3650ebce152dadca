from __future__ import annotations

from typing import Any

import torch
from torch import nn

from memguard.backends.cuda_history import CudaHistory, choose_history
from memguard.evidence.peaks.history import HistoryProbe, swelling
from memguard.records.facts import SurvivingAllocations
from tests.evidence.loop import Loop, record_of
from tests.evidence.timelines import timeline_of


def event(action: str, addr: int, line: int = 1, size: int = 512) -> dict[str, Any]:
    library = {"filename": torch.__file__, "line": 5, "name": "linear"}
    return {
        "action": action,
        "addr": addr,
        "size": size,
        "frames": [library, {"filename": "/u/train.py", "line": line, "name": "step"}],
    }


class FakeHistory:
    def __init__(self) -> None:
        self.calls: list[bool] = []

    @property
    def records_history(self) -> bool:
        return self.calls[-1:] == [True]

    def record_history(self, enabled: bool, max_entries: int) -> None:
        self.calls.append(enabled)

    def snapshot(self) -> dict[str, Any]:
        kept = [event("alloc", address, line=41) for address in range(8)]
        passing = [event(action, 100 + i, line=42) for i in range(8) for action in ("alloc", "free_completed")]
        return {"device_traces": [kept + passing]}


def run(ends: list[int]) -> tuple[FakeHistory, Loop]:
    history = FakeHistory()
    with Loop(nn.Linear(2, 2), kinds=[HistoryProbe], history=history, device_total_bytes=10_000) as loop:
        for index in loop.batches(len(ends)):
            loop.record = record_of(allocated_end_bytes=ends[index])
    return history, loop


def test_a_level_floor_never_switches_it_on() -> None:
    """Constant memory and a saw-tooth are no suspicion."""
    history, _ = run([1000 + 10 * (i % 20) for i in range(200)])
    assert history.calls == []


def test_what_single_batches_leave_is_no_floor() -> None:
    """The last batch of each window leaves ever more, the lowest of each window does not: no suspicion."""
    history, _ = run([1000 + (10 * i if i % 8 == 7 else 0) for i in range(200)])
    assert history.calls == []


def test_a_history_that_is_on_is_switched_off_at_the_end() -> None:
    """A run that ends in the middle leaves no history behind."""
    history, _ = run([1000 + 10 * i for i in range(76)])
    assert history.calls == [True, False]


def test_a_tensor_that_swells_is_found() -> None:
    """One line that makes a larger tensor each time, of which only the newest lives; equal sizes are no growth."""
    frames = [{"filename": __file__, "line": 7, "name": "enqueue"}]

    def events(sizes: list[int]) -> list[dict[str, Any]]:
        trace: list[dict[str, Any]] = []
        for number, size in enumerate(sizes):
            trace.append({"action": "alloc", "addr": number, "size": size, "frames": frames})
            if number:
                trace.append({"action": "free_requested", "addr": number - 1, "size": size, "frames": frames})
        return trace

    ((place, rises, nbytes),) = swelling(timeline_of(events([1000 + 100 * i for i in range(8)])), at_least=6)
    assert (place.line, rises, nbytes) == (7, 7, 700)
    assert swelling(timeline_of(events([1000] * 8)), at_least=6) == []


def test_of_a_device_that_is_not_known_yet_cuda_writes_the_history() -> None:
    """Only where CUDA is in use by then: before, nothing is switched on and nothing was written."""
    history = choose_history("auto", object())
    assert type(history) is CudaHistory and choose_history("cpu", object()) is None
    if not torch.cuda.is_initialized():
        history.record_history(True, 10)
        assert history.snapshot() == {}


class SlowlyGrowing(FakeHistory):
    def snapshot(self) -> dict[str, Any]:
        added = [event(action, 1, line=43, size=512) for action in ("alloc", "free_completed")]  # x = cat([x, x[:k]])
        swells = [step for i in range(9, 14) for step in (*added, event("alloc", 1000 + i, line=43, size=512 * i))]
        freed = [event("free_completed", 1000 + i, line=43) for i in range(9, 13)]
        return {"device_traces": [swells + freed if len(self.calls) == 3 else []]}


def test_what_does_not_grow_in_every_batch_is_named_by_a_longer_look() -> None:
    """The first look lasts eight batches and finds nothing; the second lasts 32."""
    history = SlowlyGrowing()
    with Loop(nn.Linear(2, 2), kinds=[HistoryProbe], history=history) as loop:
        for index in loop.batches(200):
            loop.record = record_of(allocated_end_bytes=1000 * index)
    (fact,) = loop.of(SurvivingAllocations)
    assert (fact.place.line, fact.batches) == (43, 32)
