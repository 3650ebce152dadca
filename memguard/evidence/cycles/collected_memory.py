"""What only the cyclic collector frees beside graphs: inputs, outputs, models, tensors of any kind."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, ClassVar, final

import torch
from torch import nn

from memguard.evidence.cycles.collected_graphs import freed_by_collector, look_at_garbage
from memguard.evidence.cycles.collector_events import CollectorProbe
from memguard.evidence.sizes import first_large_storage, large_storages
from memguard.records.facts import Place
from memguard.records.stats import BatchRecord, Stage
from memguard.thresholds import LEAST, MUCH_OF_PEAK
from memguard.torch_objects.storages import StorageRef

WARM_UP = 8
"""Training batches in which memory rises for other reasons."""
WINDOW = 8
"""Training batches whose lowest end is compared."""
DEVICE_SHARE = 0.01
FALLS = 2
"""Batches in which the collector ran and memory fell: from then on each batch is compared."""
HITS, WAIT = 2, 8
"""Without an allocator's numbers: collections that found garbage, and batches until the next has come together."""
TRIES = 3
MIN_CIRCLES = 2
"""Circles of one kind at once; a single one must be found twice."""
AGAIN = 2
"""Of what must wait at once, what is found twice needs this part in one of the looks."""


@final
class CollectedMemoryProbe(CollectorProbe):
    """Looks at the garbage when memory has risen for some batches, or falls when the collector runs.

    Both may have other causes: what is told is what the look finds.
    """

    always: ClassVar[frozenset[str]] = frozenset({"on_batch_end"})

    def _prepare(self) -> None:
        self._seen = self._falls = self._hits = self._tries = self._wait = 0
        self._last: int | None = None
        self._last_batch = 0
        self._lowest: int | None = None
        """End of a batch within the open window."""
        self._base: int | None = None
        """The lowest such since the last look."""
        self._least = LEAST
        self._is_blind = False
        """Whether the look is for want of an allocator's numbers, because the collector found garbage of any kind."""
        self._looked = 0
        """Batch of the last look."""
        self._oldest = 0
        """The oldest generation in which it did."""
        self._collected: deque[int] = deque(maxlen=64)
        """Batches in which the collector found garbage."""
        self._found: dict[Place, int] = {}
        """Bytes of the circles that the last look found closed at a place."""
        self.unsubscribe("on_batch_end")

    def on_records(self, records: Sequence[BatchRecord]) -> None:
        """Watches the ends of training batches."""
        for record in records:
            if record.stage is not Stage.TRAIN or self._wait:
                continue
            self._seen += 1
            if self._seen <= WARM_UP:
                self._hits = 0
            elif record.allocated_end_bytes is None:
                if self._hits >= HITS:
                    self._is_blind = True
                    self._look_in(WAIT)
            elif self._rises(record, record.allocated_end_bytes):
                self._look_in(1)

    def on_batch_end(self) -> None:
        """Looks, when it is time."""
        self._wait -= 1
        if self._wait > 0:
            return
        self.unsubscribe("on_batch_end")
        self._tries += 1
        self._falls = self._hits = self._wait = 0
        self._last = self._lowest = self._base = None
        if self._look() or self._tries == TRIES:
            self.unsubscribe("on_records")
            self.remove()

    def _rises(self, record: BatchRecord, end: int) -> bool:
        """Whether enough has come together since the lowest end of a batch."""
        last, self._last = self._last, end
        since, self._last_batch = self._last_batch, record.batch
        fell = last is not None and last - end >= LEAST and self._is_much(last - end, record)
        # After the last end was read: in forwards between (a search, a roll-out) or in this batch.
        if fell and any(batch >= since for batch in list(self._collected)):
            self._falls += 1
            self._base = end
        if self._falls < FALLS:
            self._lowest = end if self._lowest is None or end < self._lowest else self._lowest
            if self._seen % WINDOW:
                return False
            end, self._lowest = self._lowest, None
        if self._base is None or end < self._base:
            self._base = end
        return end - self._base >= LEAST and self._is_much(end - self._base, record)

    def _is_much(self, nbytes: int, record: BatchRecord) -> bool:
        """Whether so many bytes are worth a word; a look asks the same of what it finds."""
        device, peak = self.watch.device_total_bytes, record.allocated_peak_bytes or record.allocated_end_bytes or 0
        share = MUCH_OF_PEAK * peak if device is None else min(MUCH_OF_PEAK * peak, DEVICE_SHARE * device)
        self._least = max(int(share), LEAST)
        return nbytes >= self._least

    def _look_in(self, batches: int) -> None:
        self._wait = batches
        self.hear("on_batch_end")

    def _look(self) -> bool:
        found, since = look_at_garbage(1 if self._is_blind and self._oldest < 2 else 2), self._looked
        self._looked = self.watch.batch
        if self._is_blind and found is not None and found.objects and not found.bytes:
            return True  # what comes together here holds no tensor
        circle = found.circle if found is not None else None
        if circle is None or not circle.is_closed_there:
            return False
        before, self._found[circle.place] = self._found.get(circle.place, 0), circle.bytes
        if circle.bytes < self._least:  # the collector may have been there just before the look
            if AGAIN * max(before, circle.bytes) < self._least or not before:
                return False
        elif circle.count < MIN_CIRCLES and not before:
            return False
        self.report(freed_by_collector(self.watch, circle, circles=circle.count, since=since))
        return True

    def _on_collection(self, phase: str, info: dict[str, int]) -> None:
        if phase == "stop" and info["collected"]:
            self._hits += 1
            self._oldest = max(self._oldest, info["generation"])
            self._collected.append(self.watch.batch)


MIN_OUTPUT_BYTES = 1024
"""Of an output that is followed."""
MAX_OUTPUTS = 1024
MIN_OUTPUTS = 16
"""Outputs that the collector freed, before the circle is looked for."""
WAIT_FOR_OUTPUTS = 3
"""Batches before each look, for garbage to come together again."""


@final
class CollectedOutputsProbe(CollectorProbe):
    """Follows the storages of inputs, and of outputs made without gradients; hears the collector begin and end.

    What reference counting frees is gone when the collector begins; what is gone when it ends was held by a circle.
    """

    def _prepare(self) -> None:
        self._refs: list[tuple[Any, int]] = []
        self._input = 0
        """Key of the last input's storage: a slice of the whole data has the same in every batch."""
        self._alive: list[tuple[Any, int]] = []
        self._freed = self._bytes = self._tries = 0
        self._wait = WAIT_FOR_OUTPUTS

    def remove(self) -> None:
        """Listens no more, forgets all storages."""
        super().remove()
        self._refs, self._alive = [], []

    def on_forward_end(self, module: nn.Module, args: tuple[Any, ...], output: object) -> None:
        """Notes the storages of an output without a graph, and of the first input."""
        if output is None or len(self._refs) >= MAX_OUTPUTS:
            return
        first = first_large_storage(args, MIN_OUTPUT_BYTES)
        if first is not None and first[0]._cdata != self._input:
            self._input = first[0]._cdata
            self._refs.append((StorageRef(first[0]), first[1]))
        if torch.is_grad_enabled():
            return
        for storage, nbytes in large_storages(output, MIN_OUTPUT_BYTES):
            self._refs.append((StorageRef(storage), nbytes))

    def on_batch_end(self) -> None:
        """Looks for the circle when the collector freed enough."""
        if len(self._refs) >= MAX_OUTPUTS // 2:
            self._refs = [item for item in self._refs if not item[0].expired()]
        if self._freed < MIN_OUTPUTS:
            return
        self._wait -= 1
        if self._wait:
            return
        self._wait = WAIT_FOR_OUTPUTS
        self._tries += 1
        if self._tries == TRIES:
            self.unsubscribe("on_forward_end", "on_batch_end")
        found = look_at_garbage()
        if found is None or found.text is None or found.place.file is None or not found.bytes:
            return
        self.unsubscribe("on_forward_end", "on_batch_end")
        self.report(freed_by_collector(self.watch, found, outputs=self._freed, nbytes=self._bytes))

    def _on_collection(self, phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            self._alive = [item for item in self._refs if not item[0].expired()] if self._refs else []
        elif self._alive:
            freed = [size for ref, size in self._alive if ref.expired()]
            self._freed += len(freed)
            self._bytes += sum(freed)
            self._alive = []
