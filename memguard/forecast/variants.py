"""The traces of one step: as it is written, with another batch size, with a change, on another card; each made once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, final

from memguard.errors import MemGuardError
from memguard.forecast.cards import Card
from memguard.forecast.child import StepError, describe, in_child, in_children
from memguard.forecast.fakes.compiled import has_compiled, warm_up_compiler
from memguard.forecast.recorded import Measured, scaled
from memguard.forecast.session import Made, trace
from memguard.forecast.setting import Setting
from memguard.forecast.trace import Trace

Make = Callable[[int | None], Made]
"""Builds model, optimizer and step for a batch size; None leaves it as the user wrote it."""
Say = Callable[[str, int, int], None]
"""Told what is being traced, how many traces are made, and how many are wanted so far; for a progress bar."""


class Variant(NamedTuple):
    """What a trace is made for, where that differs from the step as it is written."""

    batch: int | None = None
    change: str | None = None
    card: Card | None = None
    rank: int = 0


@final
class Variants:
    """Traces by what they were made for.

    Args:
        make: Builds model, optimizer and step.
        setting: That of the step as it is written; its batch size is the one for which it is written.
        takes_batch: ``make`` builds the step for the batch size it is given; else inputs are given another size.
        say: Told what is being traced.
    """

    def __init__(self, make: Make, setting: Setting, *, takes_batch: bool, say: Say) -> None:
        self._make = make
        self._setting = setting
        self._takes_batch = takes_batch
        self._say = say
        self._made: dict[Variant, Trace | MemGuardError] = {}
        self._compiler_is_warm = False
        self._card_of: dict[tuple[int, int], Card] = {}

    def variant(
        self, batch: int | None = None, change: str | None = None, card: Card | None = None, rank: int = 0
    ) -> Variant:
        """What to trace for these: equal ones have one trace, and cards of one compute capability too."""
        if card is not None:
            capability = card.compute_capability
            other = capability != self._setting.compute_capability
            card = self._card_of.setdefault(capability, card) if other else None
        return Variant(batch if batch != self._setting.batch else None, change, card, rank)

    def trace(self, variant: Variant) -> Trace:
        """The trace of a variant.

        Raises:
            MemGuardError: It could not be made.
        """
        if variant not in self._made:
            batch = f" batch {variant.batch}" if variant.batch else ""
            of_rank = f" rank {variant.rank}" if self._setting.processes else ""
            text = f"tracing{of_rank}{batch}{f', {variant.change}' if variant.change else ''}"
            self._say(text, len(self._made), len(self._made) + 1)
            self._made[variant] = self._settled(variant, in_child(self._work(variant), quiet=bool(self._made)))
        made = self._made[variant]
        if isinstance(made, MemGuardError):
            raise made
        return made

    def make_all(self, variants: Iterable[Variant]) -> None:
        """Make the traces that will be asked for next, several at a time; one that fails says so when it is asked."""
        new = [variant for variant in dict.fromkeys(variants) if variant not in self._made]
        wanted = len(self._made) + len(new)
        traces = in_children(map(self._work, new), quiet=bool(self._made))
        for variant in new:
            batch = f" batch {variant.batch}" if variant.batch else ""
            of_rank = f" rank {variant.rank}" if self._setting.processes else ""
            self._say(f"tracing{of_rank}{batch}", len(self._made), wanted)
            self._made[variant] = self._settled(variant, next(traces))

    def _settled(self, variant: Variant, made: Trace | NotCompiled | MemGuardError) -> Trace | MemGuardError:
        """What a child made; a step that fails only where it is compiled is traced once more as it is written."""
        if isinstance(made, NotCompiled):
            self._setting = replace(self._setting, eager=True)
            try:
                eager = in_child(self._work(variant), quiet=True)
            except MemGuardError as error:
                return error
            assert isinstance(eager, Trace)
            return replace(eager, notes=(*eager.notes, made.reason))
        if isinstance(made, Trace) and made.compiled and not self._compiler_is_warm:
            self._compiler_is_warm = True
            warm_up_compiler()
        return made

    def _work(self, variant: Variant) -> Callable[[], Trace | NotCompiled]:
        """What a child does to trace a variant."""
        batch, card = variant.batch if variant.batch is not None else self._setting.batch, variant.card
        setting = replace(self._setting, traced_batch=batch, change=variant.change, rank=variant.rank)
        if card is not None:
            setting = replace(
                setting,
                compute_capability=card.compute_capability,
                multiprocessors=card.multiprocessors,
                threads_per_multiprocessor=card.threads_per_multiprocessor,
            )
        made_for = batch if self._takes_batch else None
        if self._takes_batch:
            setting = replace(setting, batch=made_for, traced_batch=None)
        return lambda: _traced(lambda: self._make(made_for), setting)


class NotCompiled(NamedTuple):
    """A step that failed where it was compiled."""

    reason: str


def _traced(make: Callable[[], Made], setting: Setting) -> Trace | NotCompiled:
    """The trace; where a step fails with inputs of another size, the error says who gave them that, and the way out."""
    try:
        return trace(make, setting)
    except MemGuardError:
        raise
    except Exception as error:
        if not setting.eager and has_compiled():
            return NotCompiled(f"torch.compile failed here: {describe(error)}")
        if setting.traced_batch in (None, setting.batch):
            raise
        raise StepError(
            f"{describe(error)} (to try batch {setting.traced_batch}, memguard gave that size to the step's tensors "
            f"with a first dimension of {setting.batch}; where one of them is not of the batch, let the function or "
            "the step take a parameter named batch, and make its inputs from that)"
        ) from error


@final
class MeasuredVariants:
    """Traces by batch size."""

    def __init__(self, measured: Sequence[Measured], batch: int | None) -> None:
        self._traces = [one.trace for one in measured if one.trace is not None]
        self._batch = batch
        self.alone: str | None = None
        """Why nothing but what was measured is known; None where other batch sizes can be."""
        if len(self._traces) < 2:
            self.alone = "another batch size needs two that were measured: let the function take a batch size"
        else:
            try:
                self._scaled(1)
            except MemGuardError as error:
                self.alone = str(error)

    def variant(self, batch: int | None = None, change: str | None = None, card: Any = None, rank: int = 0) -> Variant:
        """What to replay for these: a card changes nothing in what the step asks for."""
        return Variant(batch if batch != self._batch else None, change)

    def make_all(self, variants: Iterable[Variant]) -> None:
        """There is nothing to make."""

    def trace(self, variant: Variant) -> Trace:
        """The trace of a batch size.

        Raises:
            MemGuardError: It was not measured, and does not follow from what was.
        """
        if variant.change is not None:
            raise MemGuardError("a change of the step was not measured")
        batch = self._batch if variant.batch is None else variant.batch
        for traced in self._traces:
            if batch is None or traced.batch == batch:
                return traced
        if self.alone is not None or batch is None:
            raise MemGuardError(self.alone or "the batch size is not known")
        return self._scaled(batch)

    def _scaled(self, batch: int) -> Trace:
        one, other = self._traces
        return scaled(one, other, batch)
