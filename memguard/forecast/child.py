"""Work done in a forked child: the trace changes torch for its process, and the user's model must not notice."""

from __future__ import annotations

import itertools
import os
import pickle
import re
import select
import signal
import sys
import sysconfig
import time
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, TypeVar, final

from memguard.errors import MemGuardError

Result = TypeVar("Result")

_MOST_AT_ONCE = 8
"""Each takes a quarter of a gigabyte."""
_NO_ENGINE = "Cannot access accelerator device when none is available"
_LOST = "CUDA error: initialization error"
_OWN = os.path.dirname(os.path.dirname(__file__)) + os.sep
_PYTHON = sysconfig.get_path("stdlib") + os.sep
_NO_FAKE = re.compile(r"(\S+): attempted to run this operator with Meta tensors")


@final
class StepError(MemGuardError):
    """The user's own code raised while it was traced; the text says what and where."""


@final
class _Child(Generic[Result]):
    """One forked copy of this process at work."""

    def __init__(self, work: Callable[[], Result], timeout_seconds: float | None, quiet: bool) -> None:
        if not hasattr(os, "fork"):
            raise MemGuardError("a forecast needs os.fork, which this platform does not have; run it on Linux or macOS")
        sys.stdout.flush()
        sys.stderr.flush()
        self._timeout_seconds = timeout_seconds
        self._reader, writer = os.pipe()
        with warnings.catch_warnings():
            # Python warns of threads; the child starts none and takes no lock of theirs.
            warnings.simplefilter("ignore")
            self._process = os.fork()
        if self._process == 0:
            os.close(self._reader)
            if timeout_seconds is not None:
                os.setpgid(0, 0)  # so that all of it can be killed
            _run(work, writer, quiet)
        os.close(writer)

    def result(self) -> Result:
        """What it computed; waits for it."""
        try:
            answer = _read(self._reader, self._timeout_seconds)
            if answer is None:
                os.killpg(self._process, signal.SIGKILL)
        finally:
            os.close(self._reader)
            _, status = os.waitpid(self._process, 0)
        if answer is None:
            raise MemGuardError(f"the trace was not done after {self._timeout_seconds:.0f} s and was given up")
        if not answer:
            code = os.waitstatus_to_exitcode(status)
            reason = signal.Signals(-code).name if code < 0 else f"exit code {code}"
            raise MemGuardError(f"the traced step ended its process ({reason}); the lines above may say why")
        ok, value = pickle.loads(answer)
        if ok:
            return value  # type: ignore[no-any-return]
        raise (StepError if value[0] else MemGuardError)(value[1])


def in_child(work: Callable[[], Result], *, timeout_seconds: float | None = None, quiet: bool = False) -> Result:
    """What `work` returns, computed in a forked copy of this process; the result travels as a pickle.

    Nothing that `work` does is seen here: not what it changes, not its memory, not its crash. What it prints to stdout
    goes to stderr.

    Args:
        work: What to compute.
        timeout_seconds: How long to wait before the child, and what it started, is killed.
        quiet: Drop what it prints to stdout: it has been seen.

    Raises:
        StepError: `work` raised.
        MemGuardError: The platform cannot fork, or the child died or was given up.
    """
    return _Child(work, timeout_seconds, quiet).result()


def in_children(works: Iterable[Callable[[], Result]], *, quiet: bool = True) -> Iterator[Result | MemGuardError]:
    """What each of several works returns, or how it failed, in their order; as many at once as there are processors.

    Each is computed as by `in_child`, and what it prints to stdout is dropped; of the first only if it is to be quiet.
    """
    waiting = iter(works)
    at_once = itertools.islice(waiting, processors())
    running = [_Child(work, None, quiet or number > 0) for number, work in enumerate(at_once)]
    while running:
        try:
            yield running.pop(0).result()
        except MemGuardError as error:
            yield error
        running += [_Child(work, None, True) for work in itertools.islice(waiting, 1)]


def processors() -> int:
    """How many children work at once."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(count, _MOST_AT_ONCE)


def _read(reader: int, timeout_seconds: float | None) -> bytes | None:
    """All that the child writes; None if it has not ended in time."""
    until = None if timeout_seconds is None else time.monotonic() + timeout_seconds
    parts: list[bytes] = []
    while True:
        left = None if until is None else max(until - time.monotonic(), 0.0)
        if not select.select([reader], [], [], left)[0]:
            return None
        part = os.read(reader, 1 << 20)
        if not part:
            return b"".join(parts)
        parts.append(part)


def _run(work: Callable[[], Any], writer: int, quiet: bool) -> None:
    """The child's whole life; it never returns."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY) if quiet else 2, 1)
        _renew_thread_pool()
        try:
            answer = pickle.dumps((True, work()))
        except MemGuardError as error:
            answer = pickle.dumps((False, (isinstance(error, StepError), str(error))))
        except BaseException as error:  # the parent says it
            answer = pickle.dumps((False, (True, describe(error))))
        with os.fdopen(writer, "wb") as pipe:
            pipe.write(answer)
        sys.stderr.flush()
    finally:
        os._exit(0)


def describe(error: BaseException) -> str:
    """One line for an exception of the user's code: its type, its text, and the innermost line outside libraries."""
    frames = traceback.extract_tb(error.__traceback__)
    users = [frame for frame in frames if not of_a_library(frame.filename)]
    text = str(error).strip().splitlines()
    if _NO_ENGINE in str(error):
        text = ["gradients of torch.func ask for a GPU's streams, so a step that uses them cannot be forecast"]
        if frames and frames[-1] in users:
            text = ["a step may name a GPU by its number if the model was put there by its number too; or write cuda:0"]
    if _LOST in str(error):
        text = [
            "PyTorch asks the GPU's driver here (as for recurrent layers in bfloat16), which no fork of a process that "
            "uses CUDA can: forecast before anything is on the GPU, or with `memguard forecast` on the command line"
        ]
    where = f" at {users[-1].filename}:{users[-1].lineno}" if users else ""
    if isinstance(error, SyntaxError) and error.filename:
        text, where = [error.msg], f" at {error.filename}:{error.lineno}"
    for cause in (error, error.__context__):
        if missing := _NO_FAKE.search(str(cause)):
            text = [f"{missing[1]} has no kernel for fake tensors, so a step that uses it cannot be forecast"]
    return f"{type(error).__name__}{where}: {text[0] if text else 'no message'}"


def of_a_library(file: str) -> bool:
    """Whether a file is none of the user's."""
    return "site-packages" in file or file.startswith(("<frozen ", _OWN, _PYTHON))


def _renew_thread_pool() -> None:
    """Lets torch replace the thread pool of the parent, which no fork survives, while there is one thread only.

    Where there are GPUs autograd starts a thread for each, and two that come to the pool at once end the process
    ("Invalid thread pool", pthreadpool-cpp.cc).
    """
    if (torch := sys.modules.get("torch")) is not None:
        torch.set_num_threads(torch.get_num_threads())
