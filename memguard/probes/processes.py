"""What the process as a whole shows at times: graphs compiled, memory on other devices."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any, ClassVar, final

import torch

from memguard.facts import CompiledGraphs, Fact, OtherDevice
from memguard.probes.interface import Probe, Watch

EVERY = 16
FIRST = 8
MIN_OTHER_BYTES = 1024**2


@final
class CompilationsProbe(Probe):
    """Counts, at most once in 16 batches, the graphs that torch.compile made; loads nothing of it."""

    name: ClassVar[str] = "compilations"

    def __init__(self, watch: Watch, report: Callable[[Fact], None]) -> None:
        super().__init__(watch, report)
        self._last = 0
        self._next = FIRST

    def on_batch_end(self) -> None:
        """Tells when there are new ones."""
        if self.watch.batches < self._next:
            return
        self._next = self.watch.batches + EVERY
        graphs = unique_graphs()
        if not graphs or graphs == self._last:
            return
        self._last = graphs
        self.report(CompiledGraphs(batch=self.watch.batch, stage=self.watch.stage, graphs=graphs))


def unique_graphs() -> int:
    """Graphs that torch.compile made in this process. A private counter; checked in torch 2.13."""
    utils: Any = sys.modules.get("torch._dynamo.utils")
    counters = getattr(utils, "counters", None)
    return int(counters["stats"].get("unique_graphs", 0)) if counters is not None and "stats" in counters else 0


@final
class OtherDevicesProbe(Probe):
    """Asks a few times whether this process holds memory on a CUDA device that is not its own."""

    name: ClassVar[str] = "other devices"

    def __init__(self, watch: Watch, report: Callable[[Fact], None]) -> None:
        super().__init__(watch, report)
        self._looks = [FIRST, 256]
        if "LOCAL_RANK" not in os.environ or not watch.device.startswith(("cuda", "auto")):
            self.stop_hearing("on_batch_end")

    def on_batch_end(self) -> None:
        """Looks early and then seldom; a process without a rank, or with a model on several devices, means it so."""
        watch = self.watch
        if watch.batches < self._looks[0]:
            return
        del self._looks[0]
        if not self._looks:
            self.stop_hearing("on_batch_end")
        if not watch.device.startswith("cuda") or not torch.cuda.is_initialized():
            return
        homes = {parameter.device for model in watch.models for parameter in model.parameters()}
        if len([device for device in homes if device.type == "cuda"]) > 1:
            return
        own = torch.cuda.current_device()
        for index in range(torch.cuda.device_count()):
            reserved = 0 if index == own else torch.cuda.memory_reserved(index)
            if reserved >= MIN_OTHER_BYTES:
                self.stop_hearing("on_batch_end")
                self.report(
                    OtherDevice(
                        batch=watch.batch,
                        stage=watch.stage,
                        device=f"cuda:{index}",
                        own_device=f"cuda:{own}",
                        bytes=reserved,
                    )
                )
