"""Work done in a forked child: the trace changes torch for its process, and the user's model must not notice."""

from __future__ import annotations

import os
import pickle
import re
import signal
import sys
import traceback
import warnings
from collections.abc import Callable
from typing import Any, TypeVar, final

from memguard.errors import MemGuardError

Result = TypeVar("Result")

_NO_FAKE = re.compile(r"(\S+): attempted to run this operator with Meta tensors")


@final
class StepError(MemGuardError):
    """The user's own code raised while it was traced; the text says what and where."""


def in_child(work: Callable[[], Result]) -> Result:
    """What `work` returns, computed in a forked copy of this process; the result travels as a pickle.

    Nothing that `work` does is seen here: not what it changes, not its memory, not its crash. What it prints to stdout
    goes to stderr.

    Raises:
        StepError: `work` raised.
        MemGuardError: The platform cannot fork, or the child died.
    """
    if not hasattr(os, "fork"):
        raise MemGuardError("a forecast needs os.fork, which this platform does not have; run it on Linux or macOS")
    sys.stdout.flush()
    sys.stderr.flush()
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        # Python warns of threads; the child starts none and takes no lock of theirs.
        warnings.simplefilter("ignore")
        child = os.fork()
    if child == 0:
        os.close(reader)
        _run(work, writer)
    os.close(writer)
    try:
        with os.fdopen(reader, "rb") as pipe:
            answer = pipe.read()
    finally:
        _, status = os.waitpid(child, 0)
    if not answer:
        code = os.waitstatus_to_exitcode(status)
        reason = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        raise MemGuardError(f"the traced step ended its process ({reason}); the lines above may say why")
    ok, value = pickle.loads(answer)
    if ok:
        return value  # type: ignore[no-any-return]
    raise (StepError if value[0] else MemGuardError)(value[1])


def _run(work: Callable[[], Any], writer: int) -> None:
    """The child's whole life; it never returns."""
    try:
        os.dup2(2, 1)
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
    own = os.path.dirname(os.path.dirname(__file__)) + os.sep
    users = [frame for frame in frames if "site-packages" not in frame.filename and not frame.filename.startswith(own)]
    text = str(error).strip().splitlines()
    for cause in (error, error.__context__):
        if missing := _NO_FAKE.search(str(cause)):
            text = [f"{missing[1]} has no kernel for fake tensors, so a step that uses it cannot be forecast"]
    where = f" at {users[-1].filename}:{users[-1].lineno}" if users else ""
    return f"{type(error).__name__}{where}: {text[0] if text else 'no message'}"
