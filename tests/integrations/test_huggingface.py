import copy
import functools
import importlib.util
import json
import os
import pickle
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch

if importlib.util.find_spec("transformers") is None:
    pytest.skip("transformers is not installed", allow_module_level=True)

from transformers import Trainer, TrainerCallback

import memguard
from memguard.integrations import huggingface
from memguard.integrations.huggingface import MemGuardCallback, _running
from memguard.integrations.trainers import huggingface_batches
from memguard.integrations.trainers.huggingface_batches import TrainerBatches
from memguard.integrations.trainers.huggingface_stack import Host
from memguard.integrations.trainers.trackers import Scalars
from memguard.recording.reader import Recording, find_recordings
from tests.hooks import hooks_on
from tests.integrations.huggingface_trainers import Classifier, Numbers, guard, trainer

pytestmark = pytest.mark.filterwarnings("ignore")


def stages(callback: MemGuardCallback) -> dict[str, int]:
    return dict(Counter(record.stage.value for record in callback.records))


def codes(callback: MemGuardCallback) -> set[str]:
    return {finding.code for finding in callback.result().findings if finding.severity.value != "info"}


def found(callback: MemGuardCallback, code: str) -> Any:
    return next(finding for finding in callback.result().findings if finding.code == code)


def source(finding: Any) -> str:
    return Path(finding.file).read_text().splitlines()[finding.line - 1].strip()


@pytest.mark.long
def test_losses_are_the_same_bit_for_bit_over_40_steps(tmp_path: Path) -> None:
    """Dropout, accumulation, evaluation and checkpoints: every loss and weight equals those without memguard."""
    settings = {
        "max_steps": 40, "gradient_accumulation_steps": 2, "eval_strategy": "steps", "eval_steps": 10,
        "save_strategy": "steps", "save_steps": 20,
    }  # fmt: skip
    plain = trainer(tmp_path / "plain", **settings)
    plain.train()
    for device in ("cpu", "virtual:1GiB"):
        guarded = trainer(tmp_path / device[:3], guard(device=device), **settings)
        guarded.train()
        assert guarded.model.losses == plain.model.losses and len(plain.model.losses) > 100
        assert guarded.state.log_history[0].keys() == plain.state.log_history[0].keys()
        assert all(torch.equal(a, b) for a, b in zip(guarded.model.parameters(), plain.model.parameters(), strict=True))


def test_each_micro_batch_evaluation_and_checkpoint_has_its_record(tmp_path: Path) -> None:
    """Two micro-batches a step, an evaluation of 12 batches, a checkpoint, each once in 10 steps of 8 an epoch."""
    callback = guard()
    trainer(
        tmp_path, callback, gradient_accumulation_steps=2, eval_strategy="steps", eval_steps=5, save_strategy="steps",
        save_steps=5,
    ).train()  # fmt: skip
    assert stages(callback) == {"train": 20, "validation": 24, "checkpoint": 2}
    train = [(record.epoch, record.index) for record in callback.records if record.stage.value == "train"]
    assert train == [(0, index) for index in range(16)] + [(1, index) for index in range(4)]
    assert callback.records[-1].optimizer_steps == 10
    recording = Recording.open(find_recordings(tmp_path)[0])
    assert len(recording) == 46 and recording.end is not None and recording.end["reason"] == "finished"


def test_evaluation_and_prediction_outside_of_training_are_heard_from_their_second_batch(tmp_path: Path) -> None:
    """Each is a run of its own; which of the two it is, is told apart."""
    callback = guard()
    host = trainer(tmp_path, callback)
    host.evaluate()
    assert stages(callback) == {"validation": 11}
    host.predict(Numbers(20))
    assert stages(callback) == {"predict": 4}
    assert not hooks_on(host.model) and not _running


def test_evaluation_by_epoch_with_several_datasets_ends_in_a_checkpoint(tmp_path: Path) -> None:
    """A dictionary of datasets, and the best checkpoint loaded at the end."""
    callback = guard()
    host = trainer(
        tmp_path, callback, max_steps=-1, num_train_epochs=2, eval_strategy="epoch", save_strategy="epoch",
        load_best_model_at_end=True, metric_for_best_model="eval_first_loss",
    )  # fmt: skip
    host.eval_dataset = {"first": Numbers(8), "second": Numbers(12)}
    host.train()
    assert stages(callback) == {"train": 32, "validation": 10, "checkpoint": 2}


class KeepsLosses(Trainer):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.history: list[torch.Tensor] = []

    def compute_loss(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        loss = super().compute_loss(model, inputs, *args, **kwargs)
        if model.training:
            self.history.append(loss)
        return loss


def test_losses_kept_in_compute_loss_are_named_by_their_line(tmp_path: Path) -> None:
    """The line is the user's, not one of transformers."""
    callback = guard()
    trainer(tmp_path, callback, kind=KeepsLosses, max_steps=20).train()
    finding = found(callback, "MG101")
    assert source(finding) == "self.history.append(loss)"
    assert finding.holder == "KeepsLosses.history"
    assert codes(callback) == {"MG101"}


class KeepsLogits(Trainer):
    scores: list[torch.Tensor] = []  # noqa: RUF012

    def compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False, **kwargs: Any) -> Any:
        loss, outputs = super().compute_loss(model, inputs, return_outputs=True, **kwargs)
        self.scores.append(outputs["logits"])
        return (loss, outputs) if return_outputs else loss


def test_logits_kept_in_compute_metrics_are_named_by_their_line(tmp_path: Path) -> None:
    """``batch_eval_metrics`` hands tensors on the device to compute_metrics, batch by batch."""
    callback = guard(device="virtual:256MiB")
    kept: list[torch.Tensor] = []

    def compute_metrics(prediction: Any, compute_result: bool) -> dict[str, float]:
        kept.append(prediction.predictions)
        return {"mean": float(torch.cat(kept).mean())} if compute_result else {}

    model = Classifier(classes=512)
    given = {"compute_metrics": compute_metrics}
    trainer(tmp_path, callback, model=model, given=given, eval_strategy="steps", eval_steps=5, batch_eval_metrics=True,
            max_steps=10).train()  # fmt: skip
    finding = found(callback, "MG301")
    assert source(finding) == "kept.append(prediction.predictions)"


def test_predictions_kept_by_transformers_are_told_with_its_own_remedy(tmp_path: Path) -> None:
    """If they matter on this device; not where eval_accumulation_steps sends them to RAM, nor on a CPU."""
    given = {"compute_metrics": lambda prediction: {}}

    def told(device: str, **settings: Any) -> list[Any]:
        callback = guard(device=device)
        model = Classifier(classes=4096)
        trainer(tmp_path, callback, model=model, given=given, eval_strategy="steps", eval_steps=5, **settings).train()
        return callback.result().findings

    (finding,) = told("virtual:16MiB")
    assert finding.code == "MG301" and finding.severity.value == "info"
    assert "eval_accumulation_steps" in finding.advice and "the predictions of 12 batches" in finding.message
    assert finding.bytes == pytest.approx(12 * 4 * 4096 * 4, rel=0.01)
    assert source(finding).startswith("trainer(tmp_path, callback, model=model")
    for device, settings in (("virtual:1GiB", {}), ("virtual:16MiB", {"eval_accumulation_steps": 2}), ("cpu", {})):
        others = [finding for finding in told(device, **settings) if finding.code != "MG403"]
        assert others == [], "MG403: transformers itself calls empty_cache after each part that it sends to RAM"


class KeepsOutputs(TrainerCallback):
    def __init__(self) -> None:
        self.scores: list[torch.Tensor] = []

    def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        batch = torch.ones(4, 8)
        self.scores.append(model(batch, torch.zeros(4, dtype=torch.long))["logits"])


def test_a_leak_in_another_callback_is_named(tmp_path: Path) -> None:
    """Scores with their graphs, kept by a callback of the user's."""
    callback = guard()
    trainer(tmp_path, KeepsOutputs(), callback, max_steps=20).train()
    assert source(found(callback, "MG101")).startswith("self.scores.append(")


def test_a_healthy_training_stays_silent(tmp_path: Path) -> None:
    """With metrics, evaluation, checkpoints and accumulation on a device of its own size."""
    callback = guard(device="virtual:1GiB")
    given = {"compute_metrics": lambda prediction: {"n": float(len(prediction.predictions))}}
    trainer(
        tmp_path, callback, given=given, max_steps=40, gradient_accumulation_steps=2, eval_strategy="steps",
        eval_steps=10, save_strategy="steps", save_steps=20,
    ).train()  # fmt: skip
    assert callback.result().findings == [] and not any("failed" in note for note in callback.result().notes)


def test_training_twice_makes_two_recordings(tmp_path: Path) -> None:
    """The same callback in the same Trainer; the numbers of the second go on."""
    callback = guard()
    host = trainer(tmp_path, callback)
    host.train()
    host.train()
    rows = [[row["batch"] for row in Recording.open(path).rows] for path in find_recordings(tmp_path)]
    assert rows == [list(range(10)), list(range(10, 20))]


def test_a_resumed_training_counts_on_within_its_epoch(tmp_path: Path) -> None:
    """From a checkpoint in the middle of an epoch; nothing of ours stands in it."""
    trainer(tmp_path, guard(), max_steps=5, save_strategy="steps", save_steps=5).train()
    assert "MemGuard" not in (tmp_path / "checkpoint-5" / "trainer_state.json").read_text()
    callback = guard()
    trainer(tmp_path, callback, max_steps=18).train(resume_from_checkpoint=True)
    places = [(record.epoch, record.index) for record in callback.records if record.stage.value == "train"]
    assert places == [(0, index) for index in range(5, 16)] + [(1, 0), (1, 1)]


def test_auto_find_batch_size_is_one_run_with_the_caught_errors_told(tmp_path: Path) -> None:
    """Accelerate catches the error and begins anew with fewer samples."""
    callback = guard(device="virtual:64MiB")
    host = trainer(
        tmp_path, callback, model=Classifier(hidden=56_000), auto_find_batch_size=True, max_steps=3,
        per_device_train_batch_size=64, optim="sgd",
    )  # fmt: skip
    host.train()
    assert host._train_batch_size < 64
    assert len(find_recordings(tmp_path)) == 1
    assert any(note.startswith("the program caught an out-of-memory error") for note in callback.result().notes)
    assert callback.result().oom is None and callback.result().ended == "finished"
    assert sum(record.num_ooms == 0 for record in callback.records if record.stage.value == "train") >= 3


def test_a_trainer_that_an_exception_left_is_closed_by_the_next(tmp_path: Path) -> None:
    """Transformers tells no callback of an exception: the next Trainer's beginning does."""
    first, second = guard(device="virtual:32MiB"), guard()
    with pytest.raises(torch.OutOfMemoryError):
        trainer(tmp_path / "first", first, model=Classifier(hidden=100_000), per_device_train_batch_size=64).train()
    assert len(_running) == 1
    trainer(tmp_path / "second", second).train()
    assert not _running
    assert first.result().ended == "an exception that the program caught"
    assert any("caught an out-of-memory error" in note for note in first.result().notes)
    assert second.result().ended == "finished"


def test_an_error_that_ends_the_program_is_explained_in_its_traceback(tmp_path: Path) -> None:
    """The exit code is Python's, the report names the leak, and the recording says how it ended."""
    code = (
        "from pathlib import Path\n"
        "from tests.integrations.huggingface_trainers import Classifier, guard, trainer\n"
        "from tests.integrations.test_huggingface import KeepsLogits\n"
        f"folder = Path({str(tmp_path)!r})\n"
        "model = Classifier(hidden=50, classes=20_000)\n"
        "callback = guard(device='virtual:64MiB')\n"
        "host = trainer(folder, callback, kind=KeepsLogits, model=model, max_steps=400, optim='sgd')\n"
        "host.train()\n"
    )
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=root)
    assert done.returncode == 1 and "torch.OutOfMemoryError" in done.stderr
    assert "KeepsLogits.scores" in done.stderr.split("torch.OutOfMemoryError")[-1]
    recording = Recording.open(find_recordings(tmp_path)[0])
    assert recording.end is not None and recording.end["reason"] == "an exception: OutOfMemoryError"
    assert len(list(tmp_path.rglob("report.md"))) == 1


def test_what_does_not_fit_the_device_from_the_start_leaves_nothing(tmp_path: Path) -> None:
    """The error is the user's; no run is open after it."""
    host = trainer(tmp_path, guard(device="virtual:4MiB"), model=Classifier(hidden=100_000))
    with pytest.raises(torch.OutOfMemoryError):
        host.train()
    assert not _running and not hooks_on(host.model)


def test_watch_around_a_trainer_hears_what_the_callback_cannot(tmp_path: Path) -> None:
    """The first batch of an evaluation outside of training too."""
    host = trainer(tmp_path, eval_strategy="steps", eval_steps=5, gradient_accumulation_steps=2)
    with memguard.watch(host.model, device="cpu", logdir=tmp_path, quiet=True) as watched:
        host.evaluate()
        host.train()
    assert Counter(record.stage.value for record in watched.records) == {"validation": 36, "train": 20}
    assert watched.findings == []


def test_two_of_them_in_one_trainer_count_once(tmp_path: Path) -> None:
    """The first one records."""
    first, second = guard(), guard()
    trainer(tmp_path, first, second).train()
    assert len(first.records) == 10 and second.records == []


def test_it_hears_before_the_callbacks_that_report(tmp_path: Path) -> None:
    """Behind the one that decides what the Trainer does; the others keep their order."""
    callback = guard()
    host = trainer(tmp_path, KeepsOutputs(), callback)
    host.callback_handler.callbacks.remove(host.callback_handler.callbacks[1])
    before = [one for one in host.callback_handler.callbacks if one is not callback]
    host.train()
    assert host.callback_handler.callbacks == [before[0], callback, *before[1:]]


def test_copies_and_pickles_keep_the_options_only(tmp_path: Path) -> None:
    """Hyperparameter searches copy and pickle callbacks."""
    callback = guard(log_every=7)
    trainer(tmp_path, callback).train()
    for twin in (pickle.loads(pickle.dumps(callback)), copy.deepcopy(callback)):
        assert twin._options.log_every == 7 and twin.records == []


def test_memguard_disable_switches_it_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is recorded, nothing written."""
    monkeypatch.setenv("MEMGUARD_DISABLE", "1")
    callback = guard()
    trainer(tmp_path, callback).train()
    assert callback.records == [] and not list(tmp_path.rglob("*.bin"))


def test_without_transformers_the_import_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pip command stands in the error."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "transformers"]:
        monkeypatch.setitem(sys.modules, name, None)
    spec = importlib.util.find_spec("memguard.integrations.huggingface")
    assert spec is not None and spec.loader is not None
    with pytest.raises(ImportError, match=r"pip install 'torch-memguard\[huggingface\]'"):
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


@functools.cache
def truth(folder: Path) -> list[float]:
    host = busy(folder)
    host.train()
    return list(host.model.losses)


def busy(folder: Path, *callbacks: Any) -> Trainer:
    """Whatever a Trainer does, in a few steps."""
    torch.manual_seed(0)
    return trainer(
        folder, *callbacks, model=Classifier(classes=4096), given={"compute_metrics": lambda prediction: {}},
        max_steps=4, gradient_accumulation_steps=2, eval_strategy="steps", eval_steps=2, save_strategy="steps",
        save_steps=2, logging_strategy="steps", logging_steps=1,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("home", "name"),
    [
        *[(huggingface, name) for name in ("find_host", "_close_abandoned", "is_compiled", "length_of", "Session")],
        *[(huggingface_batches, name) for name in ("is_predicting", "kept_predictions", "call_site", "RootHooks")],
        *[(MemGuardCallback, name) for name in ("_tensorboard_writer", "_expect_checkpoint", "_close", "part_failed")],
        *[(Host, name) for name in ("puts_first", "callbacks", "tensorboard_writer")],
        *[
            (TrainerBatches, name)
            for name, method in vars(TrainerBatches).items()
            if callable(method) and name != "remove"
        ],
        (Scalars, "__init__"),
        (Scalars, "take"),
    ],
)
def test_whatever_fails_the_trainer_never_knows(
    home: Any, name: str, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each part raises in turn: the losses are the same, and nothing comes out."""

    def chaos(*args: Any, **kwargs: Any) -> None:
        raise RuntimeError("planted")

    expected = truth(tmp_path_factory.getbasetemp() / "truth")
    callback = guard(device="virtual:16MiB", loggers=True)
    host = busy(tmp_path, callback)
    with monkeypatch.context() as patched:
        patched.setattr(home, name, chaos)
        host.train()
    assert host.model.losses == expected
    callback._close("test")
    assert not hooks_on(host.model) and not _running


@pytest.mark.slow
def test_two_ranks_lose_the_same_and_ask_for_no_collective_more(tmp_path: Path) -> None:
    """DDP on gloo under torchrun: losses bit for bit, collectives counted, a recording for each rank."""
    told: dict[str, list[Any]] = {}
    for name in ("plain", "guarded"):
        (tmp_path / name).mkdir()
        program = Path(__file__).with_name("huggingface_ranks.py")
        launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(program)]
        root = Path(__file__).parents[2]
        done = subprocess.run(
            [sys.executable, *launch, str(tmp_path / name), name],
            cwd=root,
            env={**os.environ, "PYTHONPATH": str(root), "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        told[name] = [json.loads(path.read_text()) for path in sorted((tmp_path / name).glob("told-*.json"))]
    assert told["plain"] == told["guarded"] and len(told["plain"]) == 2
    assert told["plain"][0]["losses"] != told["plain"][1]["losses"] and told["plain"][0]["collectives"]
    recordings = [Recording.open(path) for path in find_recordings(tmp_path / "guarded")]
    assert [len(recording) for recording in recordings] == [34, 34]
