"""What looking costs is accounted for in a run, and so is what was done to make it cost less."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

import memguard
from memguard.evidence.sampling_budget import INTERVAL, MAX_INTERVAL, SamplingBudget


def train(model: nn.Module, batches: int) -> None:
    """A small loop."""
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for _ in range(batches):
        optimizer.zero_grad()
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()


def test_probes_and_recorder_share_one_account(tmp_path: Path) -> None:
    """The summary's seconds hold both, and what the recorder takes is paid from the probes' purse."""
    model = nn.Linear(4, 1)
    with memguard.watch(model, logdir=tmp_path, quiet=True, device="cpu") as guard:
        guard.session.probes.pace = pace = SamplingBudget(clock=lambda: 0.0)  # a purse that does not fill
        paid: list[float] = []
        pace.spend = paid.append  # type: ignore[method-assign]
        train(model, 40)
        probes = guard.session.probes.seconds
    assert guard.session.recorder.summary.overhead_seconds > probes > 0
    assert len(paid) > 60, "for each of 40 batches the probes pay and the recorder pays"
    assert min(paid) >= 0


def test_the_recorder_pays_where_no_probe_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without probes nothing but the recorder's own time is taken from the purse, and all of it."""
    monkeypatch.setattr("memguard.integrations.session.PROBES", ())
    model = nn.Linear(4, 1)
    with memguard.watch(model, logdir=tmp_path, quiet=True, device="cpu") as guard:
        paid: list[float] = []
        guard.session.probes.pace.spend = paid.append  # type: ignore[method-assign]
        train(model, 40)
        guard.session.account.settle()
        own = guard.session.recorder.overhead()["seconds"]
    assert 0 < sum(paid) == pytest.approx(own, rel=0.1)


def test_a_wider_interval_is_told_in_the_summary(tmp_path: Path) -> None:
    """With an empty purse looks become rarer, every batch keeps its record, and the summary says so."""
    model = nn.Linear(4, 1)
    with memguard.watch(model, logdir=tmp_path, quiet=True, device="cpu") as guard:
        guard.session.probes.pace = pace = SamplingBudget(clock=lambda: 0.0)
        pace.spend(1e9)
        train(model, 200)
        assert len(guard.records) >= 200
    assert INTERVAL < pace.interval <= MAX_INTERVAL
    assert any(f"1 in {pace.widest}" in note for note in guard.session.recorder.summary.notes)


def test_nothing_is_told_of_a_run_that_kept_to_its_share(tmp_path: Path) -> None:
    """Looks at the usual pace are no news: each batch costs a ten-thousandth of its time, on a clock of the test's."""
    model = nn.Linear(4, 1)
    batches = iter(range(1 << 30))
    with memguard.watch(model, logdir=tmp_path, quiet=True, device="cpu") as guard:
        guard.session.probes.pace = pace = SamplingBudget(clock=lambda: 0.1 * next(batches))
        spend = pace.spend
        pace.spend = lambda seconds: spend(1e-5)  # type: ignore[method-assign]
        train(model, 100)
    assert not [note for note in guard.session.recorder.summary.notes if "leak checks" in note]
