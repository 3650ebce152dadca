"""Every way in: one report a failure, the exit code and the traceback of the run without memguard."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import memguard
from memguard.cli import main
from memguard.postmortem.scene import TopTensor
from memguard.recording.reader import Recording, find_recordings
from memguard.report.postmortem_words import tensor_size
from memguard.sinks.interface import Sink
from tests.postmortem import scenarios

GIB = 1 << 30
DEVICE = "virtual:16MiB"
TEXT = "CUDA out of memory. Tried to allocate 64.00 MiB."


def child(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "ignore", *arguments]
    environment = {**os.environ, **variables}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=600)


def program(name: str, logdir: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    return child("-m", "tests.postmortem.programs", str(logdir), name, **variables)


class Ended:
    """A program that has ended, and where it wrote."""

    def __init__(self, logdir: Path) -> None:
        self.logdir = logdir
        self.returncode = int((logdir / "code").read_text())
        self.stdout, self.stderr = (logdir / "stdout").read_text(), (logdir / "stderr").read_text()


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Ended]:
    """Each program by its name, run in a process of its own."""
    folder = tmp_path_factory.mktemp("programs")
    names = ["plain", "raised", "watched", "wrapped", "raised_from", "workers", "thread", "killed"]
    names += ["grouped"] if sys.version_info >= (3, 11) else []
    done = child("-m", "tests.postmortem.programs", str(folder), *names)
    assert done.returncode == 0, done.stderr
    return {name: Ended(folder / name) for name in names}


def ooms(logdir: Path) -> list[dict[str, Any]]:
    return [oom for path in find_recordings(logdir) for oom in Recording.open(path).of_kind("oom")]


def big() -> torch.Tensor:
    return torch.zeros(64 << 20, dtype=torch.uint8)


def test_the_program_ends_as_without_memguard(ended: dict[str, Ended]) -> None:
    """Exit code 1, and the traceback as without memguard, with the note below it (before Python 3.11: above)."""
    bare, guarded = ended["plain"], ended["raised"]
    assert bare.returncode == guarded.returncode == 1
    assert bare.stdout == guarded.stdout == ""
    traceback, colon, note = guarded.stderr.partition("Error: " + TEXT)
    expected = bare.stderr.partition("Error: " + TEXT)[0]
    if sys.version_info < (3, 11):  # exceptions have no notes yet
        note, begin, rest = traceback.partition("Traceback (")
        traceback = begin + rest
    assert traceback.replace("in raised", "in plain").count("\n") == expected.count("\n")
    assert colon and note.lstrip().startswith("memguard: out of memory")
    assert len(ooms(guarded.logdir)) == 1


@pytest.mark.parametrize("name", ["watched", "wrapped"])
def test_one_report(name: str, ended: dict[str, Ended]) -> None:
    """However many ways an error passes, it is told once, and written once."""
    done = ended[name]
    assert done.returncode == 1
    assert done.stderr.count("memguard: out of memory on virtual:16MiB") == 1
    [told] = ooms(done.logdir)
    assert not told["caught"]
    assert (done.logdir / "memguard" / told["id"] / "report.md").is_file()
    end = Recording.open(find_recordings(done.logdir)[0]).end
    assert end is not None and end["reason"] == "an exception: OutOfMemoryError"


@pytest.mark.parametrize("name", ["raised_from", "grouped", "workers"])
def test_chains_groups_and_workers(name: str, ended: dict[str, Ended]) -> None:
    """An error inside another one, one of a group, and one beside worker processes: told once, exit code 1."""
    if name == "grouped" and sys.version_info < (3, 11):
        pytest.skip("groups of exceptions exist from Python 3.11 on")
    done = ended[name]
    assert done.returncode == 1, done.stderr
    assert done.stderr.count("memguard: out of memory on virtual:16MiB") == 1, done.stderr
    [told] = ooms(done.logdir)
    assert told["site"]["function"] == "big"
    for suffix in ("md", "html", "json"):
        assert (done.logdir / "memguard" / told["id"] / f"report.{suffix}").is_file()


def test_a_thread(ended: dict[str, Ended]) -> None:
    """An error that ends a thread is told; the program goes on."""
    done = ended["thread"]
    assert (done.returncode, done.stdout) == (0, "done\n")
    assert done.stderr.count("memguard: out of memory") == 1
    assert len(ooms(done.logdir)) == 1


def test_a_rank(tmp_path: Path) -> None:
    """In a DDP program the rank that fails reports under its number, and the one it takes with it says which it was."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": "2"}
    results: dict[int, subprocess.CompletedProcess[str]] = {}

    def run(number: int) -> None:
        results[number] = program("rank", tmp_path, RANK=str(number), **shared)

    threads = [threading.Thread(target=run, args=(number,)) for number in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results[1].returncode == 1, results[1].stderr
    assert "memguard: out of memory on virtual:16MiB (rank 1, " in results[1].stderr
    assert results[0].returncode != 0 and "memguard: out of memory on" not in results[0].stderr
    assert "memguard: before rank 0 failed, rank 1 ran out of memory in batch 0: " in results[0].stderr
    assert [told["rank"] for told in ooms(tmp_path)] == [1]
    assert next((tmp_path / "memguard").glob("oom-rank00001-*")).is_dir()


def test_memguard_run(tmp_path: Path) -> None:
    """A script under ``memguard run`` ends with its own exit code, and its report stands in the JSON."""
    script = tmp_path / "script.py"
    script.write_text("import torch\nprint('begun')\ntorch.zeros(64 << 20, dtype=torch.uint8)\n")
    result = tmp_path / "result.json"
    options = ["--device", DEVICE, "--logdir", str(tmp_path / "log"), "--json", str(result)]
    done = child("-m", "memguard", "run", *options, str(script))
    assert (done.returncode, done.stdout) == (1, "begun\n")
    assert "script.py:3" in done.stderr
    assert json.loads(result.read_text())["oom"]["site"]["line"] == 3


@pytest.mark.filterwarnings("ignore")
def test_lightning(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Lightning's on_exception: the same exception leaves fit, with the note (before Python 3.11: on stderr)."""
    lightning = pytest.importorskip("lightning.pytorch")

    class Fails(lightning.LightningModule):  # type: ignore[name-defined, misc]
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(8, 8)

        def training_step(self, batch: torch.Tensor, batch_idx: int) -> torch.Tensor:
            if batch_idx == 2:
                big()
            return self.layer(batch).sum()

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    guard = memguard.MemGuard(device=DEVICE, logdir=str(tmp_path), quiet=True)
    trainer = lightning.Trainer(
        max_epochs=1,
        callbacks=[guard],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        accelerator="cpu",
        default_root_dir=str(tmp_path),
    )
    loader = torch.utils.data.DataLoader(torch.zeros(32, 8), batch_size=4)
    with pytest.raises(torch.OutOfMemoryError) as caught:
        trainer.fit(Fails(), loader)
    notes = getattr(caught.value, "__notes__", None) or [capsys.readouterr().err]
    assert "".join(notes).count("memguard: out of memory") == 1
    assert guard.result().oom["site"]["function"] == "big"
    assert guard.result().oom["stage"] == "train"


def test_a_caught_error_is_recorded_as_caught(tmp_path: Path) -> None:
    """The program's own retry works, and stands in the recording and the notes, not as the end."""
    with memguard.watch(device=DEVICE, logdir=str(tmp_path), quiet=True) as guard:
        model = nn.Linear(8, 8)
        guard.add(model)
        try:
            model(torch.zeros(1 << 20, 8))
        except torch.OutOfMemoryError:
            pass
        model(torch.zeros(4, 8)).sum().backward()
        assert [told["caught"] for told in ooms(tmp_path)] == [True]
    assert guard.result().oom is None
    assert any("caught an out-of-memory error" in note for note in guard.result().notes)


def test_a_loop_that_lives_on_errors_is_not_slowed_down(tmp_path: Path) -> None:
    """Of many caught errors the first three are looked at."""
    with memguard.watch(device=DEVICE, logdir=str(tmp_path), quiet=True):
        for _ in range(20):
            try:
                big()
            except torch.OutOfMemoryError:
                pass
    assert len(ooms(tmp_path)) == 3


def test_an_error_inside_an_error(tmp_path: Path) -> None:
    """The handler of one runs out of memory itself: the first is told as caught, the second as the end."""
    guard = memguard.watch(device=DEVICE, logdir=str(tmp_path), quiet=True)
    with pytest.raises(torch.OutOfMemoryError), guard:
        try:
            big()
        except torch.OutOfMemoryError:
            torch.zeros(32 << 20, dtype=torch.uint8)
    assert [told["caught"] for told in ooms(tmp_path)] == [True, False]
    assert guard.result().oom is not None
    assert guard.result().oom["requested_bytes"] == 32 << 20


def test_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Where no file can be written, the whole report goes to stderr, and the error through."""

    def full(*arguments: Any, **named: Any) -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(torch.OutOfMemoryError), memguard.watch(device=DEVICE, logdir=str(tmp_path), quiet=True):
        monkeypatch.setattr(Path, "mkdir", full)
        monkeypatch.setattr(os, "write", full)
        big()
    written = capsys.readouterr().err
    assert "could not be written (No space left on device)" in written
    assert "## What to change" in written or "# Out of memory" in written


def test_a_full_device(tmp_path: Path) -> None:
    """With not a byte left the report is made all the same, and takes nothing of the device."""
    with (
        pytest.raises(torch.OutOfMemoryError),
        memguard.watch(device=DEVICE, logdir=str(tmp_path), quiet=True) as guard,
    ):
        held = [torch.zeros(1 << 20, dtype=torch.uint8) for _ in range(8)]
        while True:
            held.append(torch.zeros(512, dtype=torch.uint8))
    told = guard.result().oom
    assert told is not None
    assert told["request"]["free_bytes"] == 0
    assert told["owners"]["temporaries"] + told["owners"]["outputs"] >= 0.9 * told["request"]["allocated_bytes"]


def test_the_exception_is_not_kept(tmp_path: Path) -> None:
    """Nothing of ours keeps the exception, its frames or its tensors alive."""
    references = []

    def fail() -> None:
        kept = torch.zeros(1 << 20, dtype=torch.uint8)
        references.append(weakref.ref(kept))
        big()

    guard = memguard.watch(device=DEVICE, logdir=str(tmp_path), quiet=True)
    with guard:
        try:
            fail()
        except torch.OutOfMemoryError as error:
            references.append(weakref.ref(error))
            guard.session.exception(error)
        assert [reference() for reference in references] == [None, None]
    assert guard.result().oom is not None


def test_where_no_allocator_tells(tmp_path: Path) -> None:
    """On a device without an observer the forward's hook sees the error, caught or not."""

    class Fails(nn.Module):
        def forward(self, fail: bool) -> None:
            if fail:
                raise RuntimeError("MPS backend out of memory (MPS allocated: 8.00 GB)")

    guard = memguard.watch(device="cpu", logdir=str(tmp_path), quiet=True)
    with pytest.raises(RuntimeError, match="MPS"), guard:
        model = Fails()
        guard.add(model)
        try:
            model(True)
        except RuntimeError:
            pass
        model(False)
        model(True)
    assert [told["caught"] for told in ooms(tmp_path)] == [True, False]


def test_a_report_without_owners(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the look at the live objects fails, the rest is told all the same, and the error comes through."""

    def fails(*arguments: object, **named: object) -> None:
        raise ValueError("a tensor of an unheard-of kind")

    monkeypatch.setattr("memguard.integrations.oom.scene.examine", fails)
    guard = memguard.watch(device=DEVICE, logdir=str(tmp_path), quiet=True)
    with pytest.raises(torch.OutOfMemoryError), guard:
        big()
    told = guard.result().oom
    assert told is not None
    assert told["requested_bytes"] == 64 << 20
    assert told["site"]["function"] == "big"


def test_host_memory(tmp_path: Path) -> None:
    """Where RAM ran out, nobody speaks of the device."""
    guard = memguard.watch(device=DEVICE, logdir=str(tmp_path), quiet=True)
    with pytest.raises(RuntimeError), guard:
        raise RuntimeError("DataLoader worker (pid 4242) is killed by signal: Killed. ")
    told = guard.result().oom
    assert told is not None
    assert (told["cause_kind"], told["device"]) == ("host-memory", "cpu")
    assert "not the device but RAM ran out" in told["cause"]


class Sentences(Sink):
    def __init__(self) -> None:
        self.reports: list[tuple[str, int]] = []

    def finding(self, finding: object) -> None: ...

    def close(self) -> None: ...

    def out_of_memory(self, report: str, batch: int) -> None:
        self.reports.append((report, batch))


def test_sinks_hear_of_it(tmp_path: Path) -> None:
    """The end goes to every sink as Markdown; a caught error does not."""
    sink = Sentences()
    guard = memguard.watch(device=DEVICE, logdir=str(tmp_path), quiet=True)
    guard.session.recorder._judging.sinks.append(sink)
    with pytest.raises(torch.OutOfMemoryError), guard:
        try:
            big()
        except torch.OutOfMemoryError:
            pass
        big()
    [(report, batch)] = sink.reports
    assert report.startswith("# Out of memory")
    assert batch == 0


def test_switched_off(tmp_path: Path) -> None:
    """on_oom="off" adds nothing."""
    guard = memguard.watch(device=DEVICE, logdir=str(tmp_path), quiet=True, on_oom="off")
    with pytest.raises(torch.OutOfMemoryError) as caught, guard:
        big()
    assert not getattr(caught.value, "__notes__", [])
    assert ooms(tmp_path) == []


def test_hooks_are_taken_away(tmp_path: Path) -> None:
    """The interpreter's hooks are what they were before."""
    before = (sys.excepthook, threading.excepthook)
    with memguard.watch(device=DEVICE, logdir=str(tmp_path), quiet=True):
        assert sys.excepthook is not before[0]
    assert (sys.excepthook, threading.excepthook) == before


def test_report_tells_of_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """``memguard report`` on the recording says why, as text and as JSON."""
    scenarios.fail("kept-exception", str(tmp_path))
    capsys.readouterr()
    assert main(["report", str(tmp_path)]) == 0
    assert "Out of memory at" in capsys.readouterr().out
    assert main(["report", str(tmp_path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["oom"]["cause_kind"] == "kept-exception"


def test_a_killed_run_says_so(ended: dict[str, Ended], capsys: pytest.CaptureFixture[str]) -> None:
    """After a kill -9, the report says at which batch, with how much RAM of which limit the run ended."""
    done = ended["killed"]
    assert done.returncode == -9
    assert main(["report", str(done.logdir)]) == 0
    said = capsys.readouterr().out
    assert "the run ended without a word at batch 4 (train) with RAM at" in said
    assert "of a limit of" in said


def test_equal_tensors_are_counted_together(tmp_path: Path) -> None:
    """However many of them are alive, they are one row with their number."""
    kept = []
    with memguard.watch(device=DEVICE, logdir=str(tmp_path), quiet=True) as guard:
        guard.add(nn.Linear(8, 8))
        kept = [torch.zeros(1 << 17) for _ in range(20)]
        with pytest.raises(torch.OutOfMemoryError):
            big()
    [told] = ooms(tmp_path)
    [row] = [each for each in told["tensors"] if each["shape"] == [1 << 17]]
    assert (row["count"], row["bytes"]) == (len(kept), 1 << 19)
    assert tensor_size(TopTensor(**row)) == "20 x 512 KiB"
