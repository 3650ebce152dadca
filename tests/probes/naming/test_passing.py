"""Which variables go with the batch, by the functions that call backward."""

from __future__ import annotations

import sys
from types import FrameType

import pytest

from memguard.probes.naming.passing import passes_on
from memguard.probes.naming.walk import Link
from memguard.probes.objects import Scope, Via
from memguard.probes.objects.frames import user_frames
from memguard.source.syntax import Sources


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
