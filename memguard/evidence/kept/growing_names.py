"""Which names keep what the floor of memory rises by: measured at a few looks, each when it has risen notably.

Other probes tell of elements that come with every batch. This one goes by bytes alone: a model for each fold in a
cache, a large tensor now and then in a list, a second cause beside a reported one. What was reported is measured
anew at each look, so that its last figure is not that of the first alarm.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, final

from memguard.evidence.interface import Probe
from memguard.evidence.kept.exceptions import left_by_failures
from memguard.evidence.kept.retained import MEASURED, Kept, Name, beside_of, carried_on, kept_by_name, measured_anew
from memguard.evidence.naming.holders import HolderSearch
from memguard.evidence.naming.names import capacity_of, outgrew
from memguard.evidence.owners import owned_by
from memguard.heap.children import LRU_CACHE
from memguard.heap.snapshot import HeapSnapshot
from memguard.records.facts import ExceptionHolds, Fact, KeptOnHost, KeptOutputs, Place
from memguard.records.kept_floor import StepFloor
from memguard.records.stats import BatchRecord, Stage
from memguard.source.bounds import Bound, bounds_of, is_cache, is_learned_from
from memguard.source.origins import is_on_host
from memguard.source.sites import remedy_at
from memguard.thresholds import EXPLAINED, NEARLY, NOTABLE_SHARE, WORD_SHARE

SETTLING, WINDOW = 3, 3
"""Batches of training before gradients and optimizer states are there; and those whose lowest value is the floor."""
LEAST: Final = 1024**2
DEVICE_SHARE, OWN_SHARE = 0.02, 0.25
"""Of the device, or of what there was at first, the lesser: by so much the floor rises from one look to the next."""
STEP, MOST_LOOKS = 0.5, 16
"""And by this share of all that it rose, so that looks grow rare."""
AGAIN: Final = 0.06
"""Share of all training batches after which a reported holder is measured again: its last figure is near the end's."""
RARER: Final = 2
"""By how many times later, each time that none keeps more than before: a roll-out's memory, which is cleared."""
RATE_BATCHES: Final = 32
"""Batches over which the rate of a reported holder is measured again: the first ones are no measure of later ones."""
RISES: Final = 2
"""Looks in a row at which a name kept more than at the one before."""
LONGER: Final = 3
"""Or elements by which a container is longer than at the first look."""
_OF_STATES: Final = "{count} elements with optimizer states"
MOST_NAMES: Final = 3
"""Most causes reported after one look."""


@final
@dataclass(frozen=True, slots=True)
class _Look:
    """What one look came to, in plain numbers."""

    floor: int
    batches: int
    sizes: Mapping[Name, tuple[int, int]]
    """Bytes, and the length of the longest container."""


@final
class GrowingNamesProbe(Probe):
    """Compares what names keep whenever the floor of training has risen notably."""

    def _prepare(self) -> None:
        self._seen = self._looks = 0
        self._steps = StepFloor()
        self._ends: list[int] = []
        self._base = self._due = 0
        """The floor after the first batches, or what it fell to since; and that at which the next look is due."""
        self._base_batches = 0
        self._newest = 0, 0
        """After the last two batches: the last one ends with the program, when its variables are gone."""
        self._at = 0
        """The floor when the last look was asked for."""
        self._first: _Look | None = None
        self._last: _Look | None = None
        self._rises: dict[Name, int] = {}
        self._told: dict[Name, Place] = {}
        self._waiting: dict[Name, KeptOutputs] = {}
        """Of too little of the device to be reported while other probes may find what it is."""
        self._sizes: dict[Name, tuple[int, int]] = {}
        """What a reported holder kept, and in which batch: since then its rate is measured."""
        self._num_facts = 0
        self._is_asked = False
        self._share = AGAIN
        self._again: int | None = None
        """The training batch from which on reported holders are measured anew; None before there are any."""
        self.unsubscribe("on_batch_end")

    def on_records(self, records: Sequence[BatchRecord]) -> None:
        """Follows the floor; asks for a look where it has risen."""
        if self._again is None and len(self.watch.facts) != self._num_facts:
            self._num_facts = len(self.watch.facts)
            if self._has_reported():
                self._follow_reported()
        for record in records:
            if record.stage is not Stage.TRAIN or record.allocated_end_bytes is None:
                continue
            end = self._steps.push(record.allocated_end_bytes, record.optimizer_steps)
            self._newest = self._newest[1], end
            if self._base <= end < self._due:
                if self._ends:
                    self._ends = []
                continue
            self._seen += 1
            self._ends = [*self._ends, end][-WINDOW:]
            if self._seen >= SETTLING + WINDOW - 1 and len(self._ends) == WINDOW:
                self._follow(min(self._ends))

    def on_batch_end(self) -> None:
        """The look that was asked for, or another one at what was reported."""
        watch = self.watch
        if watch.stage is not Stage.TRAIN:
            return
        if self._is_asked:
            self._is_asked = False
            self._look()
        elif self._again is not None and watch.number >= self._again:
            snapshot = self.watch.search().snapshot
            grown = self._measure_anew(snapshot, kept_by_name(snapshot))
            self._share = AGAIN if grown else RARER * self._share
        else:
            return
        if self._again is None:
            self.unsubscribe("on_batch_end")
        else:
            self._again = watch.number + round(self._share * watch.number) + 1
            watch.look_from(self._again)

    def on_run_end(self) -> None:
        """The last look, where anything is left of what the program had."""
        record = self.watch.record
        end = record.allocated_end_bytes if record is not None else None
        has_risen = self._last is not None and end is not None and end - self._base >= LEAST
        risen = max(self._newest) - self._last.floor if self._last is not None else 0
        if has_risen or self._has_reported():
            self._at = end or self._at
            self._look(whole=True)
        known = {(fact.place.file, fact.place.holder) for fact in self.watch.facts.values()}  # on the host, say
        for fact in self._waiting.values():
            if (fact.place.file, fact.place.holder) not in known:
                self.report(replace(carried_on(fact, self.watch.batch, risen), candidate=True))

    def _follow_reported(self) -> None:
        self._again = 0
        self.hear("on_batch_end")
        self.watch.look_from(0)

    def _follow(self, floor: int) -> None:
        if floor < self._base or not self._due:
            self._base, self._base_batches = floor, self.watch.batches
            self._first = self._last = None
        else:
            self._is_asked = True
            self.hear("on_batch_end")
            self.watch.look_from(0)
        self._at = floor
        least = min(DEVICE_SHARE * (self.watch.device_total_bytes or 0), OWN_SHARE * self._base)
        self._due = round(max(floor + max(LEAST, least), self._base + (floor - self._base) / (1 - STEP)))
        if self._looks >= MOST_LOOKS:
            self.unsubscribe("on_records")

    def _has_reported(self) -> bool:
        return any(isinstance(fact, MEASURED) for fact in self.watch.facts.values())

    def _look(self, *, whole: bool = False) -> None:
        watch = self.watch
        self._looks += 1
        survey = self.watch.search()
        kept = kept_by_name(survey.snapshot, whole=whole)
        look = _Look(self._at, watch.batches, {name: (one.bytes(), one.length) for name, one in kept.items()})
        before, self._last = self._last, look
        self._measure_anew(survey.snapshot, kept, at_end=whole)
        first = self._first = self._first or look
        if before is None:
            self._rises = {}
        else:
            for name in look.sizes:
                self._rises[name] = self._rises.get(name, 0) + 1 if _growth(name, before, look) > 0 else 0
        first = self._at_base(first) if whole or before is None else first
        if look.floor - self._base >= WORD_SHARE * (watch.device_total_bytes or 0) > 0:
            self._name(survey, kept, first, look, has_jumped=before is None, is_last=whole)

    def _at_base(self, look: _Look) -> _Look:
        """What names kept at the floor from which it rose: at most that, so that a jump is seen at the first look."""
        base = self._base
        sizes = {
            name: (nbytes, length) if nbytes <= base else (base, length * base // nbytes)
            for name, (nbytes, length) in look.sizes.items()
        }
        return _Look(base, self._base_batches, sizes)

    def _name(
        self,
        survey: HolderSearch,
        kept: Mapping[Name, Kept],
        first: _Look,
        last: _Look,
        *,
        has_jumped: bool,
        is_last: bool,
    ) -> None:
        """Reports the holder of at least half of the growth that no reported cause explains.

        What has jumped came at once: nothing says that more will come, and a model that came so is no pile. It is
        reported when the run ends, for what it still keeps then stayed; not graphs, which have rules of their own.
        """
        watch = self.watch
        left = last.floor - self._base
        told: dict[Name, int] = {}
        otherwise: set[Name] = set()
        """Names that were reported as something else, a list of errors say: that is measured anew."""
        for fact in watch.facts.values():
            if (name := self._of_fact(fact, kept)) is not None:
                nbytes = fact.kept_bytes if isinstance(fact, MEASURED) else 0
                for each in (name, *beside_of(fact, name, kept)):
                    told[each] = max(told.get(each, 0), nbytes)
                if isinstance(fact, MEASURED) and not isinstance(fact, KeptOutputs):
                    otherwise.add(name)
            elif isinstance(fact, KeptOutputs):  # met under another name now, like the variable of a closure
                left -= min(round(fact.bytes + fact.bytes_per_batch * (watch.batch - fact.batch)), max(left, 0))
        taken: set[int] = set()
        for known, nbytes in told.items():
            grown = _growth(known, first, last)
            left -= min(nbytes, grown)
            if nbytes >= EXPLAINED * grown:
                taken.update(kept[known].storages)
        for _ in range(MOST_NAMES):
            name = self._largest(kept, first, last, taken, least=EXPLAINED * left, once=is_last)
            if name is None:
                return
            one = kept[name]
            share = WORD_SHARE if one.length and one.are_models else NOTABLE_SHARE  # a list of models is no buffer
            much = share * (watch.device_total_bytes or 0)
            if left < min(much, NOTABLE_SHARE * (watch.peak_bytes or much)):
                return
            waits = left < much
            left -= _growth(name, first, last)
            taken.update(one.storages)
            came_once = has_jumped or not self._goes_on(name, self._first or first, last)
            if name in self._told or name in otherwise or (came_once and (one.graphs or one.are_models)):
                continue
            place = survey.cause(one.link, tensors=not one.weights)
            if not waits:
                self._told[name] = place
            if place.line is None:
                continue
            grown, batches = _growth(name, first, last), max(last.batches - first.batches, 1)
            rate = 0.0 if came_once else grown / batches
            seen = self._first or first  # what came once was there by then
            since = seen.batches - last.batches if came_once else -round(one.bytes() / grown * batches)
            since = max(watch.batch + since, 0)
            if is_on_host(place):  # as on a GPU: a virtual one counts what is copied to the host as its own
                self._told[name] = place
                self.report(self._on_host(place, one, rate, since))
                continue
            fact = self._fact(place, one, rate, since, self._parts(name, kept))
            if waits:
                self._waiting[name] = fact
                if self._again is None:
                    self._follow_reported()
                continue
            self.report(fact)

    def _largest(
        self, kept: Mapping[Name, Kept], first: _Look, last: _Look, taken: set[int], *, least: float, once: bool
    ) -> Name | None:
        """The name that grew by most of what is not explained; of names within each other the container that did.

        One that has grown but once counts where that is wanted.
        """
        found: dict[Name, int] = {}
        for name, one in kept.items():
            grown = _growth(name, first, last)
            if grown < max(least, 1) or not (once or self._goes_on(name, first, last)):
                continue
            fresh = one.bytes(taken)
            if fresh >= least:
                found[name] = min(grown, fresh)
        most = max(found.values(), default=0)
        near = [name for name, grown in found.items() if grown >= NEARLY * most]
        longer_ones = [name for name in near if last.sizes[name][1] > first.sizes.get(name, (0, 0))[1]]
        containers = [name for name in longer_ones if not kept[name].is_optimized]  # a list of optimizers, say
        whole = containers or [name for name in near if not (kept[name].is_part and kept[name].weights)]
        innermost = max(whole, key=lambda name: kept[name].depth, default=None)
        return None if innermost is None or kept[innermost].is_optimized else innermost

    def _goes_on(self, name: Name, first: _Look, last: _Look) -> bool:
        """Whether what a name keeps has grown more than once.

        One that was not there at first has come once so far, like a variable that takes the result of an update.
        """
        longer = last.sizes[name][1] - first.sizes[name][1] if name in first.sizes else 0
        return self._rises.get(name, 0) >= RISES or longer >= LONGER

    def _fact(self, place: Place, one: Kept, rate: float, first_batch: int, parts: tuple[str, ...]) -> KeptOutputs:
        watch, length, nbytes = self.watch, one.length, one.bytes()
        weights, is_lru = one.are_models, type(one.link.value) is LRU_CACHE
        of_states = bool(length) and not weights and nbytes - one.bytes(one.states) >= EXPLAINED * nbytes
        capacity = one.capacity or capacity_of(one.link, place.file, place.holder)
        bounds = bounds_of(place.file, place.line, place.holder) & ~Bound.KEYED
        if outgrew(length, capacity):
            bounds, capacity = bounds & ~Bound.MEASURED, None
        return KeptOutputs(
            **watch.now,
            place=place,
            tensors=one.elements or len(one.objects),
            first_batch=first_batch,
            bytes=nbytes,
            bytes_per_batch=rate,
            bounded=bool(bounds),
            learned_from=is_learned_from(place),
            what=_OF_STATES if of_states else one.what,
            remedy="keep the numbers that are needed of each, and let its optimizer go."
            if of_states
            else remedy_at(place),
            cached=is_lru or is_cache(place.file, place.line, place.holder),
            weights=weights,
            capacity=capacity,
            measured=True,
            parts=parts,
        )

    def _on_host(self, place: Place, one: Kept, rate: float, first_batch: int) -> KeptOnHost:
        bounds = bounds_of(place.file, place.line, place.holder)
        return KeptOnHost(
            **self.watch.now,
            place=place,
            elements=one.elements or len(one.objects),
            bytes=one.bytes(),
            bytes_per_batch=rate,
            first_batch=first_batch,
            bounded=bool(bounds),
            by_key=bounds == Bound.KEYED,
        )

    def _parts(self, name: Name, kept: Mapping[Name, Kept]) -> tuple[str, ...]:
        """Reported holders of which nearly all memory lies below a name that holds more."""
        whole, found = kept[name].storages, []
        for fact in self.watch.facts.values():
            other = self._of_fact(fact, kept)
            if other is None or other == name or fact.place.holder is None:
                continue
            part = kept[other].storages
            if len(part) < len(whole) and sum(key in whole for key in part) >= NEARLY * len(part) > 0:
                found.append(fact.place.holder)
        return tuple(dict.fromkeys(found))

    def _measure_anew(self, snapshot: HeapSnapshot, kept: Mapping[Name, Kept], *, at_end: bool = False) -> bool:
        """Whether any reported fact got new numbers: where its holder keeps more now, and when the run ends."""
        watch, has_grown = self.watch, False
        owned = set(owned_by(watch.models, watch.optimizers))
        if any(isinstance(fact, ExceptionHolds) for fact in watch.facts.values()):
            owned -= left_by_failures(snapshot)[0]
        sizes = self._first.sizes if self._first is not None else {}
        # Data that a graph saved lives anyway, as long as who holds it as well, unless that leads to the holder.
        constant = {same: one for same, one in kept.items() if one.bytes() == sizes.get(same, (0, 0))[0]}

        def owned_beside(name: Name | None) -> set[int]:
            above = kept[name].above if name is not None and name in kept else set()
            return owned.union(*(one.storages for same, one in constant.items() if same not in above))

        for fact in list(watch.facts.values()):
            name = self._of_fact(fact, kept)
            newer = measured_anew(fact, name, kept, owned_beside(name), watch, at_end=at_end)
            if newer is not None and name is not None:
                if isinstance(newer, KeptOutputs):
                    newer = self._with_rate(newer, name)
                    newer = replace(newer, parts=self._parts(name, kept)) if newer.measured else newer
                self.report(newer)
                has_grown = True
        for name, waiting in self._waiting.items():
            newer = measured_anew(waiting, name, kept, owned_beside(name), watch, at_end=at_end)
            if isinstance(newer, KeptOutputs):
                self._waiting[name] = newer
                has_grown = True
        return has_grown

    def _with_rate(self, fact: KeptOutputs, name: Name) -> KeptOutputs:
        """A fact with the rate at which its holder grew lately, where that is the higher one."""
        nbytes, batch = self._sizes.setdefault(name, (fact.bytes, fact.batch))
        if fact.batch - batch < RATE_BATCHES or fact.weights or fact.measured:  # those come now and then
            return fact
        self._sizes[name] = fact.bytes, fact.batch
        return replace(fact, bytes_per_batch=max(fact.bytes_per_batch, (fact.bytes - nbytes) / (fact.batch - batch)))

    def _of_fact(self, fact: Fact, kept: Mapping[Name, Kept]) -> Name | None:
        """The name that a fact tells of: the heaviest of that text."""
        place = fact.place
        names = [name for name in kept if name[2] == place.holder and name[0] in (None, place.file)]
        names += [name for name, told in self._told.items() if told == place and name in kept]
        return max(names, key=lambda name: kept[name].bytes(), default=None)


def _growth(name: Name, first: _Look, last: _Look) -> int:
    return last.sizes.get(name, (0, 0))[0] - first.sizes.get(name, (0, 0))[0]
