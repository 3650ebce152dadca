"""Copies of the model's weights, and checkpoints, that lie on the device besides the model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import ClassVar, final

import torch

from memguard.facts import CheckpointKept, Fact, ModelCopies
from memguard.probes.interface import Probe, Watch
from memguard.probes.owners import state_of
from memguard.probes.sizes import owned_storages, storage_key, storages_of
from memguard.stats import Stage

LOOKS = frozenset({12, 60, 300})
"""Training batches after which copies are looked for."""
MIN_BYTES = 4096
WHOLE = 0.9
"""Share of the model's bytes that tensors of the same shapes must make up to be a copy."""
_AVERAGES = ("ema", "swa", "averag", "target", "momentum", "shadow", "teacher", "reference", "ref_")


@final
class WeightsProbe(Probe):
    """Looks a few times for tensors of the parameters' shapes that no watched model or optimizer owns."""

    name: ClassVar[str] = "weights"

    def __init__(self, watch: Watch, report: Callable[[Fact], None]) -> None:
        super().__init__(watch, report)
        self._batches = 0
        self._told = 0

    def on_batch_end(self) -> None:
        """Looks, at a few batches of training."""
        if self.watch.stage is not Stage.TRAIN:
            return
        self._batches += 1
        if self._batches in LOOKS:
            self._look()

    def _look(self) -> None:
        watch = self.watch
        large = [p for model in watch.models for p in model.parameters() if p.numel() * p.element_size() >= MIN_BYTES]
        if not large:
            return
        judge = _SameShape(large, owned_storages(watch.models))
        for optimizer in watch.optimizers:
            judge.owned.update(storages_of(state_of(optimizer)))
        judge.owned.update(storages_of(p.grad for p in large if p.grad is not None))
        holders = self.holders(judge, graph=False, collector=False)
        model_bytes = sum(p.numel() * p.element_size() for p in large)
        copies = round(judge.found_bytes / model_bytes) if judge.found_bytes >= WHOLE * model_bytes else 0
        if copies <= self._told or not judge.complete(WHOLE):
            return
        self._told = copies
        names = tuple(h.place.holder for h in holders if h.place.holder is not None)
        place = max(holders, key=lambda holder: holder.bytes).place if holders else None
        averaged = any(word in name.lower() for name in names for word in _AVERAGES)
        fact = ModelCopies(
            batch=watch.batch,
            stage=watch.stage,
            copies=copies,
            bytes=judge.found_bytes,
            holders=names[:8],
            averaged=averaged,
            **({} if place is None else {"place": place}),
        )
        if any(word in name.lower() for name in names for word in ("ckpt", "checkpoint", "loaded")):
            self.report(
                CheckpointKept(
                    batch=watch.batch, stage=watch.stage, place=fact.place, bytes=fact.bytes, batches=self._batches
                )
            )
            return
        self.report(fact)


@final
class _SameShape:
    """Recognises tensors of the parameters' shapes and device that are nobody's known own."""

    def __init__(self, parameters: list[torch.nn.Parameter], owned: dict[int, int]) -> None:
        self.owned = owned
        self.found_bytes = 0
        self._wanted = Counter(tuple(p.shape) for p in parameters)
        self._found: Counter[tuple[int, ...]] = Counter()
        self._device = parameters[0].device
        self._seen: set[int] = set()

    def __call__(self, tensor: torch.Tensor) -> int | None:
        shape = tuple(tensor.shape)
        if shape not in self._wanted or tensor.device != self._device or tensor.grad_fn is not None:
            return None
        key = storage_key(tensor)
        if key is None or key[0] in self.owned:
            return None
        if key[0] not in self._seen:
            self._seen.add(key[0])
            self._found[shape] += 1
            self.found_bytes += tensor.numel() * tensor.element_size()
        return key[1]

    def complete(self, share: float) -> bool:
        """Whether (nearly) every shape of the model was found as often as the model has it."""
        matched = sum(min(count, self._found[shape]) for shape, count in self._wanted.items())
        return matched >= share * sum(self._wanted.values()) and len(self._wanted) > 1
