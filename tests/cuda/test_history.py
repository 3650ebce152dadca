"""The allocation history on the real allocator: on once growth is suspected, then off; the user's own is left alone."""

from __future__ import annotations

import gc
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import memguard
from memguard.backends.cuda_history import CudaHistory
from memguard.evidence.peaks.history import HistoryProbe
from memguard.records.facts import Fact, SurvivingAllocations
from memguard.text.units import MIB

pytestmark = [pytest.mark.cuda, pytest.mark.filterwarnings("ignore")]

BATCHES = 140
STEP_BYTES = 32 * MIB
"""More than a ten-thousandth of any device in five windows, less than a device over the whole run."""


def is_on() -> bool:
    """Whether torch's CUDA allocator records a history."""
    return bool(torch._C._cuda_isHistoryEnabled())


@contextmanager
def hearing(patch: pytest.MonkeyPatch) -> Iterator[list[Fact]]:
    """The facts that the history's probe reports."""
    heard: list[Fact] = []
    made = HistoryProbe.__init__

    def init(probe: HistoryProbe, watch: Any, report: Callable[[Fact], None]) -> None:
        made(probe, watch, lambda fact: (heard.append(fact), report(fact))[1])

    patch.setattr(HistoryProbe, "__init__", init)
    yield heard


def grow(folder: Path, *, device: str = "auto", after: Callable[[int], None] = lambda batch: None) -> list[bool]:
    """Trains while a list grows by the line marked HERE; whether the history was on after each batch."""
    model = nn.Linear(64, 64).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    kept, on = [], []
    with memguard.watch(model, optimizer, device=device, logdir=folder, quiet=True):
        for batch in range(BATCHES):
            optimizer.zero_grad()
            model(torch.ones(8, 64, device="cuda")).sum().backward()
            optimizer.step()
            kept.append(torch.empty(STEP_BYTES, dtype=torch.uint8, device="cuda"))  # HERE
            after(batch)
            on.append(is_on())
    return on


def here() -> int:
    return next(n for n, line in enumerate(Path(__file__).read_text().splitlines(), 1) if line.endswith("# HERE"))


@pytest.mark.parametrize("device", ["auto", "cuda:0"])
def test_growth_names_the_line_and_the_history_goes_off_again(
    device: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is on for eight batches or so, the line is the user's, and nothing is on when the run is over."""
    with hearing(monkeypatch) as facts:
        on = grow(tmp_path, device=device)
    assert not on[30] and any(on), "only once growth is suspected"
    first = on.index(True)
    assert 8 <= on[first:].index(False) <= 9
    assert not is_on()
    (fact, *_) = [fact for fact in facts if isinstance(fact, SurvivingAllocations)]
    assert (Path(fact.place.file or ""), fact.place.line) == (Path(__file__), here())
    assert fact.place.function == "grow"
    assert fact.bytes >= 6 * STEP_BYTES


def test_a_level_run_never_records_one(tmp_path: Path) -> None:
    """No suspicion, no history: the allocator does not pay for stacks."""
    model = nn.Linear(64, 64).cuda()
    with memguard.watch(model, logdir=tmp_path, quiet=True):
        for _ in range(BATCHES):
            model(torch.ones(8, 64, device="cuda")).sum().backward()
            assert not is_on()


def entries() -> list[dict[str, Any]]:
    return [event for events in torch.cuda.memory._snapshot()["device_traces"] for event in events]


def test_the_users_own_recording_goes_on(tmp_path: Path) -> None:
    """A history that the user began before is neither replaced nor ended: the first event is still in it."""
    torch.cuda.memory._record_memory_history(enabled="all", stacks="python")
    marker = torch.empty(7 * MIB, dtype=torch.uint8, device="cuda")
    on = grow(tmp_path)
    assert all(on) and is_on()
    assert [event for event in entries() if event["addr"] == marker.data_ptr() and event["action"] == "alloc"]


def test_a_recording_that_the_user_begins_meanwhile_is_theirs(tmp_path: Path) -> None:
    """Ours is on when they begin: it becomes theirs, and is not ended after our eight batches or at the end."""
    began: list[int] = []

    def begin(batch: int) -> None:
        if is_on() and not began:
            began.append(batch)
            torch.cuda.memory._record_memory_history(enabled="all", stacks="python")

    on = grow(tmp_path, after=begin)
    assert began and all(on[began[0] :]) and is_on()
    allocated = [event for event in entries() if event["action"] == "alloc" and event["size"] == STEP_BYTES]
    assert len(allocated) >= BATCHES - began[0] - 1
    assert allocated[-1]["frames"], "with the stacks that they asked for"


def test_what_the_user_switches_off_stays_off(tmp_path: Path) -> None:
    """A user who ends any history ends ours as well; the run goes on and the next suspicion begins a new one."""
    ended: list[int] = []

    def end(batch: int) -> None:
        if is_on() and not ended:
            ended.append(batch)
            torch.cuda.memory._record_memory_history(enabled=None)

    on = grow(tmp_path, after=end)
    assert ended and not on[ended[0]] and not is_on()


def test_a_run_that_ends_in_the_middle_leaves_none_behind(tmp_path: Path) -> None:
    """Also where the loop raises while ours is on; torch's own function is in its place again."""
    function = torch.cuda.memory._record_memory_history

    class Stop(Exception):
        pass

    def stop(batch: int) -> None:
        if is_on():
            raise Stop

    with pytest.raises(Stop):
        grow(tmp_path, after=stop)
    assert not is_on()
    assert torch.cuda.memory._record_memory_history is function
    gc.collect()


def test_the_growth_is_told_with_the_line(tmp_path: Path) -> None:
    """In the report's words, as a user sees it."""
    grow(tmp_path)
    told = [json.loads(line) for path in tmp_path.rglob("*.jsonl") for line in path.read_text().splitlines()]
    findings = [each for each in told if str(each.get("code", "")).startswith("MG")]
    assert any(each.get("line") == here() and each.get("file") == __file__ for each in findings), findings


def test_a_recording_kept_in_reserve_gives_way_to_one_with_stacks() -> None:
    """Where memory is scarce both are wanted: the one without stacks begins again when the other has ended."""
    torch.cuda.init()
    function = torch.cuda.memory._record_memory_history
    reserve, probe, other = CudaHistory(), CudaHistory(), CudaHistory()
    reserve.record_history(True, 1000, context=None)
    assert reserve.records_history and not probe.records_history
    probe.record_history(True, 1000)
    block = torch.empty(3 * MIB, dtype=torch.uint8, device="cuda")
    reserve.record_history(True, 1000, context=None)
    assert other.records_history, "the one with stacks gives way to nobody"
    assert [event["size"] for event in entries() if event["action"] == "alloc" and event["frames"]] == [block.nbytes]
    probe.record_history(False)
    assert not is_on()
    reserve.record_history(True, 1000, context=None)
    assert is_on()
    reserve.record_history(False)
    assert not is_on() and torch.cuda.memory._record_memory_history is function


def test_a_recording_in_reserve_that_the_user_took_over_is_left_alone() -> None:
    """It is theirs, with or without stacks, and gives way to nobody."""
    torch.cuda.init()
    reserve, probe = CudaHistory(), CudaHistory()
    reserve.record_history(True, 1000, context=None)
    torch.cuda.memory._record_memory_history(enabled="all", stacks="python")
    assert probe.records_history
    probe.record_history(True, 1000)
    probe.record_history(False)
    reserve.record_history(False)
    assert is_on()
