"""Real steps as the forecast's own traces: recorded on a virtual GPU, replayed, and scaled by the batch size."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from memguard.allocator.snapshot import TraceEntry
from memguard.allocator.snapshot_reader import snapshot_of
from memguard.backends.virtual import VirtualBackend
from memguard.errors import MemGuardError
from memguard.forecast import from_file
from memguard.forecast.cards import find_card
from memguard.forecast.from_file import forecast_target
from memguard.forecast.judging import judge, run_on
from memguard.forecast.recorded import Measured, Moment, Owned, falls, scaled, trace_of_history
from memguard.forecast.trace import Event, Kind, Recorded

CONF = ""


def run_steps(backend, batch, steps=3):
    """A small training; where each step began, by the allocator's counters."""
    model = nn.Sequential(nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 512))
    optimizer = torch.optim.AdamW(model.parameters(), foreach=True)
    moments = []
    for number in range(steps + 1):
        stats = backend.memory_stats()
        moments.append(Moment(stats["allocation.all.allocated"], stats["allocation.all.freed"]))
        if number < steps:
            optimizer.zero_grad()
            model(torch.randn(batch, 512)).sum().backward()
            optimizer.step()
    owned = [Owned(moments[-1][0], p.untyped_storage().data_ptr(), "parameters") for p in model.parameters()]
    return moments, owned, backend.memory_stats()


def measured(batch):
    backend = VirtualBackend(1 << 40, conf=CONF)
    backend.install()
    backend.record_history(True, 1_000_000)
    try:
        moments, owned, stats = run_steps(backend, batch)
        snapshot = snapshot_of(backend.snapshot())
    finally:
        backend.remove()
    trace = trace_of_history(
        snapshot,
        0,
        moments,
        owned,
        recorded=Recorded(device="virtual", alloc_conf=CONF),
        runner=(__file__, "run_steps"),
        compute_capability=(8, 0),
        torch_version="2.15",
        batch=batch,
    )
    return trace, stats


def test_a_replay_of_real_steps_has_their_peaks():
    """Every allocation is there, in its step; so the simulated allocator counts what the real one did."""
    trace, stats = measured(64)
    run = run_on(trace, None, "2.15", CONF)
    assert run.allocated_peak_bytes == stats["allocated_bytes.all.peak"]
    assert run.reserved_peak_bytes == stats["reserved_bytes.all.peak"]
    assert len(run.steps) == trace.steps == 3
    assert run.steps[0].allocated_start_bytes < run.steps[1].allocated_start_bytes == run.steps[2].allocated_start_bytes


def test_lines_and_phases_come_from_the_stacks():
    """The user's lines, and what was allocated with no stack of the runner's is the backward's."""
    trace, _ = measured(64)
    phases = {site.phase for site in trace.sites}
    assert {"setup", "forward", "optimizer"} <= phases
    assert any(site.function == "run_steps" for site in trace.sites)


def test_another_batch_size_is_scaled_from_two():
    """Below, between and above what was measured: the peaks that such steps really have."""
    one, other = measured(64)[0], measured(128)[0]
    for batch in (32, 96, 512):
        _, stats = measured(batch)
        run = run_on(scaled(one, other, batch), None, "2.15", CONF)
        assert run.allocated_peak_bytes == stats["allocated_bytes.all.peak"]
        assert run.reserved_peak_bytes == stats["reserved_bytes.all.peak"]


def test_what_only_one_batch_size_allocates_stays_as_it_is():
    """Scratch that a kernel takes from some size on: the rest is in step again behind it."""
    one, other = measured(64)[0], measured(128)[0]
    block = len(other.owners)
    middle = len(other.events) // 2
    scratch = [Event(Kind.ALLOC, block, 4096, 0, 0), Event(Kind.FREE, block, 0, 0, 0)]
    events = [*other.events[:middle], *scratch, *other.events[middle:]]
    longer = replace(other, events=events, owners=[*other.owners, "temporaries"])
    found = scaled(one, longer, 512)
    sizes = {event.block: event.nbytes for event in found.events if event.kind == Kind.ALLOC}
    plain = {event.block: event.nbytes for event in scaled(one, other, 512).events if event.kind == Kind.ALLOC}
    assert sizes.pop(block) == 4096
    assert sizes == plain


def test_steps_with_little_in_common_are_not_scaled():
    """Two programs by one name: no line goes through them."""
    trace, _ = measured(64)
    grown = [event._replace(nbytes=event.nbytes * 7) for event in trace.events]
    with pytest.raises(MemGuardError, match="too differently"):
        scaled(trace, replace(trace, events=grown, batch=128), 256)


def test_a_history_that_forgot_its_beginning_is_refused():
    """A ring that was too small holds other allocations than the counters say."""
    with pytest.raises(MemGuardError, match="more often than can be recorded"):
        trace_of_history(
            snapshot_of({"segments": [], "device_traces": [[]]}),
            0,
            [Moment(5, 0), Moment(9, 2)],
            [],
            recorded=Recorded(device="virtual", alloc_conf=CONF),
            runner=(__file__, "run_steps"),
            compute_capability=(8, 0),
            torch_version="2.15",
            batch=None,
        )


@pytest.mark.parametrize(
    ("device", "conf", "said", "exact"),
    [
        ("24GiB", "", "are those that virtual took", False),
        ("virtual", "", "the settings that were measured", True),
        ("virtual", "expandable_segments:True", "other settings of the allocator", False),
    ],
)
def test_a_replay_is_exact_only_where_it_was_measured(device, conf, said, exact):
    """Another GPU may take other kernels: then there is a range, and it says why."""
    trace, _ = measured(64)
    card = find_card("24GiB")
    card = card if device == "24GiB" else replace(card, name=device)
    found = judge(trace, card=card, torch_version="2.15", alloc_conf=conf)
    assert said in found.range_sources[0]
    assert (found.reserved_peak_bytes_range == (found.reserved_peak_bytes,) * 2) is exact
    assert found.source == "replayed"


def as_measured(batch, takes_batch=True):
    trace, stats = measured(batch)
    return Measured(
        batch=batch,
        takes_batch=takes_batch,
        device="virtual",
        torch_version="2.15",
        steps=(),
        allocated_peak_bytes=stats["allocated_bytes.all.peak"],
        reserved_peak_bytes=stats["reserved_bytes.all.peak"],
        num_alloc_retries=0,
        outside_bytes=0,
        trace=trace,
    )


def test_the_answer_says_what_is_measured_replayed_and_scaled(monkeypatch):
    """Two batch sizes ran; cards are replayed, other batch sizes scaled, and a larger one is searched."""
    monkeypatch.setattr(from_file, "_measured", lambda *_: [as_measured(128), as_measured(64)])
    found = forecast_target("train.py:make", batch=128, measure=True, device="1GiB", cards=["t4"])
    assert [one.batch for one in found.measured] == [128, 64]
    assert found.measured[0].replayed_reserved_peak_bytes == found.measured[0].reserved_peak_bytes
    assert {row.batch: row.source for row in found.table} == {
        32: "scaled",
        64: "replayed",
        128: "replayed",
        256: "scaled",
        512: "scaled",
    }
    assert found.largest_batch > 128
    text = str(found)
    assert "Measured on virtual, 0 steps at batch 128" in text
    assert "replayed: the same." in text
    assert "measured: batch 32, batch 256, batch 512, the largest batch." in text


def test_one_batch_size_alone_is_replayed_and_no_other_told(monkeypatch):
    """The step takes no batch: settings and cards can be asked for, other sizes cannot."""
    monkeypatch.setattr(from_file, "_measured", lambda *_: [as_measured(64, takes_batch=False)])
    found = forecast_target("train.py:make", batch=64, measure=True, device="1GiB", suggest=True)
    assert [row.batch for row in found.table] == [64]
    assert found.largest_batch is None
    assert "needs two that were measured" in found.notes[-1]


def test_several_processes_are_not_measured():
    """One process runs on one GPU."""
    with pytest.raises(MemGuardError, match="--nproc is for several"):
        forecast_target("train.py:make", measure=True, nproc=8)


@pytest.mark.parametrize(("addresses", "falling"), [([1, 2, 3], False), ([9, 8, 7, 8, 6], True), ([], False)])
def test_a_history_tells_whether_addresses_fall(addresses, falling):
    """By most of its segments, since memory that was given back is handed out again."""
    history = [TraceEntry("segment_alloc", address, 1, 0, None, None, None, ()) for address in addresses]
    assert falls(history) is falling
