"""MG501: allocated memory grows from batch to batch, by caches among others, until it will not fit."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import final

from memguard.records.claims import Claim, Evidence
from memguard.records.facts import (
    Fact,
    FunctionContextHolds,
    GradientsWithGraph,
    GrowingParameters,
    KeptOutputs,
    MicroBatchGraphs,
    ModelCopies,
    RetainedGraphs,
    SentToProcesses,
    SurvivingAllocations,
    UnexplainedGrowth,
    ViewsPinStorage,
)
from memguard.records.findings import Severity
from memguard.records.stats import BatchRecord, Run, Series, Stage, limit_of
from memguard.rules.finding_text import at, from_post_mortem, holder, in_memory, plural, so_far
from memguard.rules.growth_test import GrowthTest, Outlook, TrainingFloor
from memguard.rules.interface import DEVICE, Rule
from memguard.rules.kept_storage import (
    MIN_BATCHES,
    fits,
    is_large_pile,
    is_pile,
    never_stops,
    views_are_much,
    what_is_kept,
    who_keeps,
)
from memguard.text.units import format_bytes
from memguard.thresholds import EXPLAINED

_REMEDY = (
    "bound it (lru_cache(maxsize=64); drop the oldest key of a dict), or key it by something that recurs, like a "
    "length or a shape: a tensor, an id() or a function made anew is another key each time."
)


@final
class KeptCaches:
    """The caches that were reported."""

    def __init__(self) -> None:
        self._heaviest: KeptOutputs | None = None

    def learn(self, rule: Rule, fact: Fact, run: Run) -> Iterable[Claim]:
        """A warning where nothing bounds one."""
        if not isinstance(fact, KeptOutputs) or not fact.cached or fact.weights or not is_pile(fact):
            return
        if fits(fact, run):
            return  # it is bounded, and there is room for as much as it may have
        if self._heaviest is None or fact.bytes_per_batch > self._heaviest.bytes_per_batch:
            self._heaviest = fact
        yield rule.claim(
            fact,
            Severity.WARNING if never_stops(fact, run) else Severity.INFO,
            f"{who_keeps(fact)} {what_is_kept(fact)} since batch {fact.first_batch} "
            f"{in_memory(run)}, and is a cache: {format_bytes(fact.bytes)}{so_far(run)}, "
            f"{format_bytes(fact.bytes_per_batch)} more with every batch. If its keys hardly ever "
            "come twice, it never stops growing.",
            fact.remedy or _REMEDY,
            nbytes=fact.bytes,
            bytes_per_batch=fact.bytes_per_batch,
            evidence=Evidence.GROWTH,
            count=fact.tensors,
            since=fact.first_batch,
            names=fact.parts,
            batches_left=0,  # whether new keys go on to come only the floor can tell
        )

    def behind(self, found: Outlook) -> KeptOutputs | None:
        """The cache that accounts for a growth, if one does."""
        cache = self._heaviest
        return cache if cache is not None and cache.bytes_per_batch >= EXPLAINED * found.growth.rate else None


@final
class SteadyGrowth(Rule, code="MG501", name="steady-growth", hears=DEVICE):
    """The floor of allocated memory rises and will reach the limit.

    What: what is left allocated after each batch (after each optimizer step, where batches accumulate) has risen
    without falling over at least six windows in a row, and at this rate the peak reaches the device's limit before the
    run ends (or the epoch, if the growth ends with it). The rule also reports a cache on the device that gets new keys
    with every batch: ``lru_cache`` of tensors, a dict filled ``if key not in`` it.

    Why it matters: something keeps tensors of every batch. The run will fail with an out-of-memory error after hours of
    work, at a batch that has nothing to do with the cause.

    How to fix: the message names the line that allocated what survives, where it is known. Otherwise look for what is
    stored per batch on the device: lists, caches, meters, memory banks; store values, on the CPU, or a bounded number.
    Bound a cache, or key it by something that recurs, like a length. ``torch.cuda.memory._record_memory_history()``
    and ``memguard snapshot`` show who allocated what is alive.
    """

    def __init__(self) -> None:
        self._floor = TrainingFloor(GrowthTest(quick=True))
        self._named = 0.0
        self._lead: Fact | None = None
        self._survivors: list[SurvivingAllocations] = []
        """All lines of the newest look."""
        self._caches = KeptCaches()
        self._piled: list[float] = []
        """Bytes a batch that views, warned of, have kept so far, if they came with every batch; or models."""
        self._first_copies: ModelCopies | None = None
        """What the first telling was of copies of weights."""
        self._cycles: set[tuple[str | None, int | None]] = set()
        """Lines of backwards that were warned of, for they leave gradients that carry a graph."""
        self._sent = 0
        """Tensors that other processes may keep."""
        self._piled_graphs = False
        """Whether such graphs were met of many batches, or graphs that only the garbage collector frees."""
        self._told = False
        self._pending: tuple[Outlook, BatchRecord] | None = None

    def learn(self, fact: Fact, run: Run) -> Iterable[Claim]:
        """Remembers who was named for a growth, and by how much."""
        proven = None if self._told or self._named else from_post_mortem(self, fact, "leak")
        if proven is not None:
            self._told = True
            yield proven
        yield from self._caches.learn(self, fact, run)
        if isinstance(fact, SentToProcesses):
            self._sent = fact.tensors
        if isinstance(fact, UnexplainedGrowth) and not self._piled_graphs:  # of these nobody knows the bytes
            yield self._unexplained(fact)
        if isinstance(fact, RetainedGraphs) and fact.bytes is not None:
            self._named = max(self._named, fact.bytes / fact.graphs)
        elif isinstance(fact, KeptOutputs) and (fact.weights or not fact.cached):
            self._named = max(self._named, fact.bytes_per_batch)
        elif isinstance(fact, MicroBatchGraphs):  # that grows until the first step, and falls with each
            self._named = max(self._named, fact.bytes / fact.graphs)
        elif isinstance(fact, ViewsPinStorage) and views_are_much(fact, run) and fact.views >= MIN_BATCHES:
            self._piled.append(fact.pinned_bytes / (fact.batch - fact.since + 1))
        elif isinstance(fact, ModelCopies) and not (fact.passing or fact.averaged):
            first = self._first_copies = self._first_copies or fact
            if fact.batch > first.batch and is_large_pile(fact, limit_of(run)):
                self._piled.append((fact.bytes - first.bytes) / (fact.batch - first.batch))
        elif isinstance(fact, GradientsWithGraph) and not fact.cleared:
            self._cycles.add(fact.place.where)
            self._piled_graphs |= fact.graphs >= MIN_BATCHES
        elif isinstance(fact, FunctionContextHolds) and fact.cycle:
            self._piled_graphs = True
        elif isinstance(fact, (SurvivingAllocations, GrowingParameters)):
            if self._lead is None or isinstance(fact, GrowingParameters):
                self._lead = fact
            if isinstance(fact, SurvivingAllocations):
                self._survivors = [other for other in self._survivors if other.batch == fact.batch] + [fact]
            if self._pending is not None:
                found, record = self._pending
                self._pending = None
                if not self._is_cycle(found.growth.rate):
                    yield self._conclude(found, record, run)

    def observe(self, record: BatchRecord, run: Run) -> Iterable[Claim]:
        """Judges the floor of training batches."""
        return self.observe_alike((record,), run)

    def observe_alike(self, records: Series, run: Run) -> Iterable[Claim]:
        """Judges it after some that are alike."""
        end = records[0].allocated_end_bytes
        if self._told or records[0].stage is not Stage.TRAIN or end is None:
            return ()
        peak = records[0].allocated_peak_bytes or end
        for record, found in self._floor.observe_alike(records, run, end=end, peak=peak, limit=lambda: limit_of(run)):
            rate = found.growth.rate
            if self._is_piled(rate) or self._is_cycle(rate):
                continue
            if self._named >= EXPLAINED * rate:
                continue
            self._told = True
            if self._lead is None and self._caches.behind(found) is None:
                self._pending = (found, record)  # the line may still be named; then the newer telling carries it
            return (self._conclude(found, record, run),)
        return ()

    def _is_piled(self, rate: float) -> bool:
        """Whether what was told of comes as fast: views of one moment, kept for good, do so by chance alone.

        Of copies each telling says more.
        """
        return any(EXPLAINED * rate <= piled <= rate / EXPLAINED for piled in self._piled)

    def _is_cycle(self, rate: float) -> bool:
        """Whether what survives are the gradients of a backward that was warned of: a copy's, thrown away with them.

        Each tensor is as large as its gradient, so that what the backward's line made is half of it at most. On a GPU
        a thread of autograd's own makes the gradients, which has no line: what lines made is then the lesser part.
        """
        lead = self._lead
        if not isinstance(lead, SurvivingAllocations):
            return False
        lined = sum(fact.bytes for fact in self._survivors)
        gradients = sum(fact.bytes for fact in self._survivors if fact.place.where in self._cycles)
        if 2 * gradients >= EXPLAINED * lined > 0:
            return True
        return self._piled_graphs and lined < EXPLAINED * rate * lead.batches

    def _unexplained(self, fact: UnexplainedGrowth) -> Claim:
        """The curve, whether or not anybody is known; a remark, for a run may fill a memory on purpose."""
        rise = fact.to_bytes - fact.from_bytes
        how = "rose" if fact.fell else "never fell and rose"
        known = "nothing is known of what keeps it"
        if fact.explained_bytes:
            known = f"what was named explains {format_bytes(fact.explained_bytes)} of these {format_bytes(rise)}"
        advice = (
            "a memory snapshot shows who allocated what is alive: torch.cuda.memory._record_memory_history(), then "
            "`memguard snapshot FILE`."
        )
        if self._sent:
            known += (
                f". {plural(self._sent, 'tensor')} that this process sent to others through CUDA IPC "
                f"{'is' if self._sent == 1 else 'are'} gone here, and what a receiver still has of them stays allocated"
            )
            advice = (
                "let each receiver drop what it was sent (del, then torch.cuda.ipc_collect()) before more comes, or "
                f"send the same tensor again, filled anew; {advice}"
            )
        return self.claim(
            fact,
            Severity.INFO,
            f"what stays allocated after a batch {how} from {format_bytes(fact.from_bytes)} to "
            f"{format_bytes(fact.to_bytes)}; {known}.",
            advice,
            nbytes=rise,
        )

    def _named_share(self, rate: float) -> float:
        """Share of a growth that one line accounts for, whose allocations survive; all of it where new weights came."""
        lead = self._lead
        if not isinstance(lead, SurvivingAllocations) or rate <= 0:
            return 1.0
        return min(lead.bytes / lead.batches / rate, 1.0)

    def _conclude(self, found: Outlook, record: BatchRecord, run: Run) -> Claim:
        growth = found.growth
        message = (
            f"allocated memory grows by {format_bytes(growth.rate)} with every batch "
            f"({format_bytes(growth.observed)} over the last {growth.batches} batches): at this rate it reaches the "
            f"limit of {format_bytes(limit_of(run))} in about {found.batches_to_limit} batches."
        )
        lead, nbytes, severity = self._lead, round(growth.observed), Severity.CRITICAL
        cache = self._caches.behind(found)
        if cache is not None:
            message += (
                f" {holder(cache.place)} is a cache with keys that hardly ever recur: it grows by "
                f"{format_bytes(cache.bytes_per_batch)} with every batch."
            )
            fact, rate = replace(cache, batch=record.batch), growth.rate
            advice, since = cache.remedy or _REMEDY, cache.first_batch
            return self.claim(fact, severity, message, advice, nbytes=nbytes, bytes_per_batch=rate, since=since)
        if lead is None or self._named_share(growth.rate) < EXPLAINED:
            return self.claim(
                record,
                Severity.CRITICAL,
                message,
                "look for what is kept of every batch: a list, a cache, a meter. memguard watches the allocations "
                "of the next batches to name the line; a memory snapshot (memguard snapshot FILE) shows it too.",
                nbytes=nbytes,
                bytes_per_batch=growth.rate,
                since=growth.since,
            )
        advice = "keep values instead of tensors there, move them to the CPU, or bound how many are kept."
        if isinstance(lead, GrowingParameters):
            message += (
                f" {holder(lead.place)} gets more parameters to train: {lead.parameters} in {lead.batches} batches, "
                f"and each brings a gradient and the optimizer's state."
            )
            advice = (
                "bound how many there are: take those of past batches out again, or train rows of one table of a fixed "
                "size (nn.Embedding)."
            )
        else:
            share = self._named_share(growth.rate)
            message += f" Allocations made at {at(lead.place)} survive their batches, {share:.0%} of it."
        return self.claim(
            lead,
            severity,
            message,
            advice,
            nbytes=nbytes,
            bytes_per_batch=growth.rate,
            since=None if growth.since is None else min(growth.since, lead.batch),
        )
