"""One step under study: traced at the batch sizes and with the changes that the questions need, each once."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import final

from memguard.errors import MemGuardError
from memguard.forecast.cards import Card
from memguard.forecast.changes import BFLOAT16, CHANGES, CHANGES_OF_RANKS, EXPANDABLE, HALF_BATCH, Change
from memguard.forecast.child import processors
from memguard.forecast.judging import judge, run_on, source_of, verdict_of
from memguard.forecast.kernels.workspaces import version_of, workspaces_for
from memguard.forecast.layouts import Layout
from memguard.forecast.ranks import Role, find_roles
from memguard.forecast.result import DOES_NOT_FIT, FITS, Forecast, LargestBatch, RankShare, Suggestion, TableRow
from memguard.forecast.setting import Setting
from memguard.forecast.simulate import Simulation, simulate
from memguard.forecast.variants import Make, MeasuredVariants, Say, Variant, Variants

MARGIN = 0.02
"""Share of the GPU that a careful largest batch leaves free: the context and the driver's addresses vary."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is to be forecast for a step, checked; see `memguard.forecast.forecasting.forecast`."""

    card: Card | None
    """The GPU; None for none in particular."""
    steps: int = 3
    batch: int | None = None
    """The batch size that the step is written for."""
    torch_version: str
    alloc_conf: str = ""
    reserved_by_others_bytes: int = 0
    takes_batch: bool = False
    """Whether the step is built for the batch size that is asked for; else inputs are given another size."""
    suggest: bool | None = None
    table_cards: tuple[Card, ...] = ()
    nproc: int | None = None
    nnodes: int = 1
    layouts: tuple[Layout, ...] = ()
    progress: bool = False


@final
class Study:
    """The traces of one step, and what they answer.

    Args:
        make: Builds model, optimizer and step; or has the traces already, of measured steps.
        question: What is asked.
        layout: Sizes of the meshes that the training makes.
        say: Told what is being traced.
    """

    def __init__(
        self,
        make: Make | MeasuredVariants,
        question: Question,
        *,
        layout: Layout = (),
        say: Say = lambda text, made, wanted: None,
    ) -> None:
        self._card = card = question.card
        self._batch = question.batch
        self._version = question.torch_version
        self._conf = question.alloc_conf
        self._others = question.reserved_by_others_bytes
        self._setting = Setting(
            steps=question.steps,
            compute_capability=card.compute_capability if card else (8, 0),
            total_bytes=card.total_bytes if card else 80 * 2**30,
            multiprocessors=card.multiprocessors if card else 108,
            threads_per_multiprocessor=card.threads_per_multiprocessor if card else 2048,
            name=card.title if card else "GPU",
            cudnn_workspaces=card.cudnn_workspaces if card else True,
            batch=question.batch,
            torch_version=version_of(question.torch_version),
            processes=question.nproc,
            nodes=question.nnodes,
            layout=layout,
        )
        self._ranks: tuple[int, ...] = (0,)
        """One of each role, the highest first."""
        self._variants = (
            make
            if isinstance(make, MeasuredVariants)
            else Variants(make, self._setting, takes_batch=question.takes_batch, say=say)
        )

    def forecast(self, seconds: float = 0.0) -> Forecast:
        """The answer for the step as it is written; of several ranks, for the highest."""
        if self._setting.processes is None:
            return self._judged(Variant(), seconds)
        world = self._setting.processes * self._setting.nodes
        if processors() > 1:  # the other one would only wait for the first trace
            self._variants.make_all((Variant(rank=0), Variant(rank=world - 1)))
        roles = find_roles(
            world,
            lambda rank: self._variants.trace(Variant(rank=rank)),
            lambda ranks: self._variants.make_all(Variant(rank=rank) for rank in ranks),
        )
        judged = [(role, self._judged(Variant(rank=role.rank), seconds, ranged=False)) for role in roles]
        judged.sort(key=lambda one: -one[1].reserved_peak_bytes)
        self._ranks = tuple(role.rank for role, _ in judged)
        highest = self._judged(Variant(rank=self._ranks[0]), seconds)
        return replace(highest, ranks=tuple(_share(role, found) for role, found in judged))

    def _judged(self, variant: Variant, seconds: float, *, ranged: bool = True) -> Forecast:
        return judge(
            self._variants.trace(variant),
            card=self._card,
            torch_version=self._version,
            alloc_conf=self._conf,
            reserved_by_others_bytes=self._others,
            seconds=seconds,
            ranged=ranged,
        )

    def largest_batches(self) -> tuple[int, int, int]:
        """The largest batch that runs at all, that runs without retries, and that would run too with `MARGIN` less."""
        if self._batch is None or self._card is None:
            raise MemGuardError("a search for the largest batch needs the step's batch size and a device")
        largest, smooth = self._largest_on(self._card, self._batch)
        if largest == 0:
            return 0, 0, 0
        careful = self._largest(self._card, largest, lambda run: run.out_of_memory is None, margin=MARGIN)
        return largest, smooth, min(careful, smooth)

    def largest_on_each(self, cards: Iterable[Card]) -> tuple[LargestBatch, ...]:
        """The largest batch of each card; each search begins where the last one ended, in proportion to the memory."""
        found = []
        start, room = self._batch or 1, 0
        for card in cards:
            begin = max(1, int(start * card.usable_bytes / room)) if room else start
            try:
                largest, smooth = self._largest_on(card, begin)
            except MemGuardError:
                found.append(LargestBatch(card=card.title, batch=None, batch_without_retries=None))
                continue
            start, room = max(largest, 1), card.usable_bytes
            found.append(LargestBatch(card=card.title, batch=largest, batch_without_retries=smooth))
        return tuple(found)

    def _largest_on(self, card: Card, start: int) -> tuple[int, int]:
        """The largest batch that runs on a card at all, and without retries."""
        largest = self._largest(card, start, lambda run: run.out_of_memory is None)
        smooth = self._largest(card, largest, lambda run: verdict_of(run) == FITS) if largest else 0
        return max(largest, smooth), smooth

    def _largest(self, card: Card, start: int, accepted: Callable[[Simulation], bool], margin: float = 0.0) -> int:
        """The largest batch whose run on a card, less a margin, is accepted."""
        smaller = replace(card, total_bytes=int(card.total_bytes * (1 - margin)))

        def trial(batch: int) -> tuple[int, bool]:
            variants = [self._variants.variant(batch, card=card, rank=rank) for rank in self._ranks]
            self._variants.make_all(variants)
            needs, fits = [], True
            for traced in map(self._variants.trace, variants):
                unlimited = simulate(
                    traced,
                    conf=self._conf,
                    torch_version=self._version,
                    workspaces=workspaces_for(traced.compute_capability, self._version),
                )
                needs.append(unlimited.allocated_peak_bytes)
                fits = fits and accepted(run_on(traced, smaller, self._version, self._conf, self._others))
            return max(needs), fits

        return largest_fitting(trial, start, smaller.usable_bytes - self._others)

    def suggestions(self, before: Forecast) -> tuple[Suggestion, ...]:
        """Every change, re-forecast, cheapest first; those that change nothing are left out. Of ranks, for the highest.

        Args:
            before: The forecast of the step as it is written.
        """
        if self._card is None:
            return ()
        tried = list(self._tried())
        self._variants.make_all(variant for _, variant, _ in tried)
        found = []
        for change, variant, conf in tried:
            try:
                traced = self._variants.trace(variant)
            except MemGuardError:  # the step cannot be changed so
                continue
            after = judge(
                traced,
                card=self._card,
                torch_version=self._version,
                alloc_conf=conf,
                reserved_by_others_bytes=self._others,
                ranged=False,
            )
            if after.reserved_peak_bytes < before.reserved_peak_bytes or after.verdict != before.verdict:
                found.append(
                    Suggestion(
                        name=change.name,
                        change=change.write,
                        cost=change.cost,
                        allocated_peak_bytes=after.allocated_peak_bytes,
                        reserved_peak_bytes=after.reserved_peak_bytes,
                        verdict=after.verdict or DOES_NOT_FIT,
                    )
                )
        return tuple(found)

    def _tried(self) -> Iterator[tuple[Change, Variant, str]]:
        """The changes that can be made, what to trace for each, and its allocator's configuration."""
        rank = self._ranks[0]
        for change in CHANGES if self._setting.processes is None else CHANGES_OF_RANKS:
            if change is BFLOAT16 and self._variants.trace(Variant(rank=rank)).in_bf16:
                continue
            if change is EXPANDABLE:
                if "expandable_segments" not in self._conf:
                    conf = f"{self._conf},expandable_segments:True" if self._conf else "expandable_segments:True"
                    yield change, self._variants.variant(rank=rank), conf
            elif change is not HALF_BATCH:
                yield change, self._variants.variant(change=change.name, rank=rank), self._conf
            elif self._batch is not None and self._batch >= 2:
                yield change, self._variants.variant(self._batch // 2, change.name, rank=rank), self._conf

    def table(self, cards: Iterable[Card], batches: Iterable[int | None]) -> tuple[TableRow, ...]:
        """Every batch size on every card; where the step cannot be traced, why."""
        wanted = list(itertools.product(cards, batches))
        highest = self._ranks[0]
        self._variants.make_all(self._variants.variant(batch, card=card, rank=highest) for card, batch in wanted)
        rows = []
        for card, batch in wanted:
            row = TableRow(
                batch=batch, card=card.title, allocated_peak_bytes=None, reserved_peak_bytes=None, verdict=None
            )
            try:
                traced = self._variants.trace(self._variants.variant(batch, card=card, rank=highest))
            except MemGuardError as error:
                rows.append(replace(row, reason=str(error)))
                continue
            run = needed = run_on(traced, card, self._version, self._conf, self._others)
            if run.out_of_memory is not None:
                needed = run_on(traced, None, self._version, self._conf)
            rows.append(
                replace(
                    row,
                    allocated_peak_bytes=needed.allocated_peak_bytes,
                    reserved_peak_bytes=needed.reserved_peak_bytes,
                    verdict=verdict_of(run),
                    source=source_of(traced),
                )
            )
        return tuple(rows)


def _share(role: Role, found: Forecast) -> RankShare:
    return RankShare(
        role=role.name,
        rank=role.rank,
        count=role.count,
        allocated_peak_bytes=found.allocated_peak_bytes,
        reserved_peak_bytes=found.reserved_peak_bytes,
        verdict=found.verdict,
        owners=found.owners,
    )


# The largest batch that fits, in few trials: a line through what was tried guesses, trials confirm.

_MOST_TRIALS = 60
_MOST_GUESSES = 3


def largest_fitting(need_of: Callable[[int], tuple[int, bool]], start: int, capacity: int) -> int:
    """The largest batch for which a trial says that it fits, 0 if none does.

    Both it and its successor were tried, unless it is so large that the search was given up.

    Args:
        need_of: Bytes that a batch needs on a GPU without end, and whether it fits. Repeated calls must be cheap.
        start: The first batch to try.
        capacity: Bytes that there are, for the guesses.
    """
    low, high = 0, 0  # the largest known to fit, the smallest known not to; 0: none yet
    needs: dict[int, int] = {}
    guess = max(1, start)
    guesses = 0
    for _ in range(_MOST_TRIALS):
        need, fits = need_of(guess)
        needs[guess] = need
        if fits:
            low = max(low, guess)
        else:
            high = min(high, guess) if high else guess
        if high and high - low == 1:
            break
        line = _crossing(needs, capacity)
        if not high:
            guess = max(low + 1, line if line is not None else low * 2)
        elif line is not None and guesses < _MOST_GUESSES:
            guesses += 1
            guess = min(max(line, low + 1), high - 1)
        else:
            guess = (low + high) // 2
    return low


def _crossing(needs: dict[int, int], capacity: int) -> int | None:
    """Where a line through the two trials nearest to the capacity reaches it."""
    if len(needs) < 2:
        return None
    (first, need), (second, other) = sorted(needs.items(), key=lambda trial: abs(trial[1] - capacity))[:2]
    slope = (other - need) / (second - first)
    if slope <= 0:
        return None
    return max(1, int(first + (capacity - need) / slope))
