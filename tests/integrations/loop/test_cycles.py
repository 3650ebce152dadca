"""What a loop repeats is found, wherever it begins, and what others must hear of is left alone."""

from memguard.integrations.loop.cycles import (
    ANSWERED,
    CALLED,
    SETTLED_BATCHES,
    STEPPED,
    STEPPING,
    CycleFinder,
    Symbol,
)
from memguard.records.fast_path_state import LoopEvent
from memguard.records.stats import Stage


def forward(
    model: int, *, ends: bool = False, begins: bool = False, stage: Stage = Stage.TRAIN, grad: bool = True
) -> list[Symbol]:
    """A call of a model and its answer; in evaluation mode where it is one of validation."""
    training = stage is not Stage.VALIDATION
    called = Symbol(CALLED, model, training, grad, ends, begins, stage if begins else None)
    return [called, Symbol(ANSWERED, model, False, False, False, False, None)]


def step(optimizer: int, *, ends: bool = True) -> list[Symbol]:
    """A step, with which a batch may end."""
    return [
        Symbol(kind, optimizer, False, False, ends and kind == STEPPED, False, None) for kind in (STEPPING, STEPPED)
    ]


SIMPLE = forward(1, begins=True) + step(9)
GAN = forward(1, begins=True) + forward(2) + forward(2) + step(8) + forward(2, begins=True) + step(9)
BY_HAND = forward(1, ends=True, begins=True)
MOVES = forward(1, begins=True, stage=Stage.PREDICT, grad=False) + forward(1, ends=True, begins=True) + step(9)
EVALUATED = SIMPLE + forward(1, begins=True, ends=False, stage=Stage.VALIDATION, grad=False)


def found(events: list[Symbol]) -> list[LoopEvent]:
    """One turn of what is found in these events."""
    finder = CycleFinder()
    for symbol in events:
        if (event := finder.push(symbol)) is not None:
            turn = [event]
            while (event := event.next) is not turn[0]:
                turn.append(event)
            return turn
    return []


def test_a_turn_is_found_whatever_it_consists_of() -> None:
    """The shortest that the events repeat, from the first batch that begins in it."""
    for turn in (SIMPLE, GAN, BY_HAND, MOVES):
        symbols = [event.symbol for event in found(turn * (SETTLED_BATCHES + 3))]
        assert symbols in [turn[i:] + turn[:i] for i in range(len(turn))]


def test_a_turn_is_found_after_whatever_came_first() -> None:
    """A loop need not have begun with it."""
    assert len(found(GAN * 20 + forward(3, begins=True) + SIMPLE * 200)) == len(SIMPLE)


def test_nothing_is_found_too_early_or_where_nothing_repeats() -> None:
    """A stretch of alike batches is no loop, nor is one whose turns grow."""
    assert not found(SIMPLE * (SETTLED_BATCHES - 1))
    assert not found([symbol for n in range(60) for symbol in SIMPLE * n + forward(2)])


def test_turns_that_others_must_hear_of_are_left_alone() -> None:
    """Evaluation within training has an end that tells much; with gradients a guard decides about it; nested calls."""
    nested = [SIMPLE[0], *forward(2), *SIMPLE[1:]]
    with_gradients = forward(1, ends=True, begins=True, stage=Stage.VALIDATION)
    for turn in (EVALUATED, nested, with_gradients):
        assert not found(turn * 200)


def test_batches_before_an_evaluation_count_after_it() -> None:
    """Epochs shorter than a settled loop come to one together, unless the turn was forgotten in between."""
    evaluated = forward(1, begins=True, stage=Stage.VALIDATION, grad=False) * 3
    epoch = SIMPLE * 20 + evaluated
    symbols = [event.symbol for event in found(epoch * 6)]
    assert symbols in [SIMPLE[i:] + SIMPLE[:i] for i in range(len(SIMPLE))]
    finder = CycleFinder()
    for _ in range(6):
        assert not any(finder.push(symbol) for symbol in epoch)
        finder.interrupt()
        finder.forget(SIMPLE)


def test_a_stretch_of_evaluation_is_a_loop_of_its_own() -> None:
    """Its batches count together too; the training around it is another turn."""
    evaluated = forward(1, ends=True, begins=True, stage=Stage.VALIDATION, grad=False)
    assert len(found((SIMPLE * 5 + evaluated * 24) * 6)) == len(evaluated)
