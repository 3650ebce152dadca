"""Attributes that keep what a model made for the last batch, such as ``self.maps = maps``.

No output of a model leads to it, and no line of the one statement makes it. That it is there at the peak tells the
history; who has it, one walk; that it is another one in each batch, the next batch's end. Where no model is called at
all, a variable of the loop counts as well: its outputs are nobody's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, final

import torch

from memguard.evidence.interface import ProbeContext
from memguard.evidence.naming.holders import HolderSearch
from memguard.heap.frames import is_user_file
from memguard.records.facts import Fact, Place, PreviousOutputsAlive
from memguard.records.stats import Stage
from memguard.source.reads import is_left_unread, is_wanted
from memguard.torch_objects.module_parts import gradients_of, parameters_of
from memguard.torch_objects.storages import StorageRef, main_storage, owned_storages, storage_key, storages_of

if TYPE_CHECKING:
    from memguard.allocator.timeline import AllocationTimeline

ROUNDED = 512
"""An allocator's blocks are so many times a whole number of bytes."""
AS_HIGH = 0.95
"""Of the highest peak of some batches: the one that is looked at."""
PARTS = 16
"""Into so many blocks may fall apart what is worth a word."""

Function = tuple[str, str]
"""File and name."""


@final
@dataclass(frozen=True, slots=True)
class LastBatchAttribute:
    """Blocks of the batch before that are there at a batch's peak, and go later in it."""

    sizes: frozenset[int]
    bytes: int
    functions: frozenset[Function]
    """The user's functions that ran in a batch, as far as they allocated anything."""


class _Kept(NamedTuple):
    place: Place
    bytes: int
    refs: list[Any]


@final
class LastBatch:
    """Names what is left over, where it is an attribute or a variable that nothing reads before it is set anew."""

    def __init__(self, watch: ProbeContext, report: Callable[[Fact], None]) -> None:
        self._watch, self._report = watch, report
        self.kept: list[_Kept] = []
        """What `conclude` looks at."""
        self._peak = 0

    def look(
        self,
        timeline: AllocationTimeline,
        ends: Sequence[int],
        *,
        min_bytes: int,
        peak: int,
        told: Collection[tuple[str | None, int | None]] = (),
    ) -> None:
        """Looks who has what is left over; the end of the next batch is to call `conclude`.

        Args:
            timeline: Some batches.
            ends: When the history began and each of its batches ended, in microseconds.
            min_bytes: Least that counts.
            peak: The batches' highest.
            told: Files and lines of statements that were told for what they keep.
        """
        found = left_over(timeline, ends, min_bytes=min_bytes)
        if found is not None:
            kept = self._holders(found, min_bytes)
            self.kept = [each for each in kept if (each.place.file, each.place.line) not in told]
            self._peak = peak

    def conclude(self) -> None:
        """Tells of what is gone by now: the attribute has another batch's."""
        kept, self.kept = self.kept, []
        for place, nbytes, refs in kept:
            if all(ref.expired() for ref in refs):
                self._report(
                    PreviousOutputsAlive(
                        batch=self._watch.batch,
                        stage=Stage.TRAIN,
                        place=place,
                        bytes=nbytes,
                        graph=False,
                        peak_in_forward=True,
                        steady=True,
                        peak_bytes=self._peak,
                    )
                )

    def _holders(self, found: LastBatchAttribute, min_bytes: int) -> list[_Kept]:
        watch = self._watch
        owned = owned_storages(watch.models)
        for model in watch.models:
            owned.update(storages_of(gradients_of(parameters_of(model))))
        sizes = {_rounded(size) for size in found.sizes}

        def judge(tensor: torch.Tensor) -> int | None:
            key = storage_key(tensor)
            if key is None or key[0] in owned or _rounded(key[1]) not in sizes:
                return None
            return key[1]

        survey = HolderSearch(models=watch.models, extra=watch.roots())
        kept = []
        for holder, links in survey.by_holder(survey.judged(judge)):
            storages = storages_of(link.value for link in links)
            place = holder.place
            if not min_bytes <= sum(storages.values()) or not is_user_file(place.file or "<"):
                continue
            if holder.kind == "local" and not watch.models:
                left = is_left_unread(place.file or "", place.line or 0, place.holder or "")
            else:
                left = holder.kind == "attribute" and not is_wanted(found.functions, place)
            if left:
                refs = [StorageRef(main_storage(link.value)) for link in links]
                kept.append(_Kept(place, sum(storages.values()), refs))
        return kept


def _rounded(nbytes: int) -> int:
    return -(-nbytes // ROUNDED)


def left_over(timeline: AllocationTimeline, ends: Sequence[int], *, min_bytes: int) -> LastBatchAttribute | None:
    """What was made before the last batch's peak, is there at this one's, and goes while its line makes others anew.

    Args:
        timeline: Some batches.
        ends: When the history began and each of its batches ended, in microseconds.
        min_bytes: Least that counts, in all.
    """
    peaks, highest = timeline.peaks_within(ends), timeline.peak().bytes
    high = [n for n, peak in enumerate(peaks) if n and peak is not None and peak.bytes >= AS_HIGH * highest]
    if not high or (before := peaks[high[-1] - 1]) is None or (now := peaks[high[-1]]) is None:
        return None
    made = [block for block in timeline.blocks if block.size >= max(min_bytes // PARTS, 1)]
    sites = {block: line[:2] for block in made if (line := timeline.user_line(block.made)) is not None}
    old = [b for b in sites if b.made < before.event and b.freed is not None and b.freed > now.event]
    if sum(block.size for block in old) < min_bytes:
        return None
    kept, last = Counter(sites[block] for block in old), dict[tuple[str, int], int]()
    for block in old:
        last[sites[block]] = max(last.get(sites[block], 0), block.freed or 0)
    anew = Counter(site for block, site in sites.items() if before.event < block.made < last.get(site, 0))
    old = [block for block in old if anew[sites[block]] >= kept[sites[block]]]
    nbytes = sum(block.size for block in old)
    if nbytes < min_bytes:
        return None
    seen = timeline.made_between(before.event, now.event)
    ran = (frame for block in seen for frame in timeline.user_lines(block.made))
    functions = frozenset((frame.filename, frame.name) for frame in ran)
    return LastBatchAttribute(frozenset(block.size for block in old), nbytes, functions)
