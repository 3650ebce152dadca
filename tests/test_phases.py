"""`memguard.phase`: peaks of named parts of a loop, where they are told, and what they leave alone."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import memguard
import memguard.phases as phase_listeners
from memguard.integrations.guard import Guard
from memguard.recording.reader import Recording, find_recordings
from memguard.records.phases import PhaseTotals
from memguard.report.html_lines import LineIndex
from memguard.report.summaries import summarize

MIB = 2**20


def mib(count: int) -> torch.Tensor:
    """A tensor of so many MiB on the virtual device."""
    return torch.empty(count * MIB, dtype=torch.uint8)


@pytest.fixture
def guard(tmp_path: Path) -> Iterator[Guard]:
    """A guard of a virtual device of 256 MiB."""
    with memguard.watch(device="virtual:256MiB", logdir=tmp_path, quiet=True) as guard:
        yield guard


def phases(guard: Guard) -> dict[str, PhaseTotals]:
    return guard.session.recorder.phases.totals


def test_a_phase_has_its_own_peak(guard: Guard) -> None:
    """What was freed before counts not, what is kept counts; the floor is what is left."""
    kept = mib(8)
    del_me = mib(100)
    del del_me
    with memguard.phase("rollout"):
        cache = mib(20)
        del cache
        answers = mib(2)
    row = phases(guard)["rollout"]
    assert (row.times, row.allocated_peak_bytes, row.floor_bytes) == (1, 28 * MIB, 10 * MIB)
    assert row.reserved_peak_bytes is not None
    assert row.reserved_peak_bytes >= 28 * MIB
    del kept, answers


def test_nested_phases_and_batches_share_the_counters(guard: Guard) -> None:
    """An inner phase, one after it, and batches that end in between: each has the peak of its own time."""
    with memguard.phase("update"):
        first = mib(30)
        del first
        with memguard.phase("log-probs"):
            inner = mib(10)
            for _ in guard.batches(range(2)):
                spike = mib(5)
                del spike
            del inner
        last = mib(1)
    rows = phases(guard)
    assert list(rows) == ["update", "update > log-probs"]
    assert [row.allocated_peak_bytes for row in rows.values()] == [30 * MIB, 15 * MIB]
    peaks = [record.allocated_peak_bytes for record in guard.records]
    assert peaks[:2] == [30 * MIB, 15 * MIB]  # what lies before the first batch counts to it
    del last


def test_a_batch_keeps_the_peak_that_a_phase_within_it_read(guard: Guard) -> None:
    """A phase that begins in a batch resets the counters; the batch's record has the whole."""
    for _ in guard.batches(range(3)):
        spike = mib(40)
        del spike
        with memguard.phase("forward"):
            small = mib(3)
        del small
    assert [record.allocated_peak_bytes for record in guard.records] == [40 * MIB] * 3
    assert phases(guard)["forward"].allocated_peak_bytes == 3 * MIB


def test_a_phase_that_fails_is_recorded(guard: Guard) -> None:
    """Its peak, and that it failed; the exception flies on."""
    with pytest.raises(KeyError), memguard.phase("sync"):
        mib(12)
        raise KeyError("x")
    row = phases(guard)["sync"]
    assert (row.times, row.failed, row.allocated_peak_bytes) == (1, 1, 12 * MIB)


def test_one_name_sums_up_and_may_call_itself(guard: Guard) -> None:
    """As a decorator, of a function that calls itself, a coroutine function and a generator function."""

    @memguard.phase("walk")
    def walk(depth: int) -> int:
        """Walks."""
        return depth and walk(depth - 1)

    @memguard.phase("fetch")
    async def fetch() -> int:
        await asyncio.sleep(0)
        return mib(4).numel()

    @memguard.phase("stream")
    def stream() -> Iterator[int]:
        yield mib(6).numel()
        yield 2

    assert walk(2) == 0
    assert walk.__doc__ == "Walks."
    assert asyncio.run(fetch()) == 4 * MIB
    assert list(stream()) == [6 * MIB, 2]
    rows = phases(guard)
    assert {name: row.times for name, row in rows.items()} == {
        "walk": 1,
        "walk > walk": 1,
        "walk > walk > walk": 1,
        "fetch": 1,
        "stream": 1,
    }
    assert rows["stream"].allocated_peak_bytes == 6 * MIB


def test_phases_of_several_threads(guard: Guard) -> None:
    """Each thread has its own nesting; their rows count all that is allocated meanwhile."""
    inside, done = threading.Event(), threading.Event()

    def work() -> None:
        with memguard.phase("background"):
            inside.set()
            done.wait(10)

    thread = threading.Thread(target=work)
    with memguard.phase("main"):
        thread.start()
        inside.wait(10)
        with memguard.phase("inner"):
            spike = mib(16)
            del spike
        done.set()
        thread.join()
    rows = phases(guard)
    assert set(rows) == {"main", "main > inner", "background"}
    assert {row.allocated_peak_bytes for row in rows.values()} == {16 * MIB}


def test_without_a_guard_nothing_happens() -> None:
    """No torch is loaded for it, and a phase that outlives its guard, or is older, does no harm."""
    code = "import memguard, sys\nwith memguard.phase('x'): pass\nassert 'torch' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_guard_may_come_and_go_within_a_phase(tmp_path: Path) -> None:
    """It records what begins while it is open; what is under way as it goes ends there."""
    with memguard.phase("older"):
        guard = memguard.watch(device="virtual:64MiB", logdir=tmp_path, quiet=True)
        guard.__enter__()
        with memguard.phase("longer"):
            mib(3)
            guard.__exit__(None, None, None)
        assert phases(guard)["longer"].allocated_peak_bytes == 3 * MIB
    assert list(phases(guard)) == ["longer"]


@pytest.mark.parametrize(("name", "error"), [("", ValueError), ("  ", ValueError), (3, TypeError)])
def test_a_name_is_a_text(name: object, error: type[Exception]) -> None:
    """Anything else is refused where it is written."""
    with pytest.raises(error, match=r"memguard\.phase"):
        memguard.phase(name)  # type: ignore[arg-type]


def test_the_recording_has_each_row(tmp_path: Path) -> None:
    """Report and JSON say the same as the summary of the run; damaged lines are left out."""
    with memguard.watch(device="virtual:256MiB", logdir=tmp_path, quiet=True) as guard:
        for turn in range(200):
            with memguard.phase("rollout"):
                mib(1 + turn % 3)
    (path,) = find_recordings(tmp_path)
    lines = path.with_suffix(".jsonl")
    lines.write_text(lines.read_text() + '{"kind": "phase", "name": "x", "times": "many"}\n{"kind": "phase"}\n')
    summary = summarize(Recording.open(path))
    assert summary.phases.keys() == {"rollout"}
    live, read = phases(guard)["rollout"], summary.phases["rollout"]
    assert (read.times, read.allocated_peak_bytes) == (live.times, live.allocated_peak_bytes) == (200, 3 * MIB)
    assert len(Recording.open(path).of_kind("phase")) < 100
    done = subprocess.run(
        [sys.executable, "-m", "memguard", "report", str(tmp_path), "--json"],
        capture_output=True,
        text=True,
        check=True,
    )
    (row,) = json.loads(done.stdout)["phases"]
    assert (row["name"], row["times"]) == ("rollout", 200)


def test_the_tab_draws_each_phase_to_the_end(tmp_path: Path) -> None:
    """Also those that come so fast that one line of the recording is of several; gaps between them stay gaps."""
    with memguard.watch(device="virtual:256MiB", logdir=tmp_path, quiet=True) as guard:
        for batch in guard.batches(range(300)):
            if batch % 3 == 0:
                with memguard.phase("rollout"):
                    mib(1)
    (path,) = find_recordings(tmp_path)
    damaged = [{"kind": "phase", "name": "rollout", "times": 100, "ranges": each} for each in ([[1]], [["a", 2]], 3)]
    written = path.with_suffix(".jsonl").read_bytes() + "".join(json.dumps(each) + "\n" for each in damaged).encode()
    lines = LineIndex(lambda offset, size: written[offset : offset + size], "a recording")
    lines.refresh(len(written))
    drawn = {batch for first, last, _ in lines.phases()["stretches"] for batch in range(first, last + 1)}
    assert drawn == set(range(0, 300, 3))


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.body(x)  # type: ignore[no-any-return]


def trained(guard_phases: bool, folder: Path) -> list[tuple[int | None, int | None, int | None]]:
    """The records of a training of 40 batches."""
    torch.manual_seed(0)
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with memguard.watch(model, optimizer, device="virtual:64MiB", logdir=folder, quiet=True) as guard:
        for _ in range(40):
            loss = model(torch.randn(32, 64)).square().mean()
            if guard_phases:
                with memguard.phase("backward"):
                    loss.backward()
            else:
                loss.backward()
            optimizer.step()
            optimizer.zero_grad()
    return [(r.allocated_start_bytes, r.allocated_peak_bytes, r.allocated_end_bytes) for r in guard.records]


def test_records_are_the_same_with_and_without_phases(tmp_path: Path) -> None:
    """Naming a part of each batch changes no number of it."""
    assert trained(True, tmp_path / "a") == trained(False, tmp_path / "b")


@pytest.mark.long
def test_out_of_memory_and_findings_say_the_phase(tmp_path: Path) -> None:
    """Where memory ran out, and in which phase a batch began that was told of."""
    torch.manual_seed(0)
    model, kept = Net(), []
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    watched = memguard.watch(model, optimizer, device="virtual:64MiB", logdir=tmp_path, quiet=True)
    with watched as guard, pytest.raises(torch.OutOfMemoryError) as caught:
        for _ in range(400):
            with memguard.phase("update"):
                output = model(torch.randn(2048, 64))
                output.square().mean().backward()
                optimizer.step()
                optimizer.zero_grad()
                kept.append(output.exp())
    assert "in phase `update` since batch" in "".join(
        getattr(caught.value, "__notes__", ["in phase `update` since batch"])
    )
    (path,) = find_recordings(tmp_path)
    (oom,) = Recording.open(path).of_kind("oom")
    assert oom["in_phase"]["name"] == "update"
    row = phases(guard)["update"]
    assert row.failed == 1
    assert (row.allocated_peak_bytes or 0) > 40 * MIB
    finding = next(each for each in guard.findings if each.code == "MG101")
    assert finding.phase == "update"
    assert "In phase `update`, since batch" in finding.text


def test_the_example_names_what_a_step_is_made_of(tmp_path: Path) -> None:
    """A row for each phase of a small GRPO, and the planted fault at its line in its phase."""
    script = Path(__file__).parents[1] / "examples" / "grpo_phases.py"
    command = [sys.executable, str(script), "--steps", "3", "--leak", "--logdir", str(tmp_path)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    (path,) = find_recordings(tmp_path)
    recording = Recording.open(path)
    names = ["rollout", "rewards", "reference", "update", "update > log-probs"]
    assert list(summarize(recording).phases) == names
    assert all(f"\n{name}  " in done.stderr for name in names)
    (found,) = (each for each in recording.findings if each.code == "MG106")
    assert script.read_text().splitlines()[(found.line or 0) - 1].strip() == "entropies.append(entropy)"
    assert (found.holder, found.phase) == ("entropies", "update")


def test_an_interrupt_as_a_guard_stops_to_listen_leaves_no_listener(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It comes before anything is done; the fixture of all tests finds what is left."""
    real, interrupts = phase_listeners.ignore, [KeyboardInterrupt()]

    def ignore(listener: Any) -> None:
        if interrupts:
            raise interrupts.pop()
        real(listener)

    monkeypatch.setattr(phase_listeners, "ignore", ignore)
    guard = memguard.watch(device="virtual:64MiB", logdir=tmp_path, quiet=True)
    guard.__enter__()
    with pytest.raises(KeyboardInterrupt):
        guard.__exit__(None, None, None)
    assert interrupts == []
