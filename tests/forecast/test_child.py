import os
import signal

from memguard.errors import MemGuardError
from memguard.forecast.child import StepError, in_child, in_children


def _big(number):
    return lambda: (number, "x" * 300_000)  # more than a pipe holds


def _dies():
    os.kill(os.getpid(), signal.SIGKILL)


def _raises():
    raise KeyError("no such layer")


def test_several_works_answer_in_their_order():
    """One that raises or dies is an error in its place; the others have their results, and no process is left."""
    works = [_big(0), _raises, _big(2), _dies, *map(_big, range(4, 30))]

    def alone():  # in a process that has no other children
        found = list(in_children(works))
        try:
            os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return [(type(item), str(item)) if isinstance(item, MemGuardError) else item for item in found]
        return "a child is left"

    found = in_child(alone)
    assert [found[n] for n in (0, 2, *range(4, 30))] == [_big(n)() for n in (0, 2, *range(4, 30))]
    assert found[1][0] is StepError and "no such layer" in found[1][1]
    assert found[3][0] is MemGuardError and "SIGKILL" in found[3][1]


def test_a_result_may_be_larger_than_a_pipe_holds():
    """It is read while it is written."""
    assert in_child(_big(7)) == _big(7)()
