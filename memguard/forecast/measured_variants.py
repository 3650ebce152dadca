"""The traces of measured steps: those batch sizes, and others scaled from two of them. As `Variants`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, final

from memguard.errors import MemGuardError
from memguard.forecast.recorded import Measured, scaled
from memguard.forecast.trace import Trace
from memguard.forecast.variants import Variant


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
        for trace in self._traces:
            if batch is None or trace.batch == batch:
                return trace
        if self.alone is not None or batch is None:
            raise MemGuardError(self.alone or "the batch size is not known")
        return self._scaled(batch)

    def _scaled(self, batch: int) -> Trace:
        one, other = self._traces
        return scaled(one, other, batch)
