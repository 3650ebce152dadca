import copy
import gc
import importlib
import json
import logging
import pickle
import tempfile
import warnings
import weakref
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

import pytest
import torch

import memguard
from memguard.integrations.session import open_sessions
from memguard.recording.reader import Recording, find_recordings
from memguard.records.stats import Stage
from memguard.report.runs import load_run
from tests.hooks import hooks_inside, hooks_on
from tests.integrations.lightning_modules import classifier, loader, manual_gan

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(params=["lightning.pytorch", "pytorch_lightning"])
def package(request: pytest.FixtureRequest) -> ModuleType:
    logging.getLogger(request.param).setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return importlib.import_module(request.param)


def trainer(package: ModuleType, folder: Path, *callbacks: Any, **settings: Any) -> Any:
    defaults: dict[str, Any] = {
        "max_epochs": 2, "accelerator": "cpu", "default_root_dir": folder, "enable_progress_bar": False,
        "enable_model_summary": False, "logger": False, "enable_checkpointing": False, "callbacks": list(callbacks),
    }  # fmt: skip
    return package.Trainer(**{**defaults, **settings})


def train(package: ModuleType, folder: Path, *callbacks: Any, module: Any = classifier, **settings: Any) -> Any:
    package.seed_everything(0)
    model = module(package)
    validation = loader(12) if hasattr(model, "predict_step") else None
    trainer(package, folder, *callbacks, **settings).fit(model, loader(), validation)
    return model


def stages(records: list[memguard.BatchRecord]) -> dict[Stage, int]:
    return dict(Counter(record.stage for record in records))


def test_losses_are_the_same_bit_for_bit_over_200_steps(package: ModuleType, tmp_path: Path) -> None:
    """Dropout, validation every epoch, accumulation: every loss and weight equals those without memguard."""
    settings = {"max_epochs": 67, "accumulate_grad_batches": 2, "num_sanity_val_steps": 2}
    plain = train(package, tmp_path / "plain", **settings)
    guarded = train(package, tmp_path / "guarded", memguard.MemGuard(quiet=True), **settings)
    assert len(plain.losses) > 600
    assert guarded.losses == plain.losses
    assert all(torch.equal(a, b) for a, b in zip(guarded.parameters(), plain.parameters(), strict=True))


def test_two_optimizers_stepped_by_hand_are_the_same_bit_for_bit(package: ModuleType, tmp_path: Path) -> None:
    """Manual optimization, with a record a batch."""
    plain = train(package, tmp_path / "plain", module=manual_gan)
    guard = memguard.MemGuard(quiet=True)
    assert train(package, tmp_path / "guarded", guard, module=manual_gan).losses == plain.losses
    assert stages(guard.records) == {Stage.TRAIN: 12}
    assert guard.records[-1].optimizer_steps == 24


def test_every_stage_has_its_records(package: ModuleType, tmp_path: Path) -> None:
    """Sanity, train, validation, checkpoint in fit; several dataloaders; then test and predict."""
    guard = memguard.MemGuard(quiet=True)
    model = classifier(package)
    fit = trainer(package, tmp_path, guard, enable_checkpointing=True)
    fit.fit(model, loader(), [loader(8), loader(12)])
    assert stages(guard.records) == {Stage.SANITY: 4, Stage.TRAIN: 12, Stage.VALIDATION: 10, Stage.CHECKPOINT: 2}
    train_records = [record for record in guard.records if record.stage is Stage.TRAIN]
    assert [(record.epoch, record.index) for record in train_records] == [(e, i) for e in range(2) for i in range(6)]
    fit.test(model, loader(8), verbose=False)
    assert stages(guard.records) == {Stage.TEST: 2}
    fit.predict(model, loader(8))
    assert stages(guard.records) == {Stage.PREDICT: 2}


def test_fit_called_twice_makes_two_recordings_that_go_on_counting(package: ModuleType, tmp_path: Path) -> None:
    """The second run's numbers begin where the first one's ended."""
    guard = memguard.MemGuard(quiet=True)
    model = classifier(package)
    fit = trainer(package, tmp_path, guard, limit_val_batches=0)
    fit.fit(model, loader())
    fit.fit_loop.max_epochs = 3
    fit.fit(model, loader())
    recordings = [Recording.open(path) for path in find_recordings(tmp_path)]
    assert [len(recording) for recording in recordings] == [12, 6]
    assert [row["batch"] for recording in recordings for row in recording.rows] == list(range(18))


def test_resume_from_a_checkpoint_works(package: ModuleType, tmp_path: Path) -> None:
    """The callback's state neither blocks nor bloats a checkpoint."""
    model = classifier(package)
    first = trainer(package, tmp_path, memguard.MemGuard(quiet=True), max_epochs=1)
    first.fit(model, loader())
    first.save_checkpoint(tmp_path / "model.ckpt")
    guard = memguard.MemGuard(quiet=True)
    trainer(package, tmp_path, guard, max_epochs=2).fit(
        classifier(package), loader(), ckpt_path=tmp_path / "model.ckpt"
    )
    assert stages(guard.records)[Stage.TRAIN] == 6
    assert first.callbacks[0].state_dict() == {}


def test_curves_stand_in_the_users_tensorboard_run(package: ModuleType, tmp_path: Path) -> None:
    """The TensorBoardLogger's own event file carries them; no second one appears."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    logger = importlib.import_module(f"{package.__name__}.loggers").TensorBoardLogger(tmp_path)
    train(package, tmp_path, memguard.MemGuard(quiet=True, log_every=3), logger=logger)
    assert len(list(Path(logger.log_dir).glob("events*"))) == 1
    events = EventAccumulator(logger.log_dir)
    events.Reload()
    tags = events.Tags()["scalars"]
    assert {"memory/host_rss_gib", "memory/validation/host_rss_gib"} <= set(tags)
    steps = [point.step for point in events.Scalars("memory/host_rss_gib")]
    assert steps == sorted(steps) and len(steps) == 4
    assert find_recordings(logger.log_dir)


def test_a_directory_of_many_runs_gets_a_folder_for_each(package: ModuleType, tmp_path: Path) -> None:
    """default_root_dir, or the save_dir of a logger like W&B; a Trainer's fit and test are one run."""
    loggers = importlib.import_module(f"{package.__name__}.loggers")

    class Tracker(loggers.logger.DummyLogger):  # type: ignore[misc, name-defined]
        save_dir = tmp_path / "tracker"

    for logger, root in ((False, tmp_path / "bare"), (Tracker(), tmp_path / "tracker")):
        guard = memguard.MemGuard(quiet=True)
        model, fit = classifier(package), trainer(package, tmp_path / "bare", guard, logger=logger, limit_val_batches=0)
        fit.fit(model, loader())
        fit.test(model, loader(8), verbose=False)
        folders = {path.parent for path in find_recordings(root)}
        assert len(find_recordings(root)) == 2 and len(folders) == 1
        assert folders.pop().parent.parent == root / "memguard-runs"


def test_fast_dev_run_writes_nothing(package: ModuleType, tmp_path: Path) -> None:
    """Like Lightning's own loggers, the recording is off."""
    guard = memguard.MemGuard(quiet=True)
    train(package, tmp_path, guard, fast_dev_run=True)
    assert stages(guard.records)[Stage.TRAIN] == 1
    assert not list(tmp_path.rglob("*.bin"))


def test_batch_size_trials_do_not_disturb(package: ModuleType, tmp_path: Path) -> None:
    """BatchSizeFinder hides callbacks during its trials; the run after it is recorded."""
    finder = importlib.import_module(f"{package.__name__}.callbacks").BatchSizeFinder
    guard = memguard.MemGuard(quiet=True)

    class Own(type(classifier(package))):  # type: ignore[misc]
        batch_size = 2

        def train_dataloader(self) -> Any:
            return loader(24, self.batch_size)

        val_dataloader = train_dataloader

    fit = trainer(package, tmp_path, guard, finder(max_trials=2, steps_per_trial=1), max_epochs=1, limit_val_batches=0)
    fit.fit(Own())
    assert stages(guard.records)[Stage.TRAIN] > 0


def test_an_exception_passes_and_the_recording_is_closed(package: ModuleType, tmp_path: Path) -> None:
    """The user's exception is the same object; the end says what it was."""
    model = classifier(package)
    error = ZeroDivisionError("in the user's step")

    def fail(batch: Any, batch_idx: int) -> None:
        raise error

    model.training_step = fail
    with pytest.raises(ZeroDivisionError) as caught:
        trainer(package, tmp_path, memguard.MemGuard(quiet=True)).fit(model, loader())
    assert caught.value is error
    end = Recording.open(find_recordings(tmp_path)[0]).end
    assert end is not None and "ZeroDivisionError" in end["reason"]


def test_no_hook_is_left_on_the_module(package: ModuleType, tmp_path: Path) -> None:
    """After fit the module is as it was; copies of the callback and the module work."""
    guard = memguard.MemGuard(quiet=True, log_every=7)
    model = train(package, tmp_path, guard)
    assert not hooks_inside(model)
    twin = pickle.loads(pickle.dumps(guard))
    assert twin._options.log_every == copy.deepcopy(guard)._options.log_every == 7


def test_a_part_is_heard_between_epochs_alone(package: ModuleType, tmp_path: Path) -> None:
    """Training calls it inside the module, and a hook there would be met by every batch; samples are drawn by it."""
    hooks: list[int] = []

    class Whole(type(classifier(package))):  # type: ignore[misc]
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.net(x)

        def training_step(self, batch: Any, index: int) -> torch.Tensor:
            hooks.append(len(hooks_on(self.net)) // 2)
            return self(batch[0]).sum()

        def on_train_epoch_end(self) -> None:
            hooks.append(-len(hooks_on(self.net)) // 2)

    model = Whole()
    trainer(package, tmp_path, memguard.MemGuard(quiet=True)).fit(model, loader())
    assert hooks == [1, 0, 0, 0, 0, 0, -1, 0, 0, 0, 0, 0, 0, -1]
    assert not hooks_on(model.net)


def test_memory_stands_in_the_progress_bar(package: ModuleType, tmp_path: Path) -> None:
    """The bar's metrics gain a short text while the run goes on, and lose it afterwards."""
    callbacks = importlib.import_module(f"{package.__name__}.callbacks")
    seen = []

    class Peek(callbacks.Callback):  # type: ignore[misc, name-defined]
        def on_train_batch_end(self, trainer: Any, pl_module: Any, *args: Any) -> None:
            seen.append(trainer.progress_bar_callback.get_metrics(trainer, pl_module).get("mem"))

    fit = trainer(package, tmp_path, memguard.MemGuard(quiet=True), Peek(), enable_progress_bar=True, max_epochs=1)
    fit.fit(classifier(package), loader())
    assert "GiB" in seen[-1]
    assert "mem" not in fit.progress_bar_callback.get_metrics(fit, fit.lightning_module)


def test_memguard_disable_switches_the_callback_off(
    package: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is written, nothing recorded."""
    monkeypatch.setenv("MEMGUARD_DISABLE", "1")
    guard = memguard.MemGuard()
    train(package, tmp_path, guard)
    assert guard.records == [] and not list(tmp_path.rglob("*.bin"))


def test_memguard_1_adds_the_callback_without_a_change_of_code(
    package: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The entry point of each package adds a MemGuard; one that the user has already stays alone."""
    monkeypatch.setenv("MEMGUARD", "1")
    monkeypatch.setenv("MEMGUARD_LOGDIR", str(tmp_path))
    monkeypatch.setenv("MEMGUARD_OPTIONS", json.dumps({"quiet": True}))
    for callbacks in ([], [memguard.MemGuard(quiet=True)]):
        fit = trainer(package, tmp_path, *callbacks, max_epochs=1)
        fit.fit(classifier(package), loader())
        assert sum(len(callback.records) > 0 for callback in fit.callbacks if hasattr(callback, "records")) == 1
    assert [len(Recording.open(path)) for path in find_recordings(tmp_path)] == [6, 6]


def test_memguard_1_in_a_test_suite_leaves_what_tests_look_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """No file where none was asked for, no text in the progress bar, no summary, no patched clock read."""
    import lightning.pytorch as package
    from lightning.pytorch.loggers import CSVLogger

    monkeypatch.setenv("MEMGUARD", "1")
    monkeypatch.chdir(tmp_path)
    shown: list[dict[str, Any]] = []

    class Bar(package.callbacks.TQDMProgressBar):
        def on_train_batch_end(self, *args: Any) -> None:
            shown.append(self.get_metrics(*args[:2]))

    bare = trainer(package, tmp_path, Bar(), max_epochs=1, enable_progress_bar=True, logger=False)
    bare.fit(classifier(package), loader())
    assert sum(len(each.records) for each in bare.callbacks if hasattr(each, "records")) == 6
    assert list(tmp_path.rglob("*")) == [] and shown and not any("mem" in each for each in shown)
    assert "GiB" not in capsys.readouterr().err
    with mock.patch("time.perf_counter", side_effect=[]), mock.patch("time.monotonic", side_effect=[]):
        trainer(package, tmp_path, max_epochs=1, logger=CSVLogger(tmp_path)).fit(classifier(package), loader())
    assert {path.name for path in tmp_path.rglob("*") if path.is_file()} <= {"hparams.yaml"}


def test_a_logger_that_cannot_tell_its_directory_is_no_ones_loss(package: ModuleType, tmp_path: Path) -> None:
    """Its save_dir may be anything."""
    guard = memguard.MemGuard(quiet=True, logdir=tmp_path / "run")
    train(package, tmp_path, guard, logger=mock.Mock(name="logger"))
    assert len(guard.records) > 0


def test_a_logger_of_a_remote_directory_gets_the_recording_there(
    package: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Written on this machine first, and copied beside the logger's own files; none of it lies in the program's."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "here"))
    (tmp_path / "here").mkdir()
    loggers = importlib.import_module(f"{package.__name__}.loggers")
    train(package, tmp_path, memguard.MemGuard(quiet=True), logger=loggers.CSVLogger("memory://far"))
    assert [path.name for path in tmp_path.iterdir()] == ["here"]
    assert load_run(["memory://far"]).summary.batches > 0


def test_a_trainer_thrown_away_without_its_teardown_leaves_nothing(package: ModuleType, tmp_path: Path) -> None:
    """As tests do that call one hook: the session ends with the Trainer, which nothing keeps alive."""
    guard = memguard.MemGuard(quiet=True, logdir=tmp_path)
    thrown = trainer(package, tmp_path, guard)
    guard.setup(thrown, classifier(package), "fit")
    assert len(open_sessions()) == 1
    reference = weakref.ref(thrown)
    del thrown
    gc.collect()
    assert reference() is None and open_sessions() == []
    assert Recording.open(find_recordings(tmp_path)[0]).end is not None
