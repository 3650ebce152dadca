"""Runs whose directory is a URL, or lies on a disk that many machines share."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import textwrap
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import fsspec
import pytest
import torch
from fsspec.implementations.memory import MemoryFileSystem
from tensorboard.compat import tf  # noqa: F401 - it warns at its first import, not in a test

import memguard
from memguard.cli import main
from memguard.errors import RecordingError
from memguard.options import Options
from memguard.recording.destination import find_destination
from memguard.recording.format import HEADER_BYTES, RECORD_BYTES
from memguard.recording.upload import BYTES_PER_SECOND, LONGEST_PAUSE_SECONDS, PERIOD_SECONDS, Uploader
from memguard.recording.writer import RecordingWriter
from memguard.records.stats import BatchRecord, Stage
from memguard.report.runs import load_run
from memguard.tensorboard_plugin.store import Store


class CountedFileSystem(MemoryFileSystem):
    """An object store in memory: it appends nothing, fails on demand, and knows who asked for what."""

    protocol = "counted"
    store: ClassVar[dict[str, Any]] = {}
    pseudo_dirs: ClassVar[list[str]] = [""]
    asked: ClassVar[list[tuple[str, str, int]]] = []
    broken = False

    def _note(self, what: str, path: str, size: int = 0) -> None:
        self.asked.append((threading.current_thread().name, f"{what} {path.rpartition('/')[2]}", size))
        if type(self).broken:
            raise ConnectionError("the store is away")

    def ls(self, path: str, detail: bool = True, **kwargs: Any) -> Any:
        self._note("ls", path)
        return super().ls(path, detail, **kwargs)

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **kwargs: Any) -> Any:
        self._note("put", path, len(value))
        return super().pipe_file(path, value, mode, **kwargs)


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with empty local disk and empty stores."""
    local = tmp_path / "local"
    local.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(local))
    MemoryFileSystem.store.clear()
    fsspec.register_implementation("counted", CountedFileSystem, clobber=True)
    CountedFileSystem.store, CountedFileSystem.asked, CountedFileSystem.broken = {}, [], False
    return local


def train(url: str, batches: int = 8, **options: Any) -> memguard.Guard:
    """A small guarded training."""
    model = torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with memguard.watch(model, optimizer, device="virtual:64MiB", logdir=url, quiet=True, **options) as guard:
        for _ in range(batches):
            model(torch.randn(2, 4)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
    return guard


def record(batch: int = 0) -> BatchRecord:
    return BatchRecord(batch=batch, stage=Stage.TRAIN, time=1.0 + batch, seconds=0.1, allocated_peak_bytes=1 << 20)


@pytest.mark.parametrize("scheme", ["memory", "counted", "file"])
def test_all_readers_take_the_url_that_the_run_was_given(
    scheme: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Report, JSON, comparison, HTML page and tab tell the same of the copy, and call it by its URL."""
    url = f"file://{tmp_path}/far/run" if scheme == "file" else f"{scheme}://far/run"
    train(url)
    assert main(["report", url, "--json", "--compare", url]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["batches"], told["ended"]) == ({"train": 8}, "finished")
    assert told["recording"].startswith(f"{url}/memguard/rank00000-")
    assert main(["report", url.removesuffix("/run"), "--html", str(tmp_path / "run.html")]) == 0
    assert "<title>Memory of run" in (tmp_path / "run.html").read_text()
    assert main(["report", told["recording"]]) == 0
    assert f"Recording: {told['recording']}" in capsys.readouterr().out
    process = Store(url.removesuffix("/run")).process("run", 0, 0)
    assert process is not None and process.summary()["count"] == 8


def test_curves_and_reports_are_copied_too() -> None:
    """What TensorBoard reads, and the files of an out-of-memory report, which must not wait for the end."""
    model = torch.nn.Linear(4, 4)
    with (
        pytest.raises(torch.OutOfMemoryError),
        memguard.watch(model, device="virtual:4MiB", logdir="memory://far/run", quiet=True) as guard,
    ):
        model(torch.randn(2, 4)).sum().backward()
        torch.randn(4 << 20)
    guard.session.upload._wait_at_exit()
    names = {path.rpartition("/")[2] for path in MemoryFileSystem.store}
    assert {"report.json", "report.md", "report.html", "snapshot.pickle"} <= names
    assert any(name.startswith("events.out.tfevents.") for name in names)
    run = load_run(["memory://far"])
    assert run.summary.oom is not None and run.summary.ended == "an exception: OutOfMemoryError"


def test_the_store_is_asked_by_no_thread_of_the_program() -> None:
    """Neither for a batch, nor for its beginning and end."""
    train("counted://far/run", batches=200)
    assert {name for name, _, _ in CountedFileSystem.asked} == {"memguard-upload"}
    puts = [what for _, what, _ in CountedFileSystem.asked if what.startswith("put rank") and what.endswith(".bin")]
    assert len(puts) <= 3, "the beginning, the end, and perhaps once in between"


def test_a_store_that_is_away_costs_nothing_and_loses_nothing(
    machine: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is said once, the whole recording stays here, and the next start on this machine copies it as well."""
    CountedFileSystem.broken = True
    guard = train("counted://far/run")
    assert guard.result().uploaded is None
    assert [line for line in caplog.messages if "the store is away" in line and "counted://far/run" in line]
    note = guard.result().notes[-1]
    assert "not everything could be copied to counted://far/run (ConnectionError" in note and str(machine) in note
    assert load_run([str(machine)]).summary.batches == 8
    with pytest.raises(RecordingError, match="the store is away"):
        load_run(["counted://far/run"])
    CountedFileSystem.broken = False
    lines = next(machine.rglob("*.jsonl"))
    gone = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True)
    lines.write_text(lines.read_text().replace(f'"pid": {os.getpid()}', f'"pid": {int(gone.stdout)}'))
    train("counted://far/run")
    assert [each.batches for each in load_run(["counted://far/run"]).ranks[0].starts] == [8, 8]


def test_batch_numbers_go_on_where_another_machine_left_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that was requeued elsewhere finds nothing on its own disk: the store tells."""
    train("counted://far/run")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "other"))
    (tmp_path / "other").mkdir()
    guard = train("counted://far/run")
    assert [each.batch for each in guard.records][:2] == [8, 9]
    assert load_run(["counted://far/run"]).summary.batches == 16


class Driven:
    """An uploader whose thread waits to be told that time has passed."""

    def __init__(self, url: str, **arguments: Any) -> None:
        self.now, self.pauses = 0.0, []
        self._go, self._waits = threading.Semaphore(0), threading.Semaphore(0)
        self.uploader = Uploader(
            find_destination(url),
            **{"rank": 0, "world_size": 1, "owns": lambda path: True, **arguments},
            wait=self._wait,
            clock=lambda: self.now,
        )
        self.uploader.start()
        assert self._waits.acquire(timeout=30)

    def _wait(self, seconds: float) -> bool:
        self.pauses.append(seconds)
        self._waits.release()
        return self._go.acquire(timeout=30)

    def pass_by(self, seconds: float) -> None:
        """So much time passes, and what is due is copied."""
        self.now += seconds
        self._go.release()
        assert self._waits.acquire(timeout=30)

    def finish(self) -> str | None:
        for _ in range(9):
            self._go.release()
        return self.uploader.finish(30)


def test_ever_longer_objects_are_written_ever_more_rarely() -> None:
    """A store that does not append gets a file as a whole: its size sets the pace, and the end does not wait for it."""
    destination = find_destination("counted://far/run")
    writer = RecordingWriter(destination.local, {"rank": 0})
    count = 60 * BYTES_PER_SECOND // RECORD_BYTES - 100
    writer.record(*map(record, range(count)))
    driven = Driven("counted://far/run")
    for _ in range(10):
        writer.record(record())
        driven.pass_by(PERIOD_SECONDS)
    sizes = [size for _, what, size in CountedFileSystem.asked if what.endswith(".bin")]
    assert len(sizes) == 6, "a minute's worth of bytes, every minute though it is asked every half"
    assert sizes[1] - sizes[0] == 2 * RECORD_BYTES
    writer.close()
    assert driven.finish() is None
    assert load_run(["counted://far/run"]).summary.batches == count + 10


def test_only_what_is_new_is_appended_where_that_can_be(tmp_path: Path) -> None:
    """On a disk that is shared, as a path or as a file:// URL."""
    destination = find_destination(f"file://{tmp_path}/shared/run")
    writer = RecordingWriter(destination.local, {"rank": 0})
    driven = Driven(f"file://{tmp_path}/shared/run")
    copy = tmp_path / "shared" / "run" / "memguard" / writer.path.name
    before = copy.stat()
    for batch in range(3):
        writer.record(record(batch))
        driven.pass_by(10)
        assert copy.stat().st_size == HEADER_BYTES + (batch + 1) * RECORD_BYTES
    assert copy.stat().st_ino == before.st_ino
    writer.close()
    assert driven.finish() is None and driven.pauses[0] == 10


def test_a_store_that_fails_is_asked_ever_more_rarely() -> None:
    """And again as usual once it answers."""
    RecordingWriter(find_destination("counted://far/run").local, {"rank": 0}).close()
    CountedFileSystem.broken = True
    driven = Driven("counted://far/run")
    for _ in range(9):
        driven.pass_by(driven.pauses[-1])
    assert driven.pauses[:3] == [4, 8, 16] and driven.pauses[-1] == LONGEST_PAUSE_SECONDS
    CountedFileSystem.broken = False
    driven.pass_by(LONGEST_PAUSE_SECONDS)
    assert driven.pauses[-1] == PERIOD_SECONDS and driven.uploader.problem is None
    assert driven.finish() is None


def test_a_thousand_ranks_ask_the_store_for_ten_writes_a_second() -> None:
    """The more ranks, the more rarely each of them copies."""
    RecordingWriter(find_destination("counted://far/run").local, {"rank": 7}).close()
    driven = Driven("counted://far/run", rank=7, world_size=1000)
    assert driven.pauses == [100.0]
    assert driven.finish() is None


def test_each_rank_copies_what_is_its_own() -> None:
    """Ranks of one machine share its local directory; a rank that lives copies for itself."""
    local = find_destination("counted://far/run").local
    for rank in range(3):
        RecordingWriter(local, {"rank": rank}).close()
    other = RecordingWriter(local, {"rank": 1})
    other.close()
    driven = Driven("counted://far/run", rank=1, owns=lambda path: path.stem != other.path.stem)
    assert driven.finish() is None
    bins = [what for _, what, _ in CountedFileSystem.asked if what.startswith("put") and what.endswith(".bin")]
    assert len(bins) == 1 and bins[0].startswith("put rank00001-") and other.path.name not in bins[0]


@pytest.mark.parametrize(
    ("kind", "shared"),
    [("ext4", False), ("nfs4", True), ("lustre", True), ("fuse.gcsfuse", True), ("fuse.portal", False)],
)
def test_a_path_on_a_shared_disk_is_written_here_first(kind: str, shared: bool, tmp_path: Path) -> None:
    """As the kernel's list of mounts tells what lies where; a path of this machine's own is written at once."""
    mounts = tmp_path / "mountinfo"
    place = str(tmp_path / "my runs").replace(" ", "\\040")
    mounts.write_text(f"21 1 8:1 / / rw - ext4 /dev/root rw\n36 21 0:40 / {place} rw shared:1 - {kind} host:/x rw\n")
    destination = find_destination(tmp_path / "my runs" / "run", mounts=mounts)
    assert (destination.shared == tmp_path / "my runs" / "run") is shared
    assert (destination.local == tmp_path / "my runs" / "run") is not shared
    assert not find_destination(tmp_path / "other", mounts=mounts).url


def test_a_name_in_a_listing_leads_nowhere_else(tmp_path: Path) -> None:
    """A store of a stranger's: only recordings are taken, under their own last names."""
    train("memory://far/run")
    fs = fsspec.filesystem("memory")
    fs.pipe_file("/far/run/memguard/../../rank00000-x.bin", b"evil")
    fs.pipe_file("/far/run/memguard/rank00001-20260101T000000000Z.bin", b"not a recording")
    run = load_run(["memory://far/run"])
    assert list(run.ranks) == [0]
    assert any("is not a memguard recording" in note for note in run.summary.notes)


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("nowhere://bucket/run", "does not know"),
        ("gs://bucket/run", "gcsfs"),
    ],
)
def test_a_url_that_cannot_be_reached_is_refused_at_once(
    url: str, words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With what is missing, and without its password."""
    monkeypatch.setitem(sys.modules, "gcsfs", None)
    secret = url.replace("://", "://me:secret@")
    with pytest.raises(ValueError, match=words) as caught:
        Options(logdir=secret)
    assert "secret" not in str(caught.value)
    assert main(["report", secret]) == 2
    error = capsys.readouterr().err
    assert words in error and "secret" not in error


def test_a_recording_keeps_no_password() -> None:
    """The options in it name the directory without one."""
    train("memory://me:secret@far/run")
    assert not any(b"secret" in bytes(file.getbuffer()) for file in MemoryFileSystem.store.values())


@pytest.fixture(scope="module")
def bucket() -> Iterator[Callable[..., subprocess.CompletedProcess[str]]]:
    """An S3 server on this machine; runs a program that has a bucket ``team`` there."""
    pytest.importorskip("s3fs")
    server = pytest.importorskip("moto.server")
    started = server.ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    started.start()
    host, port = started.get_host_and_port()
    own = {
        "AWS_ENDPOINT_URL": f"http://{host}:{port}",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
    }

    def run(code: str, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-W", "ignore", *(["-c", textwrap.dedent(code)] if code else []), *arguments]
        return subprocess.run(
            command, env={**os.environ, **own, **more}, capture_output=True, text=True, timeout=120, check=False
        )

    made = run("import s3fs; s3fs.S3FileSystem().mkdir('team')")
    assert made.returncode == 0, made.stderr
    yield run
    started.stop()


TRAINING = """
import sys, torch, memguard
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
memguard.wrap(model, device="virtual:4MiB", logdir="s3://team/runs/one")
for batch in range(20):
    model(torch.randn(2, 4)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
if "fails" in sys.argv:
    torch.randn(4 << 20)
"""


@pytest.mark.long
def test_an_object_store_has_all_of_a_run_when_the_process_is_over(
    bucket: Callable[..., subprocess.CompletedProcess[str]], machine: Path
) -> None:
    """Of one that ended, whose recording is closed as Python ends, and of one that failed; report and tab read both."""
    done = bucket(TRAINING, TMPDIR=str(machine))
    assert done.returncode == 0 and "Recording: s3://team/runs/one (on this machine: " in done.stderr, done.stderr
    told = json.loads(bucket("", "-m", "memguard", "report", "s3://team/runs", "--json").stdout)
    assert (told["batches"], told["ended"]) == ({"train": 20}, "finished")
    (machine / "other").mkdir()
    failed = bucket(TRAINING, "fails", TMPDIR=str(machine / "other"))
    assert failed.returncode == 1 and "could be copied" not in failed.stderr, failed.stderr
    told = json.loads(bucket("", "-m", "memguard", "report", "s3://team/runs/one", "--json").stdout)
    assert told["ended"] == "an exception: OutOfMemoryError" and told["oom"]["batch"] == 40
    assert [each["batches"] for each in told["ranks"][0]["sessions"]] == [20, 20]
    code = """
        import sys
        from memguard.tensorboard_plugin.store import Store
        process = Store("s3://team").process("runs/one", 0, 0)
        print(process.summary()["count"], "torch" in sys.modules)
    """
    seen = bucket(code)
    assert seen.stdout.split() == ["20", "False"], seen.stderr


def test_a_bucket_that_is_not_there_is_not_made(
    bucket: Callable[..., subprocess.CompletedProcess[str]], machine: Path
) -> None:
    """A mistyped name must not become a bucket: the run ends as it would, and says where its recording is."""
    done = bucket(TRAINING.replace("team", "taem"), TMPDIR=str(machine))
    assert done.returncode == 0
    assert "not everything could be copied to s3://taem/runs/one" in done.stderr
    listed = bucket("import s3fs; print(s3fs.S3FileSystem().ls(''))")
    assert listed.stdout.strip() == "['team']"
