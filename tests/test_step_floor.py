"""The floor of a training: where batches accumulate, and where the program ends."""

from __future__ import annotations

from memguard.records.kept_floor import LEAST, StepFloor, floor_of
from memguard.records.stats import Stage


def pushed(values: list[tuple[int, int]]) -> list[int]:
    floor = StepFloor()
    return [floor.push(value, steps) for value, steps in values]


def test_micro_batches_count_with_the_value_after_their_step() -> None:
    """What rises from micro-batch to micro-batch and falls with the step is level."""
    assert pushed([(3, 0), (5, 0), (2, 1), (3, 1), (5, 1), (2, 2)]) == [3, 5, 2, 2, 2, 2]


def test_a_step_in_each_batch_changes_nothing() -> None:
    """Each batch counts with its own value."""
    assert pushed([(value, value) for value in range(1, 9)]) == list(range(1, 9))


def test_without_steps_each_batch_counts() -> None:
    """A loop that updates its weights by hand, or whose optimizer steps no more."""
    assert pushed([(value, 0) for value in range(1, 9)]) == list(range(1, 9))
    assert pushed([(1, 1), *((value, 1) for value in range(2 * LEAST))])[-1] == 2 * LEAST - 1


def test_what_the_end_of_the_program_frees_is_no_fall() -> None:
    """A batch that is open until the program is over ends with nothing: the rise before it counts all the same."""
    grows = [(batch, 0, (20 + 8 * batch) * 2**20, 0) for batch in range(14)]
    floor = floor_of(Stage.TRAIN, [*grows, (14, 0, 0, 0)])
    assert floor.rise_bytes == 72 * 2**20 and not floor.fell
