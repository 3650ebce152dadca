"""Other processes and other Trainers: workers forked and spawned, a training inside a training."""

from __future__ import annotations

import os
import random
import types
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

import memguard
from memguard.recording.reader import Recording, find_recordings
from tests.chaos.training import Numbers, assert_same, batches, first_lines, net, seed, unguarded, watched, weights

pytestmark = pytest.mark.filterwarnings("ignore")


class Augmented(Dataset[Any]):
    """Draws random numbers in the worker, and calls a model there."""

    def __init__(self, model: torch.nn.Module) -> None:
        self.model = model

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> Any:
        with torch.no_grad():
            known = self.model(torch.ones(1, 8))[0]
        return torch.randn(8) + random.random() + known.sum(), torch.tensor(index % 4)


def train_with_workers(guarding: Any, context: str) -> Numbers:
    """The dataset carries the guarded model into its workers."""
    seed()
    model = net().eval()
    student = net()
    optimizer = torch.optim.SGD(student.parameters(), lr=0.1)
    numbers: Numbers = []
    with guarding([model, student], optimizer) as guard:
        loader: Any = DataLoader(
            Augmented(model),
            batch_size=4,
            num_workers=1,
            multiprocessing_context=context,
            generator=torch.Generator().manual_seed(3),
        )
        for x, y in guard.batches(loader) if guard is not None else loader:
            loss = torch.nn.functional.cross_entropy(student(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            numbers.append(loss.detach().clone())
    return [*numbers, *weights(student)]


@pytest.mark.parametrize(("context", "device"), [("fork", "cpu"), ("fork", "virtual:1GiB"), ("spawn", "cpu")])
def test_workers_of_a_data_loader(context: str, device: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The model goes into the workers, forked or pickled; they draw what they would, and write nothing of ours."""
    truth = train_with_workers(unguarded, context)
    assert_same(train_with_workers(watched(tmp_path, device=device), context), truth)
    assert first_lines(caplog.records) == []
    assert len(Recording.open(find_recordings(tmp_path)[0])) == 2


def test_a_forked_child_trains_and_ends_the_guard(tmp_path: Path) -> None:
    """A child of a plain fork trains the guarded model, closes the guard and leaves the parent's files alone."""
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with memguard.watch(model, optimizer, logdir=tmp_path, quiet=True, device="cpu") as guard:
        for x, y in batches(3):
            torch.nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            child = os.fork()
        if child == 0:
            code = 1
            try:
                for x, y in batches(3):
                    torch.nn.functional.cross_entropy(model(x), y).backward()
                    optimizer.step()
                model.eval()
                guard.close()
                memguard.wrap(net(), logdir=tmp_path, quiet=True)
                code = 0 if model(x).requires_grad else 2
            finally:
                os._exit(code)
        assert os.waitpid(child, 0)[1] == 0
        assert len(guard.records) == 3
    recordings = [Recording.open(path) for path in find_recordings(tmp_path)]
    assert len(recordings[0]) == 3
    assert recordings[0].end is not None


def nested_fit(folder: Path, make: Any) -> Numbers:
    """A Trainer in the training step of another one, and a fit again of the inner model after it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pytest.importorskip("lightning.pytorch")
        import lightning.pytorch as package

        from tests.integrations.lightning_modules import classifier, loader

    def trainer() -> Any:
        return package.Trainer(
            max_epochs=1, accelerator="cpu", default_root_dir=folder, logger=False, enable_progress_bar=False,
            enable_model_summary=False, enable_checkpointing=False, callbacks=make(), limit_train_batches=2,
        )  # fmt: skip

    seed()
    inner, outer = classifier(package), classifier(package)
    step = outer.training_step

    def training_step(self: Any, batch: Any, batch_idx: int) -> torch.Tensor:
        if batch_idx == 1:
            trainer().fit(inner, loader(8))
            trainer().validate(inner, loader(8), verbose=False)
        return step(batch, batch_idx)

    outer.training_step = types.MethodType(training_step, outer)
    trainer().fit(outer, loader(12), loader(8))
    with pytest.raises(ZeroDivisionError):
        outer.training_step = types.MethodType(lambda self, batch, batch_idx: 1 // 0, outer)
        trainer().fit(outer, loader(12))
    trainer().fit(inner, loader(8), loader(8))
    return [torch.tensor(inner.losses), torch.tensor(outer.losses), *weights(inner), *weights(outer)]


def test_trainers_inside_trainers(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Each has its guard; all end as they would, one of them with an exception of the user's."""
    truth = nested_fit(tmp_path, list)
    guarded = nested_fit(tmp_path, lambda: [memguard.MemGuard(logdir=tmp_path, quiet=True, device="cpu")] * 2)
    assert_same(guarded, truth)
    assert first_lines(caplog.records) == []


def test_trainers_inside_trainers_share_one_callback(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The same MemGuard is entered again while it is in use: the numbers are the same, and nothing of it fails."""
    truth = nested_fit(tmp_path, list)
    shared = memguard.MemGuard(logdir=tmp_path, quiet=True, device="cpu")
    assert_same(nested_fit(tmp_path, lambda: [shared]), truth)
    assert first_lines(caplog.records) == []
    assert all(Recording.open(path).end is not None for path in find_recordings(tmp_path))
