"""Every method behind the Lightning callback raises, one at a time: the Trainer never knows."""

from __future__ import annotations

import random
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

import memguard
from memguard.integrations.lightning import MemGuardMixin
from memguard.integrations.loop.hooks import OpenForwards
from memguard.integrations.never_raises import shielded
from memguard.integrations.progress import ProgressText
from memguard.integrations.session import Session
from memguard.integrations.trainers.module_hooks import ModuleHooks
from tests.chaos.test_hooks_raising import BY_NAME, DEFENCE, TAKES_AWAY, ChaosError, methods
from tests.chaos.training import Truth, assert_same, first_lines, random_state, weights
from tests.integrations.lightning_modules import classifier, loader

pytestmark = pytest.mark.filterwarnings("ignore")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    package = pytest.importorskip("lightning.pytorch")


def fit(logdir: Path, callbacks: list[Any]) -> list[torch.Tensor]:
    torch.manual_seed(0)
    random.seed(0)
    model = classifier(package)
    trainer = package.Trainer(
        max_epochs=1,
        accelerator="cpu",
        default_root_dir=logdir,
        callbacks=callbacks,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        enable_checkpointing=False,
        num_sanity_val_steps=1,
    )
    trainer.fit(model, loader(12), loader(8))
    return [torch.tensor(model.losses), *weights(model), *random_state()]


SPELT_OUT = {"on_train_batch_start", "on_before_backward", "on_after_backward", "on_train_batch_end"}
"""Hooks of every batch, which spell out the shield; what they call is among the cases."""


@pytest.fixture(scope="module")
def truth(tmp_path_factory: pytest.TempPathFactory) -> Truth:
    return Truth(fit(tmp_path_factory.getbasetemp(), []))


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        case
        for case in methods(MemGuardMixin, ModuleHooks, Session, OpenForwards, ProgressText)
        if case.values[1] not in BY_NAME - {"close"} and case.values[1] != "setup"
    ],
)
def test_a_trainer_never_knows(
    kind: type,
    name: str,
    truth: Truth,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Whatever method fails: the numbers are the same, and the log has a line for each part, once."""
    calls: list[tuple[Any, Any]] = []

    def chaos(*args: Any, **kwargs: Any) -> None:
        if name in TAKES_AWAY | {"_close", "teardown"}:
            calls.append((args, kwargs))
        raise ChaosError("planted")

    is_shielded = hasattr(vars(kind)[name], "__wrapped__") or name in SPELT_OUT
    monkeypatch.setattr(kind, name, shielded(chaos) if is_shielded else chaos)
    numbers = fit(tmp_path, [memguard.MemGuard(logdir=tmp_path, quiet=True, device="cpu")])
    monkeypatch.undo()
    for args, kwargs in calls:
        getattr(kind, name)(*args, **kwargs)
    assert_same(numbers, truth)
    lines = first_lines(caplog.records)
    assert len(lines) == len(set(lines)) or name in DEFENCE, lines
