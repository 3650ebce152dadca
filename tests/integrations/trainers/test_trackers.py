import csv
import functools
import importlib
import importlib.util
import warnings
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

import memguard
from memguard.integrations.trainers.trackers import LightningLoggers
from memguard.text.units import GIB
from tests.integrations.lightning_modules import classifier, loader
from tests.integrations.programs import batches, net

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(params=["lightning.pytorch", "pytorch_lightning"])
def package(request: pytest.FixtureRequest) -> ModuleType:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return importlib.import_module(request.param)


def list_logger(package: ModuleType, fails: bool = False) -> Any:
    """A logger of the user's own, against Lightning's base class, that takes texts as WandbLogger does."""
    loggers = importlib.import_module(f"{package.__name__}.loggers")

    class ListLogger(loggers.Logger):  # type: ignore[misc, name-defined]
        name, version = "list", 0

        def __init__(self) -> None:
            super().__init__()
            self.points: list[tuple[int, dict[str, float]]] = []
            self.texts: list[tuple[str, list[str], list[list[str]], int]] = []

        def log_hyperparams(self, *args: Any, **kwargs: Any) -> None:
            pass

        def log_metrics(self, metrics: dict[str, float], step: int) -> None:
            if fails and any(name.startswith("memory/") for name in metrics):
                raise RuntimeError("the server is gone")
            self.points.append((step, metrics))

        def log_text(self, key: str, columns: Any = None, data: Any = None, step: Any = None) -> None:
            self.texts.append((key, columns, data, step))

    return ListLogger()


def leaky(package: ModuleType) -> Any:
    class Leaky(type(classifier(package))):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.kept: list[torch.Tensor] = []

        def training_step(self, batch: Any, index: int) -> torch.Tensor:
            loss = super().training_step(batch, index)
            self.kept.append(loss)
            return loss

    return Leaky()


def fit(package: ModuleType, folder: Path, module: Any, *callbacks: Any, **settings: Any) -> Any:
    trainer = package.Trainer(
        **{
            "max_epochs": 2, "accelerator": "cpu", "default_root_dir": folder, "enable_progress_bar": False,
            "enable_model_summary": False, "enable_checkpointing": False, "callbacks": list(callbacks),
            "log_every_n_steps": 3, **settings,
        }
    )  # fmt: skip
    trainer.fit(module, loader(), loader(8))
    return trainer


def guarding(folder: Path, **options: Any) -> Any:
    return memguard.MemGuard(quiet=True, logdir=folder / "run", **options)


def ours(logger: Any) -> list[tuple[int, dict[str, float]]]:
    return [(step, point) for step, point in logger.points if any(name.startswith("memory/") for name in point)]


def test_nothing_goes_to_the_loggers_unless_asked(package: ModuleType, tmp_path: Path) -> None:
    """The default leaves W&B, MLflow and CSV alone."""
    logger = list_logger(package)
    fit(package, tmp_path, classifier(package), guarding(tmp_path, device="virtual:1GiB"), logger=logger)
    assert ours(logger) == [] and logger.texts == []


def test_numbers_come_at_lightnings_own_steps_and_cadence(package: ModuleType, tmp_path: Path) -> None:
    """Every third step, at the end of validation and of training; each point carries the highest since the last."""
    logger = list_logger(package)
    guard = guarding(tmp_path, device="virtual:1GiB", loggers=True)
    fit(package, tmp_path, classifier(package), guard, logger=logger)
    points = ours(logger)
    assert [step for step, _ in points] == [2, 5, 5, 8, 11, 11, 11]
    train = [point["memory/allocated_peak_gib"] for _, point in points if "memory/allocated_peak_gib" in point]
    assert max(train) * GIB == max(r.allocated_peak_bytes for r in guard.records if r.stage is memguard.Stage.TRAIN)
    assert sum("memory/validation/allocated_peak_gib" in point for _, point in points) == 2
    assert all(point["memory/findings_total"] == 0.0 for _, point in points)


def test_the_users_own_points_are_as_without_memguard(package: ModuleType, tmp_path: Path) -> None:
    """Names, values and steps; ours are points of their own, at steps that Lightning uses itself."""

    class Logs(type(classifier(package))):  # type: ignore[misc]
        def training_step(self, batch: Any, index: int) -> torch.Tensor:
            loss = super().training_step(batch, index)
            self.log("loss", loss)
            return loss

        def validation_step(self, batch: Any, index: int) -> None:
            self.log("right", self.net(batch[0]).mean())

    seen = []
    for callbacks in ([], [guarding(tmp_path, loggers=True)]):
        logger = list_logger(package)
        package.seed_everything(0)
        trainer = fit(package, tmp_path, Logs(), *callbacks, logger=logger)
        theirs = [(step, point) for step, point in logger.points if (step, point) not in ours(logger)]
        seen.append((theirs, set(trainer.callback_metrics), set(trainer.logged_metrics)))
    assert seen[0] == seen[1] and len(seen[0][0]) > 4
    assert {step for step, _ in ours(logger)} <= {step for step, _ in theirs}


def test_findings_are_counted_and_told_in_words(package: ModuleType, tmp_path: Path) -> None:
    """A number for every logger; a table for one that takes texts, once and again when there is more to tell."""
    logger = list_logger(package)
    guard = guarding(tmp_path, loggers=True)
    fit(package, tmp_path, leaky(package), guard, logger=logger, max_epochs=4)
    last = ours(logger)[-1][1]
    assert last["memory/findings/MG101"] >= 1.0 and last["memory/findings_total"] == 1.0
    key, columns, rows, _ = logger.texts[-1]
    assert key == "memory/findings" and columns[:3] == ["rule", "severity", "message"]
    assert rows[0][0] == "MG101 retained-graph" and "kept.append(loss)" not in rows[0][2]
    assert len(logger.texts) == 1


def test_accumulation_logs_once_a_step(package: ModuleType, tmp_path: Path) -> None:
    """Lightning's step stands still while gradients are accumulated."""
    logger = list_logger(package)
    guard = guarding(tmp_path, loggers=True)
    fit(package, tmp_path, classifier(package), guard, logger=logger, accumulate_grad_batches=3, log_every_n_steps=1,
        limit_val_batches=0)  # fmt: skip
    assert [step for step, _ in ours(logger)] == [0, 1, 2, 3, 3]


def test_csv_files_gain_columns(package: ModuleType, tmp_path: Path) -> None:
    """Lightning's CSVLogger writes them as it writes everything."""
    logger = importlib.import_module(f"{package.__name__}.loggers").CSVLogger(tmp_path)
    fit(package, tmp_path, leaky(package), guarding(tmp_path, loggers=True), logger=logger, max_epochs=4)
    with (Path(logger.log_dir) / "metrics.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert any(float(row["memory/host_rss_gib"] or 0) > 0 for row in rows)
    assert float(rows[-1]["memory/findings/MG101"]) >= 1


def test_a_logger_that_fails_is_left_alone_and_the_others_go_on(package: ModuleType, tmp_path: Path) -> None:
    """The run does not notice."""
    broken, sound = list_logger(package, fails=True), list_logger(package)
    type(broken).__name__ = "Broken"
    guard = guarding(tmp_path, loggers=True)
    fit(package, tmp_path, classifier(package), guard, logger=[broken, sound])
    assert len(ours(sound)) == 7 and guard.result().ended == "finished"
    assert [note for note in guard.result().notes if "Broken" in note and "the server is gone" in note]


def test_an_out_of_memory_report_goes_to_a_logger_that_takes_texts(package: ModuleType, tmp_path: Path) -> None:
    """Besides the last numbers."""

    class TooLarge(type(classifier(package))):  # type: ignore[misc]
        def training_step(self, batch: Any, index: int) -> torch.Tensor:
            return super().training_step(batch, index) + torch.zeros(10_000_000 if index == 4 else 1).sum()

    logger = list_logger(package)
    with pytest.raises(torch.OutOfMemoryError):
        fit(package, tmp_path, TooLarge(), guarding(tmp_path, device="virtual:16MiB", loggers=True),
            logger=logger)  # fmt: skip
    key, columns, rows, _ = logger.texts[-1]
    assert key == "memory/out_of_memory" and columns == ["report"] and "Out of memory in train batch" in rows[0][0]


def test_tensorboard_is_not_logged_to_twice(package: ModuleType, tmp_path: Path) -> None:
    """It has its own curves, over memguard's batches."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    logger = importlib.import_module(f"{package.__name__}.loggers").TensorBoardLogger(tmp_path)
    fit(package, tmp_path, classifier(package), guarding(tmp_path, loggers=True), logger=logger)
    events = EventAccumulator(logger.log_dir)
    events.Reload()
    steps = [point.step for point in events.Scalars("memory/host_rss_gib")]
    assert steps == sorted(set(steps)) and "memory/findings_total" not in events.Tags()["scalars"]


def test_mlflow_gets_the_findings_as_an_artifact() -> None:
    """Through the client that Lightning's logger holds."""

    class MLFlowLogger:
        run_id = "7"

        def __init__(self) -> None:
            self.experiment = self
            self.log_text_calls: list[Any] = []

        def log_metrics(self, metrics: dict[str, float], step: int) -> None:
            pass

    class Client:
        def log_text(self, run_id: str, text: str, artifact_file: str) -> None:
            told.append((run_id, text, artifact_file))

    told: list[tuple[str, str, str]] = []
    logger = MLFlowLogger()
    logger.experiment = Client()
    from memguard.recorder import Recorder
    from memguard.records.stats import Run
    from tests.fakes import ScriptedBackend, claim

    recorder = Recorder(ScriptedBackend([(1, 2)]), Run(device="cuda:0"))
    recorder.open({})
    recorder.add(claim())
    trainer: Any = type("Trainer", (), {})()
    trainer.loggers, trainer.fit_loop = [logger], trainer
    trainer.epoch_loop, trainer._batches_that_stepped = trainer, 3
    LightningLoggers(recorder).log(trainer)
    recorder.close()
    assert told[0][0] == "7" and "MG999" in told[0][1] and told[0][2] == "memguard/findings.md"


def test_a_plain_loop_takes_the_numbers_itself(tmp_path: Path) -> None:
    """The highest since the last call; loggers=True has no Trainer to ask there, and says so."""
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with memguard.watch(model, optimizer, device="virtual:1GiB", logdir=tmp_path, quiet=True) as guard:
        taken = []
        for number, (x, y) in enumerate(batches(12)):
            torch.nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
            optimizer.zero_grad()
            if number % 4 == 3:
                taken.append(guard.scalars())
    assert len(taken) == 3 and all(point["memory/allocated_peak_gib"] > 0 for point in taken)
    assert guard.scalars() == {"memory/findings_total": 0.0}
    with pytest.raises(ValueError, match=r"guard\.scalars"):
        memguard.watch(model, loggers=True)


@functools.cache
def has_transformers() -> bool:
    return importlib.util.find_spec("transformers") is not None


@pytest.mark.skipif(not has_transformers(), reason="transformers is not installed")
def test_hugging_face_reporters_get_the_numbers_among_its_own(tmp_path: Path) -> None:
    """A callback that reports sees them in `logs`; the metrics that the Trainer returns and keeps are as without."""
    from transformers import TrainerCallback

    from tests.integrations.huggingface_trainers import guard, trainer

    class Reporter(TrainerCallback):
        def __init__(self) -> None:
            self.points: list[tuple[int, dict[str, float]]] = []

        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
            self.points.append((state.global_step, dict(logs)))

    kept, reporter = [], Reporter()
    for callbacks in ([reporter], [reporter, guard(device="virtual:1GiB", loggers=True)]):
        reporter.points.clear()
        host = trainer(tmp_path, *callbacks, logging_strategy="steps", logging_steps=4, eval_strategy="steps",
                       eval_steps=5)  # fmt: skip
        result = host.train()
        kept.append(([set(entry) for entry in host.state.log_history], set(result.metrics), set(host.evaluate())))
    assert kept[0] == kept[1]
    points = [(step, point) for step, point in reporter.points if "memory/findings_total" in point]
    assert [step for step, _ in points] == [4, 5, 8, 10, 10, 10]
    assert "memory/allocated_peak_gib" in points[0][1] and "loss" in points[0][1]
    assert "memory/validation/allocated_peak_gib" in points[1][1] and "eval_loss" in points[1][1]
