"""Every file operation fails, at every turn: the training goes on, with one warning."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import resource
import shutil
import signal
import subprocess
import sys
import threading
import tracemalloc  # noqa: F401 # pytest asks for it when a thread dies, also where no file can be opened any more
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import memguard
from memguard.recording.reader import Recording, find_recordings
from tests.chaos.training import Truth, assert_same, first_lines, train, unguarded, watched


@pytest.fixture(scope="module")
def truth() -> Truth:
    return Truth(train(unguarded))


def failing(real: Callable[..., Any], number: int, error: OSError) -> Callable[..., Any]:
    """The real call, until the given one and for ever after; threads that other tests left are spared."""
    count = 0
    others = {thread.ident for thread in threading.enumerate()} - {threading.get_ident()}

    def call(*args: Any, **kwargs: Any) -> Any:
        nonlocal count
        if threading.get_ident() in others:
            return real(*args, **kwargs)
        count += 1
        if count > number:
            raise error
        return real(*args, **kwargs)

    return call


def open_files() -> list[str]:
    """What this process holds open, sorted; the folders of other tests left out, which pytest is about to delete.

    A closing guard waits a second for its slow lane. On a busy machine that may still be at its last words by then, the
    text of a traceback, for which Python reads source files.
    """
    for thread in threading.enumerate():
        if thread.name == "memguard-slow-lane":
            thread.join(60)
    targets = []
    for number in os.listdir("/proc/self/fd"):
        try:
            targets.append(os.readlink(f"/proc/self/fd/{number}"))
        except OSError:
            continue  # closed since it was listed
    return sorted(target for target in targets if not os.path.isdir(target))


@pytest.mark.parametrize("name", ["open", "write", "close", "pread", "listdir", "mkdir"])
@pytest.mark.parametrize("number", [0, 1, 3, 9])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EACCES, errno.EIO])
def test_a_system_call_that_fails_from_now_on(
    name: str,
    number: int,
    code: int,
    truth: Truth,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A full disk, a lost permission, a broken disk: at most one warning for the recording and one for TensorBoard."""
    guarding = watched(tmp_path, device="cpu", log_every=2)
    before = Counter(open_files())
    monkeypatch.setattr(os, name, failing(getattr(os, name), number, OSError(code, os.strerror(code))))
    numbers = train(guarding)
    monkeypatch.undo()
    assert_same(numbers, truth)
    lines = first_lines(caplog.records)
    assert len(lines) == len(set(lines)) <= 2, lines
    if name != "close":
        assert Counter(open_files()) - before == Counter()


def test_a_directory_that_is_deleted_while_it_is_written(truth: Truth, tmp_path: Path) -> None:
    """The files are gone; nothing is said, for the system accepts what is written."""
    logdir, guard = tmp_path / "run", None

    def guarding(*args: Any) -> Any:
        nonlocal guard
        guard = memguard.watch(*args, logdir=logdir, quiet=True, device="cpu", log_every=1)
        guard.session.recorder.listeners.append(lambda records: shutil.rmtree(logdir, ignore_errors=True))
        return guard

    assert_same(train(guarding), truth)


@pytest.mark.parametrize("where", ["file/below", "/proc/memguard", "/dev/null/x"])
def test_a_logdir_that_cannot_be(where: str, truth: Truth, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A directory below a file, or where none can be made: one line, and nothing to report to us."""
    (tmp_path / "file").write_text("")
    assert_same(train(watched(tmp_path / where, device="cpu", log_every=2)), truth)
    lines = first_lines(caplog.records)
    assert len(lines) == 1 and "the recording stopped" in lines[0], lines


def test_a_file_that_may_not_grow(truth: Truth, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The limit of the file size comes in the middle of a record: the rest reads up to the last whole one."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096 + 128 * 3 + 50, before[1]))
    try:
        numbers = train(watched(tmp_path, device="cpu", log_every=1000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert_same(numbers, truth)
    assert len(Recording.open(find_recordings(tmp_path)[0])) == 3
    assert len(first_lines(caplog.records)) <= 2


def train_without_descriptors(folder: Path) -> None:
    """Trains where the process may open nothing more; for a process of its own: other tests' threads open files too."""
    truth, records = train(unguarded), list[logging.LogRecord]()
    train(watched(folder / "first", device="cpu", log_every=2))  # imports what it imports
    guarding = watched(folder, device="cpu", log_every=2)
    handler = logging.Handler()
    handler.emit = records.append  # type: ignore[method-assign]
    logging.getLogger("memguard").addHandler(handler)
    most = max(int(number) for number in os.listdir("/proc/self/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    with contextlib.suppress(OSError):
        while True:
            os.dup(0)
    numbers = train(guarding)
    assert_same(numbers, truth)
    lines = first_lines(records)
    assert lines and len(lines) == len(set(lines)), lines


def test_no_file_descriptor_is_left(tmp_path: Path) -> None:
    """The program has used up its open files: memguard gets none, and the training goes on."""
    code = (
        "from tests.chaos.test_files_failing import *; train_without_descriptors(Path(sys.argv[1])); print('trained')"
    )
    command = [sys.executable, "-c", f"import sys; from pathlib import Path; {code}", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[2], timeout=300)
    assert done.returncode == 0 and done.stdout.splitlines()[-1] == "trained", done.stderr


def test_a_slow_disk_is_waited_for_and_nothing_else(
    truth: Truth, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each write takes a while, and a signal comes in between: all records are there."""
    real, waited = os.write, []
    monkeypatch.setattr(os, "write", lambda *args: (waited.append(sum(range(20_000))), real(*args))[1])
    assert_same(train(watched(tmp_path, device="cpu", log_every=2)), truth)
    assert waited
    assert len(Recording.open(find_recordings(tmp_path)[0])) == 12
