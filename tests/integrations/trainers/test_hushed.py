"""The Trainer calls only those hooks of the callback that have something to do."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("lightning.pytorch")

import lightning.pytorch as lightning
import torch

import memguard
from memguard.integrations.trainers.trainer import _PAUSED, _UNUSED
from tests.integrations.lightning_modules import classifier, loader

BATCHES = 90
pytestmark = pytest.mark.filterwarnings("ignore")  # Lightning's own


class Spans(lightning.profilers.Profiler):  # type: ignore[misc]
    """Counts the spans that the Trainer opens around hooks."""

    def __init__(self) -> None:
        super().__init__()
        self.names: Counter[str] = Counter()

    def start(self, action_name: str) -> None:
        self.names[action_name] += 1

    def stop(self, action_name: str) -> None:
        pass


def spans_of(callback: Any, folder: Path, batches: int = BATCHES) -> dict[str, int]:
    """How often the Trainer opened a span for each hook of a callback."""
    spans = Spans()
    trainer = lightning.Trainer(
        accelerator="cpu",
        max_epochs=1,
        callbacks=[callback],
        default_root_dir=folder,
        profiler=spans,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(classifier(lightning), loader(batches, 1), loader(1, 1))
    prefix = f"[Callback]{callback.state_key}."
    return {name.removeprefix(prefix): count for name, count in spans.names.items() if name.startswith(prefix)}


def test_a_batch_that_nobody_looks_at_has_two_hooks(tmp_path: Path) -> None:
    """Hooks that do nothing are not called; those around the backward only in batches that are looked at."""
    callback = memguard.MemGuard(quiet=True, device="cpu")  # with "auto" a CUDA build goes on looking for a GPU
    spans = spans_of(callback, tmp_path)
    assert not set(_UNUSED) & set(spans)
    assert 64 <= spans["on_before_backward"] == spans["on_after_backward"] < 70
    assert spans["on_train_batch_start"] == spans["on_train_batch_end"] == BATCHES
    assert not {*_UNUSED, *_PAUSED} & set(vars(callback)), "all hooks are there again"


def test_a_cuda_build_without_a_gpu_comes_to_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With "auto" it looks for a GPU in every batch at first; then it takes the host to be the device."""
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    monkeypatch.setattr(torch.backends.cuda, "is_built", lambda: True)
    spans = spans_of(memguard.MemGuard(quiet=True), tmp_path, batches=300)
    assert 64 <= spans["on_before_backward"] == spans["on_after_backward"] < 200


def test_hooks_of_a_subclass_are_called(tmp_path: Path) -> None:
    """What a user adds to the callback runs in every batch."""
    seen: Counter[str] = Counter()

    class Mine(type(memguard.MemGuard(quiet=True))):  # type: ignore[misc]
        def on_before_zero_grad(self, *args: Any) -> None:
            seen["zero_grad"] += 1

        def on_after_backward(self, *args: Any) -> None:
            super().on_after_backward(*args)
            seen["backward"] += 1

    spans_of(Mine(quiet=True), tmp_path)
    assert seen == {"zero_grad": BATCHES, "backward": BATCHES}
