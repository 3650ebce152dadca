"""Which variables go with the batch, by the functions that call backward."""

from __future__ import annotations

import sys
from types import FrameType

import pytest

from memguard.evidence.naming.groups import is_given, passes_on
from memguard.heap.children import Scope, Via
from memguard.heap.frames import user_frames
from memguard.heap.walk import Link
from memguard.source.model import Sources
from memguard.source.name_query import Statement


class Loss:
    """Stands in for a tensor."""

    def backward(self) -> None:
        """Does nothing."""


def frames_of_tests() -> list[FrameType]:
    """The frames of this file, innermost first."""
    return [frame for frame in user_frames(sys._getframe(1)) if frame.f_code.co_filename == __file__]


def passing_variables() -> set[str]:
    """Names of the functions on the stack whose variables go with the batch."""
    sources, frames = Sources(), frames_of_tests()[1:]
    return {
        frame.f_code.co_name
        for frame in frames
        if passes_on(Link(None, Via.LOCAL, "h", Link(Scope.of_frame(frame), Via.ROOT)), frames, sources)
    }


def unroll() -> set[str]:
    return passing_variables()


def one_batch() -> set[str]:
    found = unroll()
    Loss().backward()
    return found


def epoch() -> set[str]:
    return [one_batch() for _ in range(2)][-1]


def all_in_one() -> set[str]:
    found: set[str] = set()
    for _ in range(2):
        found = unroll()
        Loss().backward()
    return found


@pytest.mark.parametrize(
    ("loop", "passing"), [(epoch, {"unroll", "one_batch"}), (all_in_one, {"unroll"})], ids=["in parts", "in one"]
)
def test_what_is_called_for_each_batch_does_not_last(loop: object, passing: set[str]) -> None:
    """A function with a backward outside any loop, and those below it, are called anew; one with the loop lasts."""
    assert callable(loop) and loop() == passing


def given(state: object, *, loops: bool, name: str = "state") -> bool:
    own = 0
    assert own == 0
    frame = sys._getframe()
    link = Link(None, Via.LOCAL, name, Link(Scope.of_frame(frame), Via.ROOT))
    return is_given(link, Statement(__file__, 1, "given", f"{name} = f({name})", True, loops=loops), [frame])


def test_what_a_function_is_given_and_changes_once_is_its_caller_s() -> None:
    """A variable of its own is not, nor is an argument that a loop of its own changes again and again."""
    assert given(None, loops=False)
    assert not given(None, loops=True)
    assert not given(None, loops=False, name="own")
