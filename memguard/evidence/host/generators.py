"""The user's suspended generators, which no visible frame holds."""

from __future__ import annotations

import contextlib
import types
import weakref
from typing import Any, final

from memguard.evidence.host.datasets import ITERATORS, reading_of
from memguard.evidence.interface import Probe
from memguard.evidence.kept.growth_facts import MIN_HOST_BYTES
from memguard.evidence.kept.incremental_scan import grew
from memguard.heap.frames import is_user_frame
from memguard.heap.roots import MAX_OBJECTS, instances_of
from memguard.records.stats import BatchRecord, Stage

LOOKS = (5, 17, 199)
"""Training batches after which they are looked for, each just before a round over all objects (`ScanSchedule`)."""
HALVES = tuple(look // 2 for look in LOOKS)
"""Those with whose memory is compared what it is then: what a loop begins with came before."""
MAX_GENERATORS = 64


@final
class GeneratorsProbe(Probe):
    """Finds them through the garbage collector and adds them, weakly, to `ProbeContext.roots`.

    A ``for`` loop keeps its iterator on the interpreter's stack, where neither frames nor the collector's referents
    show it: a generator's own list of all it gave out would be seen by nobody, nor what a dataset keeps whose loader
    has no name, as in ``for x in DataLoader(Images())``.
    """

    def _prepare(self) -> None:
        self._batches = 0
        self._before: BatchRecord | None = None

    def on_batch_end(self) -> None:
        """Looks for them now and then."""
        if self.watch.stage is not Stage.TRAIN:
            return
        self._batches += 1
        if self._batches in HALVES:
            self._before = self.watch.record
        if self._batches not in LOOKS:
            return
        if self._batches == LOOKS[-1]:
            self.unsubscribe("on_batch_end")
        if not self._may_keep():
            return  # to look for them takes as long as hundreds of short batches
        known, datasets = self.watch.generators, self.watch.datasets
        known[:] = [ref for ref in known if ref() is not None]
        datasets.clear()
        for found in instances_of(types.GeneratorType, *ITERATORS, max_objects=MAX_OBJECTS):
            if type(found) is not types.GeneratorType:
                with contextlib.suppress(TypeError):  # one with slots alone is left out
                    datasets.append(weakref.ref(reading_of(found).dataset))
            elif len(known) < MAX_GENERATORS and _is_users(found) and not any(ref() is found for ref in known):
                known.append(weakref.ref(found))

    def _may_keep(self) -> bool:
        """Whether memory has grown lately, on the device or on the host; where it is known."""
        before, record = self._before, self.watch.record
        if before is None or record is None:
            return True
        least = MIN_HOST_BYTES * (record.batch - before.batch)
        on_device = before.allocated_end_bytes is not None and grew(
            before.allocated_end_bytes, record.allocated_end_bytes
        )
        return on_device or grew(before.host_rss_bytes, record.host_rss_bytes, least)

    def remove(self) -> None:
        """Forgets them."""
        self.watch.generators.clear()
        self.watch.datasets.clear()


def _is_users(generator: types.GeneratorType[Any, Any, Any]) -> bool:
    frame = generator.gi_frame
    return frame is not None and is_user_frame(frame)
