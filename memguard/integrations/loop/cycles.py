"""Finds what a loop repeats: the events of one turn, whatever they are.

A turn may be a forward and a step; the forwards and steps of a GAN; four micro-batches and a step; some moves and an
update; or a forward alone. Each event is written down with what followed from it, and where the newest of them repeat
for many batches, one turn of them is the loop's.
"""

from __future__ import annotations

from typing import NamedTuple, final

from memguard.records.fast_path_state import LoopEvent
from memguard.records.stats import Stage

SETTLED_BATCHES = 64
"""Batches that must have repeated themselves, with evaluation or anything else between them or not."""
LEAST_STRETCH = 8
"""Batches without anything between them that count for that."""
LEAST_TURNS = 3
"""Turns of the loop that they must come to."""
MOST_EVENTS = 256
"""Events of one turn."""
_SEARCH_AGAIN = 16
_KEPT = 1024
_MOST_TURNS = 64
CALLED, ANSWERED, STEPPING, STEPPED = range(4)
_ROLL_OUTS = {Stage.TRAIN, Stage.PREDICT}


class Symbol(NamedTuple):
    """One event, and what followed from it."""

    kind: int
    number: int
    """The identity of the model or the optimizer."""
    training: bool
    grad: bool
    ends: bool
    begins: bool
    stage: Stage | None
    """Of the batch that begins."""


@final
class CycleFinder:
    """Takes the events of a loop one by one, and finds the turn that they repeat."""

    def __init__(self) -> None:
        self._symbols: dict[Symbol, Symbol] = {}
        self._trail: list[Symbol] = []
        self._repeated: dict[frozenset[Symbol], int] = {}
        """Batches of earlier stretches that repeated a turn, by its events: a stretch may begin anywhere in it."""
        self._stage: Stage | None = None
        self._batches, self._search_at = 0, SETTLED_BATCHES

    def clear(self) -> None:
        """What came before has nothing to do with what comes."""
        self._repeated.clear()
        self._restart()

    def interrupt(self) -> None:
        """Something else happens; the turn that the loop repeated until now may go on after it."""
        if self._batches >= LEAST_STRETCH:
            batches = self._settled()
            period = self._period(batches)
            if period is not None and len(self._repeated) < _MOST_TURNS:
                turn = frozenset(self._trail[-period:])
                self._repeated[turn] = self._repeated.get(turn, 0) + batches
        self._restart()

    def forget(self, turn: list[Symbol]) -> None:
        """A turn that was found did not go on: its earlier stretches count no more."""
        self._repeated.pop(frozenset(turn), None)

    def _restart(self) -> None:
        self._trail.clear()
        self._symbols.clear()
        self._batches, self._search_at = 0, min(LEAST_STRETCH, SETTLED_BATCHES) if self._repeated else SETTLED_BATCHES

    def push(self, symbol: Symbol) -> LoopEvent | None:
        """One more event.

        Returns:
            Where the loop turned out to repeat itself, this event in a ring of those of one turn.
        """
        stage = symbol.stage
        if stage is not None and stage is not self._stage:
            if {stage, self._stage} != _ROLL_OUTS:
                self.interrupt()
            self._stage = stage
        trail = self._trail
        trail.append(self._symbols.setdefault(symbol, symbol))
        if not symbol.begins:
            return None
        self._batches += 1
        if self._batches < self._search_at:
            return None
        self._search_at = self._batches + _SEARCH_AGAIN
        if len(trail) > 2 * _KEPT:
            del trail[:-_KEPT]
        batches = self._settled()
        period = self._period(batches)
        if period is None:
            return None
        turn = trail[-period - 1 : -1]
        if batches + self._repeated.get(frozenset(turn), 0) < SETTLED_BATCHES:
            return None
        self._restart()
        return _ring(turn) if _is_simple(turn) else None

    def _settled(self) -> int:
        """Of the batches since the last interruption those that are to be alike: the first ones often differ."""
        return SETTLED_BATCHES if self._batches >= SETTLED_BATCHES else self._batches * 3 // 4

    def _period(self, batches: int) -> int | None:
        """The events of one turn that the newest batches repeat."""
        trail, left = self._trail, batches
        start = len(trail)
        while left and start:
            start -= 1
            left -= trail[start].begins
        newest = trail[-1]
        for period in range(1, min(MOST_EVENTS, len(trail) // LEAST_TURNS) + 1):
            if trail[-1 - period] is newest:
                since = min(start, len(trail) - LEAST_TURNS * period)
                if trail[since + period :] == trail[since:-period]:
                    return period
        return None


def _is_simple(turn: list[Symbol]) -> bool:
    """Whether nothing in a turn is to be heard of by others.

    Evaluation beside training has its ends, at which much is learnt, and is a stretch of its own. Roll-outs have none,
    and are a part of a turn.
    """
    stages = {symbol.stage for symbol in turn if symbol.begins}
    for symbol, following in zip(turn, [*turn[1:], turn[0]], strict=True):
        is_call = symbol.kind == CALLED
        if is_call and (following.kind != ANSWERED or following.number != symbol.number):
            return False  # a forward within another one
        if is_call and symbol.grad and not symbol.training:
            return False  # the validation guard decides about it
        if (symbol.begins and not is_call) or (symbol.ends and symbol.kind not in (CALLED, STEPPED)):
            return False
    return len(stages) == 1 or stages == _ROLL_OUTS


def _ring(turn: list[Symbol]) -> LoopEvent:
    events = [_event(symbol) for symbol in turn]
    for event, following in zip(events, [*events[1:], events[0]], strict=True):
        event.next = following
    return events[0]


def _event(symbol: Symbol) -> LoopEvent:
    event = LoopEvent()
    event.symbol = symbol
    numbers = [0, 0, 0, 0]
    numbers[symbol.kind] = symbol.number
    event.called, event.answered, event.stepping, event.stepped = numbers
    event.training, event.grad = symbol.training, symbol.grad
    event.ends, event.begins = symbol.ends, symbol.begins
    if symbol.stage is not None:
        event.stage = symbol.stage
    return event
