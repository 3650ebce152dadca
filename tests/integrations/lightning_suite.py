"""What a project with Lightning tests of its Trainers: nothing here knows of memguard.

`test_injection` runs it twice, without and with MEMGUARD=1, and compares what was remembered.
"""

from __future__ import annotations

import copy
import json
import os
import pickle
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import lightning.pytorch as pl
import pytest
import torch
from lightning.pytorch.callbacks import (
    BasePredictionWriter,
    BatchSizeFinder,
    DeviceStatsMonitor,
    EarlyStopping,
    GradientAccumulationScheduler,
    LearningRateFinder,
    LearningRateMonitor,
    ModelCheckpoint,
    OnExceptionCheckpoint,
    StochasticWeightAveraging,
    Timer,
    TQDMProgressBar,
)
from lightning.pytorch.demos.boring_classes import BoringDataModule, BoringModel, ManualOptimBoringModel
from lightning.pytorch.loggers import CSVLogger, TensorBoardLogger
from lightning.pytorch.utilities import CombinedLoader
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

pytestmark = pytest.mark.filterwarnings("ignore")

CALLS = [
    f"on_{stage}_{what}"
    for stage in ("train", "validation", "test", "predict")
    for what in ("start", "epoch_start", "batch_start", "batch_end", "epoch_end", "end")
] + ["setup", "on_fit_start", "on_sanity_check_start", "on_save_checkpoint", "on_before_backward", "on_after_backward",
     "on_before_optimizer_step", "on_before_zero_grad", "on_fit_end", "on_exception", "teardown"]  # fmt: skip


class Losses(BoringModel):
    """Dropout, and its losses as numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Sequential(nn.Linear(32, 8), nn.Dropout(0.3), nn.Linear(8, 2))
        self.losses: list[float] = []
        self.batch_size = 2

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        output = super().training_step(batch, batch_idx)
        self.losses.append(output["loss"].item())
        self.log("loss", output["loss"], on_step=True, on_epoch=True)
        return output

    def validation_step(self, batch: Any, batch_idx: int) -> Any:
        output = super().validation_step(batch, batch_idx)
        self.log("right", output["x"])
        return output

    def train_dataloader(self) -> Any:
        return numbers(self.batch_size)


def numbers(batch_size: int = 2, count: int = 32) -> Any:
    return DataLoader(torch.randn(count, 32, generator=torch.Generator().manual_seed(2)), batch_size=batch_size)


@pytest.fixture(autouse=True)
def seeded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The same numbers in each test; afterwards it polices threads, variables and files, as Lightning's suite does."""
    monkeypatch.chdir(tmp_path)
    pl.seed_everything(1, verbose=False)
    threads, variables = set(threading.enumerate()), set(os.environ)
    yield
    left = [thread for thread in set(threading.enumerate()) - threads if "ThreadPool" not in thread.name]
    for thread in left:
        stop = getattr(thread, "stop", None) or getattr(thread, "exit", None)
        assert thread.daemon and callable(stop), f"a thread is left: {thread}"
        stop()
        assert not thread.is_alive()
    files = [path.relative_to(tmp_path) for path in sorted(tmp_path.rglob("*"))]
    own = [str(path) for path in files if not any(part.startswith("version_") for part in path.parts[:-1])]
    remember(sorted(set(os.environ) - variables), own)


def trainer(*callbacks: Any, **settings: Any) -> pl.Trainer:
    defaults: dict[str, Any] = {
        "accelerator": "cpu", "devices": 1, "max_epochs": 2, "enable_progress_bar": False, "logger": False,
        "enable_model_summary": False, "enable_checkpointing": False, "default_root_dir": Path.cwd(),
    }  # fmt: skip
    return pl.Trainer(callbacks=list(callbacks), **{**defaults, **settings})


def remember(*values: Any, request: list[int] = [0]) -> None:  # noqa: B006 - counts within a process
    """Values that must not change when something rides along."""
    request[0] += 1
    if path := os.environ.get("SUITE_RESULTS"):
        with open(path, "a") as file:
            test = os.environ["PYTEST_CURRENT_TEST"].partition(" ")[0].partition("::")[2]
            file.write(json.dumps([test, *values], default=float) + "\n")


def weights(model: nn.Module) -> list[Any]:
    return [parameter.tolist() for parameter in model.parameters()]


@pytest.mark.parametrize(
    "settings",
    [
        {}, {"accumulate_grad_batches": 3}, {"gradient_clip_val": 0.1}, {"limit_train_batches": 0.5},
        {"overfit_batches": 2}, {"max_steps": 5, "max_epochs": -1}, {"val_check_interval": 4},
        {"precision": "bf16-mixed"}, {"check_val_every_n_epoch": 2}, {"num_sanity_val_steps": 0},
        {"limit_val_batches": 0},
        {"reload_dataloaders_every_n_epochs": 1}, {"deterministic": True}, {"fast_dev_run": 3}, {"profiler": "simple"},
        {"inference_mode": False}, {"detect_anomaly": True}, {"barebones": True, "logger": None},
    ],
    ids=lambda settings: "-".join(f"{name}={value}" for name, value in settings.items()) or "plain",
)  # fmt: skip
def test_fit(settings: dict[str, Any]) -> None:
    model, run = Losses(), trainer(**settings)
    run.fit(model)
    metrics = {name: value.item() for name, value in run.callback_metrics.items()}
    remember(model.losses, weights(model), metrics, run.global_step, run.current_epoch)


def test_hooks_are_called_in_their_order() -> None:
    called: list[str] = []

    class Spy(pl.Callback):
        pass

    for name in CALLS:
        setattr(Spy, name, lambda self, *args, name=name, **kwargs: called.append(name))
    run = trainer(Spy(), limit_train_batches=2, limit_val_batches=1, limit_test_batches=1, limit_predict_batches=1,
                  enable_checkpointing=True)  # fmt: skip
    model = Losses()
    run.fit(model)
    run.validate(model, verbose=False)
    run.test(model, verbose=False)
    run.predict(model)
    remember(called)


def test_loggers_get_the_same_rows() -> None:
    csv = CSVLogger(Path.cwd(), name="csv")
    board = TensorBoardLogger(Path.cwd(), name="board")
    trainer(LearningRateMonitor(), logger=[csv, board], log_every_n_steps=2).fit(Scheduled())
    rows = Path(csv.log_dir, "metrics.csv").read_text()
    assert "lr-SGD" in rows and list(Path(board.log_dir).glob("events*"))
    remember(rows)


class Scheduled(Losses):
    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.SGD(self.parameters(), lr=0.1)
        return [optimizer], [{"scheduler": torch.optim.lr_scheduler.StepLR(optimizer, 1), "interval": "step"}]


def test_checkpoints_hold_the_same(tmp_path: Path) -> None:
    keeper = ModelCheckpoint(tmp_path / "kept", monitor="right", save_last=True, save_top_k=2, every_n_epochs=1)
    model = Losses()
    trainer(keeper, enable_checkpointing=True, max_epochs=3).fit(model)
    state = torch.load(keeper.last_model_path, weights_only=False)
    assert set(state["callbacks"]) == {keeper.state_key}
    remember(sorted(path.name for path in (tmp_path / "kept").iterdir()), sorted(state), state["global_step"])


def test_resume_goes_on_bit_for_bit(tmp_path: Path) -> None:
    first = trainer(max_epochs=1)
    first.fit(Losses())
    first.save_checkpoint(tmp_path / "one.ckpt")
    model = Losses()
    trainer(max_epochs=3).fit(model, ckpt_path=tmp_path / "one.ckpt", weights_only=False)
    again = Losses.load_from_checkpoint(tmp_path / "one.ckpt", weights_only=False)
    remember(model.losses, weights(model), weights(again))


def test_early_stopping_and_timer() -> None:
    run = trainer(EarlyStopping("right", patience=1, min_delta=10.0), Timer(duration={"minutes": 5}), max_epochs=10)
    run.fit(Losses())
    assert run.current_epoch < 10
    remember(run.current_epoch, run.global_step)


def test_weight_averaging_and_accumulation_by_epoch() -> None:
    model = Losses()
    trainer(StochasticWeightAveraging(swa_lrs=0.01, swa_epoch_start=1), max_epochs=4).fit(model)
    other = Losses()
    trainer(GradientAccumulationScheduler({0: 2, 1: 4})).fit(other)
    remember(model.losses, weights(model), other.losses)


def test_the_tuner_finds_the_same() -> None:
    model = Losses()
    trainer(BatchSizeFinder(max_trials=3, steps_per_trial=2), max_epochs=1).fit(model)

    class Rate(Losses):
        lr = 0.1

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=self.lr)

    rated = Rate()
    trainer(LearningRateFinder(num_training_steps=12), max_epochs=1).fit(rated)
    remember(model.batch_size, model.losses, rated.lr, rated.losses)


def test_manual_optimization() -> None:
    model = ManualOptimBoringModel()
    trainer().fit(model)
    remember(weights(model))


def test_two_optimizers_toggled() -> None:
    class Toggled(Losses):
        def __init__(self) -> None:
            super().__init__()
            self.automatic_optimization = False

        def training_step(self, batch: Any, batch_idx: int) -> None:
            for number, optimizer in enumerate(self.optimizers()):
                self.toggle_optimizer(optimizer)
                loss = self.loss(self.layer(batch))
                optimizer.zero_grad()
                self.manual_backward(loss, retain_graph=number == 0)
                optimizer.step()
                self.untoggle_optimizer(optimizer)
                self.losses.append(loss.item())

        def configure_optimizers(self) -> Any:
            return [torch.optim.Adam(self.layer[part].parameters()) for part in (0, 2)]

    model = Toggled()
    trainer().fit(model)
    remember(model.losses)


def test_lbfgs_closure() -> None:
    class Closure(Losses):
        def configure_optimizers(self) -> Any:
            return torch.optim.LBFGS(self.parameters(), lr=0.1, max_iter=3)

    model = Closure()
    trainer(max_epochs=1).fit(model)
    remember(model.losses)


def test_evaluation_and_prediction_return_the_same(tmp_path: Path) -> None:
    model, run = Losses(), trainer(default_root_dir=tmp_path)
    validated = run.validate(model, verbose=False)
    tested = run.test(model, verbose=False)
    predicted = run.predict(model, numbers())
    assert all(not tensor.requires_grad for tensor in predicted)
    remember(validated, tested, [tensor.tolist() for tensor in predicted])


def test_predictions_written_by_a_callback() -> None:
    written: list[int] = []

    class Writer(BasePredictionWriter):
        def write_on_batch_end(self, trainer: Any, module: Any, prediction: Any, *args: Any) -> None:
            written.append(len(prediction))

    trainer(Writer("batch")).predict(Losses(), numbers(5), return_predictions=False)
    remember(written)


def test_a_datamodule_and_several_loaders() -> None:
    trainer().fit(Losses(), datamodule=BoringDataModule())

    class Several(Losses):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            return super().training_step(torch.cat(list(batch.values())), batch_idx)

        def validation_step(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> Any:
            self.log("right", self.loss(self.layer(batch)))

    model = Several()
    loaders = CombinedLoader({"a": numbers(), "b": numbers(4)}, mode="max_size_cycle")
    run = trainer()
    run.fit(model, loaders, [numbers(2, 4), numbers(2, 6)])
    remember(model.losses, sorted(run.callback_metrics))


def test_an_endless_stream() -> None:
    class Stream(IterableDataset):  # type: ignore[type-arg]
        def __iter__(self) -> Any:
            while True:
                yield torch.randn(32)

    model = Losses()
    trainer(max_steps=6, max_epochs=-1, val_check_interval=3).fit(model, DataLoader(Stream(), batch_size=2))
    remember(model.losses)


def test_a_step_that_takes_the_iterator() -> None:
    class Taking(Losses):
        def training_step(self, dataloader_iter: Any) -> Any:
            batch, _, _ = next(dataloader_iter)
            loss = self.loss(self.layer(batch))
            self.losses.append(loss.item())
            return loss

    model = Taking()
    trainer(limit_val_batches=0).fit(model)
    remember(model.losses)


def test_a_skipped_step_and_a_stop_from_within() -> None:
    class Skips(Losses):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            self.trainer.should_stop = self.current_epoch == 1
            return super().training_step(batch, batch_idx) if batch_idx % 3 else None

        def on_train_batch_start(self, batch: Any, batch_idx: int) -> Any:
            return -1 if batch_idx == 8 else None

    model, run = Skips(), trainer(max_epochs=5)
    run.fit(model)
    remember(model.losses, run.current_epoch)


@pytest.mark.parametrize("hook", ["training_step", "validation_step", "on_train_batch_end", "configure_optimizers"])
def test_an_exception_comes_out_as_it_is(hook: str, tmp_path: Path) -> None:
    error = ArithmeticError(hook)
    model = Losses()
    setattr(model, hook, lambda *args, **kwargs: (_ for _ in ()).throw(error))
    saver = OnExceptionCheckpoint(tmp_path)
    run = trainer(saver, enable_checkpointing=True)
    with pytest.raises(ArithmeticError) as caught:
        run.fit(model)
    assert caught.value is error and run.state.status == "interrupted"
    remember(sorted(path.name for path in tmp_path.iterdir() if path.suffix == ".ckpt"))


def test_an_interrupt_ends_the_program() -> None:
    class Interrupted(Losses):
        def on_train_batch_end(self, *args: Any) -> None:
            raise KeyboardInterrupt

    run = trainer()
    with pytest.raises((KeyboardInterrupt, SystemExit)) as caught:
        run.fit(Interrupted())
    remember(caught.type.__name__, run.interrupted if hasattr(run, "interrupted") else None)


def test_trainers_pickle_and_copy() -> None:
    run, model = trainer(), Losses()
    run.fit(model)
    twin = pickle.loads(pickle.dumps(run))
    assert twin.global_step == run.global_step and copy.deepcopy(model).losses == model.losses
    copy.deepcopy(run)
    remember(run.global_step)


def test_fit_again_and_evaluate_between() -> None:
    model, run = Losses(), trainer(max_epochs=1)
    run.fit(model)
    run.validate(model, verbose=False)
    run.fit_loop.max_epochs = 3
    run.fit(model)
    run.test(model, verbose=False)
    remember(model.losses, run.global_step)


def test_a_trainer_in_a_trainer() -> None:
    inner = Losses()

    class Outer(Losses):
        def on_train_epoch_end(self) -> None:
            trainer(max_epochs=1, limit_train_batches=2).fit(inner)

    model = Outer()
    trainer().fit(model)
    remember(model.losses, inner.losses)


def test_device_statistics_beside_it() -> None:
    logger = CSVLogger(Path.cwd())
    model = Losses()
    trainer(DeviceStatsMonitor(cpu_stats=True), logger=logger, log_every_n_steps=4).fit(model)
    rows = Path(logger.log_dir, "metrics.csv").read_text().splitlines()
    remember(model.losses, len(rows))


def test_the_directory_holds_what_lightning_writes(tmp_path: Path) -> None:
    trainer(logger=CSVLogger(tmp_path), enable_checkpointing=True).fit(Losses())
    assert sorted(path.name for path in tmp_path.rglob("*") if path.is_file()) == [
        "epoch=1-step=32.ckpt",
        "metrics.csv",
    ]


def test_a_logger_is_asked_for_its_directory_by_the_trainer_alone() -> None:
    class Asked(TensorBoardLogger):
        times = 0

        @property
        def log_dir(self) -> str:
            Asked.times += 1
            return super().log_dir

    loop = trainer(logger=Asked(Path.cwd()), max_steps=2)
    with mock.patch.object(loop.strategy, "broadcast", wraps=loop.strategy.broadcast) as told:
        loop.fit(Losses())
    remember(Asked.times, told.call_count)


@pytest.mark.parametrize("top", [-1, 0, 1])
def test_nothing_but_checkpoints_in_their_directory(top: int, recwarn: pytest.WarningsRecorder) -> None:
    keeper = ModelCheckpoint(Path.cwd(), filename="{epoch}", save_top_k=top, save_last=True)
    trainer(keeper, enable_checkpointing=True).fit(Losses())
    remember(sorted(os.listdir()), [str(each.message) for each in recwarn if "not empty" in str(each.message)])


def test_the_clock_belongs_to_the_test() -> None:
    class Clocked(Losses):
        def on_train_batch_end(self, *args: Any) -> None:
            self.losses.append(time.perf_counter())

    model = Clocked()
    with mock.patch("time.perf_counter", side_effect=range(5)):
        trainer(max_steps=5).fit(model)
    remember(model.losses)


def test_what_is_printed_and_shown(capsys: pytest.CaptureFixture[str]) -> None:
    class Talks(Losses):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            self.print("training")
            self.log("shown", 2.0, prog_bar=True)
            return super().training_step(batch, batch_idx)

    bar = TQDMProgressBar()
    with mock.patch("builtins.print") as printed:
        silent = trainer(bar, enable_progress_bar=True, max_steps=2)
        silent.fit(Talks())
        bar.disable()
        trainer(max_steps=2).fit(Talks())
    remember([str(each.args) for each in printed.call_args_list], str(bar.train_progress_bar.postfix))
    with mock.patch.object(sys.stdout, "write"):
        capsys.readouterr()
    trainer(max_steps=2).fit(Losses())
    remember([text for text in capsys.readouterr() if "GiB" in text])


def test_parts_of_a_run() -> None:
    first = trainer()
    first._run_stage = mock.Mock()  # type: ignore[method-assign]
    first.fit(Losses())
    with mock.patch("lightning.pytorch.trainer.call._call_teardown_hook"):
        trainer(max_steps=2).fit(Losses())

    class Late(pl.Callback):
        def setup(self, *args: Any, **kwargs: Any) -> None:
            raise ValueError("late")

    with pytest.raises(ValueError, match="late"):
        trainer(Late()).fit(Losses())
    logger = mock.Mock(name="logger")
    trainer(logger=logger, max_steps=3, log_every_n_steps=1).fit(Losses())
    remember([len(each.kwargs["metrics"]) for each in logger.log_metrics.call_args_list])


def test_gradients_in_evaluation_where_they_are_asked_for() -> None:
    class Attributes(Losses):
        def validation_step(self, batch: Any, batch_idx: int) -> None:
            with torch.inference_mode(False), torch.enable_grad():
                batch = batch.clone().requires_grad_()
                self.layer(batch).sum().backward()
                self.losses.append(batch.grad.sum().item())

    model = Attributes()
    trainer().fit(model)
    remember(model.losses)


def test_a_metric_and_a_frozen_part() -> None:
    class Tuned(Losses):
        def on_fit_start(self) -> None:
            self.layer[0].requires_grad_(False)

        def train_dataloader(self) -> Any:
            return DataLoader(TensorDataset(torch.randn(16, 32)), batch_size=4)

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            return super().training_step(batch[0], batch_idx)

    model = Tuned()
    trainer().fit(model)
    remember(model.losses, weights(model))


@pytest.mark.parametrize("strategy", ["ddp_fork", "ddp_spawn"])
def test_two_processes(strategy: str) -> None:
    model = Losses()
    run = trainer(strategy=strategy, devices=2, max_epochs=1)
    run.fit(model)
    remember(weights(model), run.global_step)
