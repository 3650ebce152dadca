import os
import signal

import pytest

from memguard.errors import MemGuardError
from memguard.forecast.child import StepError, in_child, in_children


def _big(number):
    return lambda: (number, "x" * 300_000)  # more than a pipe holds


def _dies():
    os.kill(os.getpid(), signal.SIGKILL)


def _raises():
    raise KeyError("no such layer")


def test_several_works_answer_in_their_order():
    """One that raises or dies is an error in its place; the others have their results."""
    works = [_big(0), _raises, _big(2), _dies, *map(_big, range(4, 30))]
    found = list(in_children(works))
    assert [found[n] for n in (0, 2, *range(4, 30))] == [_big(n)() for n in (0, 2, *range(4, 30))]
    assert type(found[1]) is StepError and "no such layer" in str(found[1])
    assert type(found[3]) is MemGuardError and "SIGKILL" in str(found[3])
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


def test_a_result_may_be_larger_than_a_pipe_holds():
    """It is read while it is written."""
    assert in_child(_big(7)) == _big(7)()
