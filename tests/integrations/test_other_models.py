"""Models that no front door was given: a teacher whose graph is for nothing is found by each door, and left alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import memguard
from memguard.records.stats import Stage
from tests.hooks import hooks_everywhere, hooks_on

pytestmark = pytest.mark.usefixtures("nothing_compiled")
DEVICE = "virtual:64MiB"
BATCHES = 24


@pytest.fixture
def nothing_compiled() -> None:
    """Other tests of the process may have compiled something: then nothing is looked for."""
    torch.compiler.reset()


def network(width: int = 256) -> nn.Module:
    return nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.Linear(width, 10))


def distil(student: nn.Module, target: Callable[[torch.Tensor], torch.Tensor]) -> None:
    """A plain loop; the target is made before the student is called."""
    optimizer = torch.optim.SGD(student.parameters(), lr=0.1)
    for _ in range(BATCHES):
        x = torch.randn(256, 64)
        wanted = target(x)
        loss = (student(x) - wanted).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


def by_watch(student: nn.Module, target: Callable[[torch.Tensor], torch.Tensor], folder: Path) -> Any:
    with memguard.watch(student, device=DEVICE, logdir=folder, quiet=True) as guard:
        distil(student, target)
    return guard.findings


def by_wrap(student: nn.Module, target: Callable[[torch.Tensor], torch.Tensor], folder: Path) -> Any:
    memguard.wrap(student, device=DEVICE, logdir=folder, quiet=True)
    guard: Any = memguard.current()
    distil(student, target)
    memguard.unwrap(student)
    return guard.findings


def by_lightning(student: nn.Module, target: Callable[[torch.Tensor], torch.Tensor], folder: Path) -> Any:
    lightning = pytest.importorskip("lightning.pytorch")

    class Distilled(lightning.LightningModule):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.student = student

        def training_step(self, batch: torch.Tensor, index: int) -> torch.Tensor:
            loss: torch.Tensor = (self.student(batch) - target(batch)).square().mean()
            return loss

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    guard = memguard.MemGuard(device=DEVICE, logdir=folder)
    trainer = lightning.Trainer(
        max_epochs=1, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, callbacks=[guard], default_root_dir=folder,
    )  # fmt: skip
    trainer.fit(Distilled(), torch.utils.data.DataLoader(torch.randn(BATCHES * 256, 64), batch_size=256))  # type: ignore[arg-type]
    return guard.findings


def by_huggingface(student: nn.Module, target: Callable[[torch.Tensor], torch.Tensor], folder: Path) -> Any:
    pytest.importorskip("transformers")
    from transformers import Trainer

    from memguard.integrations.huggingface import MemGuardCallback
    from tests.integrations.huggingface_trainers import Classifier, trainer

    class Distils(Trainer):  # type: ignore[misc, unused-ignore]
        def compute_loss(self, model: nn.Module, inputs: Any, *args: Any, **kwargs: Any) -> torch.Tensor:
            wanted = target(torch.randn(256, 64)).mean()
            loss: torch.Tensor = (model(**inputs)["loss"] - wanted).square()
            return loss

    callback = MemGuardCallback(device=DEVICE, logdir=folder)
    trainer(folder, callback, kind=Distils, model=Classifier(), max_steps=BATCHES).train()
    return callback.result().findings


DOORS = [by_watch, by_wrap, by_lightning, by_huggingface]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("door", DOORS, ids=lambda door: door.__name__)
def test_a_teacher_nobody_handed_over_is_found(door: Callable[..., Any], tmp_path: Path) -> None:
    """Its graphs are for nothing: MG202 at the line that calls it, through every door."""
    teacher = network().eval()

    def target(x: torch.Tensor) -> torch.Tensor:
        return teacher(x).detach()  # the fault

    found = [finding for finding in door(network(), target, tmp_path) if finding.code == "MG202"]
    assert [(finding.holder, finding.line) for finding in found] == [("teacher", target.__code__.co_firstlineno + 1)]
    assert hooks_on(teacher) == []
    assert hooks_everywhere() == []


def test_a_network_that_a_loss_goes_through_is_nothing_to_tell(tmp_path: Path) -> None:
    """A frozen network of features: backward runs through its graph."""
    student = nn.Linear(64, 64)
    features = network().eval().requires_grad_(False)
    optimizer = torch.optim.SGD(student.parameters(), lr=0.1)
    with memguard.watch(student, device=DEVICE, logdir=tmp_path, quiet=True) as guard:
        for _ in range(BATCHES):
            x = torch.randn(256, 64)
            with torch.no_grad():
                wanted = features(x)
            (features(student(x)) - wanted).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
    assert guard.findings == []
    assert sum(record.stage is Stage.TRAIN for record in guard.records) == BATCHES


def test_the_validation_guard_leaves_other_models_alone(tmp_path: Path) -> None:
    """Only what was handed over may be run without a graph: weights of another model are adapted in eval mode here."""
    model, other = network(), network().eval()
    with memguard.watch(model, device="cpu", logdir=tmp_path, quiet=True):
        for _ in range(4):
            other(torch.randn(4, 64)).sum().backward()
    assert all(parameter.grad is not None for parameter in other.parameters())


def test_what_is_compiled_sees_no_hooks_on_all_modules(tmp_path: Path) -> None:
    """With a compiled model nothing is looked for."""
    model = torch.compile(network(), backend="eager")
    with memguard.watch(model, device="cpu", logdir=tmp_path, quiet=True):
        assert hooks_everywhere() == []


def test_ordinary_batches_go_without_hooks_on_all_modules(tmp_path: Path) -> None:
    """After the first batches they are there only where a batch is looked at."""
    model = network(8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    seen = []
    with memguard.watch(model, device="cpu", logdir=tmp_path, quiet=True):
        for _ in range(400):
            model(torch.randn(4, 64)).sum().backward()
            seen.append(len(hooks_everywhere()) > 0)
            optimizer.step()
            optimizer.zero_grad()
    assert all(seen[1:32])
    assert sum(seen[200:]) < 40
