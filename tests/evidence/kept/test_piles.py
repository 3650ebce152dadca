"""What is told of copies of the weights."""

import sys
from dataclasses import replace
from types import FrameType

from memguard.evidence.kept.copies import Copy, CopyGroups
from memguard.heap.frames import user_frames
from memguard.records.facts import CheckpointKept, Fact, ModelCopies, Place
from memguard.records.stats import Stage
from memguard.source.stores import ends_with_a_call


def kept(holder: str, line: int, *, source: str = "", averaged: bool = False) -> Copy:
    return Copy(Place(file="train.py", line=line, function="main", holder=holder, source=source), 100, averaged)


def told(piles: CopyGroups, found: list[Copy], frames: list[FrameType] | None = None) -> list[Fact]:
    return list(piles.facts(found, frames or [], batch=5, stage=Stage.TRAIN))


def test_the_longest_pile_names_them_all() -> None:
    """Of several holders the one with most copies is the place, not the one that was met first."""
    (fact,) = told(CopyGroups(), [kept("weights", 3), kept("Server.received", 9), kept("Server.received", 9)])
    assert isinstance(fact, ModelCopies)
    assert (fact.place.line, fact.copies, fact.bytes) == (9, 3, 300)
    assert fact.holders == ("Server.received", "weights")


def test_only_more_than_ever_is_told() -> None:
    """The same copies again, or fewer, are no news."""
    piles, found = CopyGroups(), [kept("best", 3), kept("last", 4)]
    assert len(told(piles, found)) == 1
    assert told(piles, found) == told(piles, found[:1]) == []
    assert len(told(piles, [*found, kept("best", 3)])) == 1


def test_checkpoints_and_averages_are_told_apart() -> None:
    """What was loaded is a checkpoint unless it lies in the host's memory; averages stand by themselves."""
    found = [
        kept("ckpt", 1, source="ckpt = torch.load(path)"),
        kept("cpu", 2, source='cpu = torch.load(path, map_location="cpu")'),
        kept("ema", 3, averaged=True),
        kept("optimizer_state", 4),
    ]
    checkpoint, average = told(CopyGroups(), found)
    assert isinstance(checkpoint, CheckpointKept)
    assert checkpoint.place.line == 1
    assert isinstance(average, ModelCopies)
    assert (average.averaged, average.copies) == (True, 1)


def test_the_weights_of_many_epochs_are_no_average() -> None:
    """Whatever the name says of them: ``TailAverage.epoch_weights``."""
    (few,) = told(CopyGroups(), [kept("emas", 3, averaged=True)] * 4)
    (many,) = told(CopyGroups(), [kept("emas", 3, averaged=True)] * 5)
    assert isinstance(few, ModelCopies) and isinstance(many, ModelCopies)
    assert (few.averaged, many.averaged) == (True, False)


def test_what_nothing_shows_to_be_copies_is_marked_and_so_is_an_average_that_does_not_change() -> None:
    """One of a pile is enough; an average is one by its name, until it was written to."""
    copy, other = kept("best", 3), replace(kept("SAM.e", 4), alike=True)
    for found, alike in (([copy], False), ([copy, other], True)):
        (fact,) = told(CopyGroups(), found)
        assert isinstance(fact, ModelCopies) and fact.alike is alike
    for written in (True, False):
        (fact,) = told(CopyGroups(), [replace(kept("ema", 3, averaged=True), written=written, alike=True)])
        assert isinstance(fact, ModelCopies)
        assert (fact.changing, fact.alike) == (written, False)


def test_copies_in_a_container_that_has_a_limit_are_told_beside_a_pile() -> None:
    """A window of the last few is none, and makes none of others."""
    window = [replace(kept("window", 5), limited=True)] * 4
    facts = told(CopyGroups(), [kept("best", 3), *window])
    assert [(f.copies, f.limited) for f in facts if isinstance(f, ModelCopies)] == [(1, False), (4, True)]


def federated(rounds: int) -> list[bool]:
    """Rounds in a loop, each with a list of its own, and one list for all of them."""
    everything, found = ["weights"], []

    def one_round() -> bool:
        updates = ["weights"]
        frames = list(user_frames(sys._getframe()))
        here = {"file": __file__, "line": frames[0].f_lineno}
        name = getattr(frames[0].f_code, "co_qualname", "one_round")
        ends = ends_with_a_call(Place(holder="updates", function=name, **here), frames)
        lasts = ends_with_a_call(Place(holder="everything", function="federated", **here), frames[1:])
        assert not ends_with_a_call(Place(holder="Server.updates", function=name, **here), frames)
        return ends and not lasts and bool(updates and everything)

    for _ in range(rounds):
        found.append(one_round())  # noqa: PERF401
    return found


def test_a_list_of_a_round_ends_with_it() -> None:
    """A local of a function that is called in a loop ends soon; one of the function with the loop does not."""
    assert federated(2) == [True, True]


def test_passing_copies_are_told_beside_lasting_ones() -> None:
    """A round's copies are marked as such, and never hide a pile that stays."""

    def one_round() -> list[Fact]:
        updates = [kept("updates", 7)] * 3
        frame = sys._getframe()
        mine = Place(
            file=__file__, line=7, function=getattr(frame.f_code, "co_qualname", "one_round"), holder="updates"
        )
        found = [Copy(mine, 100, False) for _ in updates] + [kept("Server.received", 9)]
        return told(CopyGroups(), found, list(user_frames(frame)))

    for _ in range(2):
        facts = one_round()
        assert [(f.passing, f.copies) for f in facts if isinstance(f, ModelCopies)] == [(False, 1), (True, 3)]
