"""Losses of micro-batches that are added up for one backward: all their graphs are alive then."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, final

import torch
from torch import nn

from memguard.autograd.graph import GraphToken, in_turn, is_leaf, saved_tensors, separate_graphs, summands_of
from memguard.autograd.reach import Reach
from memguard.evidence.graphs.graph_contents import reach_of
from memguard.evidence.graphs.micro_batches import FEWEST, IN_USE
from memguard.evidence.interface import Probe
from memguard.records.facts import MicroBatchGraphs, Place
from memguard.records.stats import Stage
from memguard.thresholds import much_of
from memguard.torch_objects.storages import owned_storages, storages_of

MOST_NODES, MOST_LOSSES = 40_000, 8
"""Most nodes that are visited in the graphs of losses, and most losses: that many first ones, and that many later."""
_LOSS, _END, _SUMMAND = "on_loss", "on_batch_end", "memguard.summand"


@final
class SummedLossesProbe(Probe):
    """Looks at the losses that the first backwards begin with, and later ones where several forwards came before.

    Of interest is a sum of losses of the same weights, each with a graph of its own that was complete before the next
    began. What shares more than weights (a trunk, a state, the other examples of a contrastive loss) is one graph.
    Terms scaled when all forwards are over may have waited for them: a policy's gradient for an episode's returns.
    """

    def _prepare(self) -> None:
        self.deaf = frozenset({_END})
        self._losses_left = self._asks_left = MOST_LOSSES
        self._nodes_left = MOST_NODES
        self._steps: int | None = None
        """Optimizer steps at the last search for a name, after a loss that showed none."""
        self._filled: Place | None = None
        self._found: MicroBatchGraphs | None = None

    def on_forward_start(self, module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Asks for the next loss where earlier forwards of this step wait for it."""
        watch = self.watch
        if watch.stage is not Stage.TRAIN or len(watch.ledger.live) < FEWEST:
            return
        key, steps = id(module), watch.optimizer_steps
        marks = [mark for mark in list(watch.ledger.live.values()) if mark.module == key and mark.steps == steps]
        if sum(mark.training and not mark.used for mark in marks) < FEWEST:
            return
        if _LOSS in self.deaf:
            self._asks_left, self._losses_left = self._asks_left - 1, 1
            self.hear(_LOSS)
        if self._steps is not None and self._steps != steps:
            self._steps, self._filled = steps, self._find(reach_of(marks))
        if not self._asks_left:
            self.unsubscribe("on_forward_start")

    def on_loss(self, loss: torch.Tensor) -> None:
        """Looks whether it is such a sum, of which more is saved than is worth a remark, and who collects it."""
        self._losses_left -= 1
        if self._losses_left <= 0:
            self.unsubscribe(_LOSS)
        watch, left = self.watch, self._nodes_left
        waiting = sum(m.steps == watch.optimizer_steps and not m.used for m in list(watch.ledger.live.values()))
        # In Lightning a step may call a part of its module, which nobody hears.
        if (waiting > FEWEST or watch.lightning) and len(summands := summands_of(loss.grad_fn)) > FEWEST:
            separate = separate_graphs(summands, left)
            self._nodes_left = left - sum(map(len, separate)) if separate else 0
            by_weights: dict[frozenset[Any], list[set[Any]]] = {frozenset(): []}
            for nodes in separate:
                by_weights.setdefault(frozenset(filter(is_leaf, nodes)), []).append(nodes)
            alike = max(by_weights.values(), key=len)
            if len(graphs := in_turn(alike)) > FEWEST:
                self._conclude(graphs, summands)

    def _conclude(self, graphs: list[set[Any]], summands: list[Any]) -> None:
        watch, owned = self.watch, owned_storages(self.watch.models)
        saved = [storages_of(tensor for node in nodes for tensor in saved_tensors(node)) for nodes in graphs]
        times = Counter(key for storages in saved for key in storages)
        sizes = [sum(n for key, n in one.items() if times[key] == 1 and key not in owned) for one in saved]
        peak = max(watch.peak_bytes or 0, watch.read().allocated_bytes or 0)
        whole = peak or IN_USE * sum(owned.values()) + sum(sizes)
        if sum(sizes) - max(sizes) < much_of(whole):
            return
        token = GraphToken()
        for node in summands:
            node.metadata[_SUMMAND] = token
        place = self._filled or self._find(Reach(_SUMMAND, lambda each: each is token))
        if place is None:
            self._steps = watch.optimizer_steps
            return
        self.unsubscribe("on_forward_start", _LOSS)
        self.hear(_END)
        self._found = MicroBatchGraphs(
            **watch.now,
            place=place,
            graphs=len(graphs),
            bytes=sum(sizes),
            largest_bytes=max(sizes),
            saves=True,
            summed=True,
            derived=any(mark.derivatives for mark in list(watch.ledger.live.values())),
            peak_bytes=peak or None,
        )

    def on_batch_end(self) -> None:
        """Reports what was found, now that the peak is known."""
        self.unsubscribe(_END)
        if (found := self._found) is not None:
            self.report(replace(found, peak_bytes=self.watch.peak_bytes or found.peak_bytes))

    def _find(self, reach: Reach) -> Place | None:
        found = self.holders(reach, graph=True, passes=reach.passes, stage=Stage.TRAIN, collector=False)
        named = (each for each in found if each.place.holder and (each.grows or each.length > FEWEST))
        return next((each.place for each in named), None)
