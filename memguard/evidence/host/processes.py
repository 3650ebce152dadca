"""Rare readings of the process: graphs, memory on other devices or sent to other processes, pinned memory."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from typing import Any, final

import torch
from torch import nn
from torch.multiprocessing.reductions import shared_cache  # private; checked in torch 2.4, 2.13 and 2.15

from memguard.evidence.interface import Probe
from memguard.heap.frames import user_frames
from memguard.records.facts import (
    NOWHERE,
    CompiledGraphs,
    OtherDevice,
    PinnedCacheGrows,
    PinnedRounded,
    SentToProcesses,
)
from memguard.source.sites import compile_site
from memguard.torch_objects.module_parts import parameters_of
from memguard.torch_objects.storages import storage_key

EVERY, RARELY = 16, 128
FIRST, SETTLING = 8, 64
MIN_OTHER_BYTES = 1024**2
_SHARED = (0, 0)
"""Number of the pool that is nobody's own."""


@final
class CompilationsProbe(Probe):
    """Counts graphs compiled or captured, once in eight batches, later in 16; loads nothing of torch.compile.

    The pools of captured graphs are asked for more rarely once they are as many as before: that is a whole reading of
    the allocator.
    """

    def _prepare(self) -> None:
        self._last = (0, 0)
        self._private = PrivatePools()
        self._pools, self._ask_pools = (0, 0), FIRST
        self._next = FIRST

    def on_batch_end(self) -> None:
        """Tells when there are new ones."""
        watch = self.watch
        if watch.batches < self._next:
            return
        self._next = watch.batches + (FIRST if watch.batches < SETTLING else EVERY)
        graphs = unique_graphs()
        if watch.batches >= self._ask_pools and watch.device.startswith("cuda"):
            before, self._pools = self._pools, self._private.read()
            settled = watch.batches > SETTLING and self._pools[0] <= before[0]
            self._ask_pools = watch.batches + (RARELY if settled else FIRST)
        pools, nbytes = self._pools
        if (graphs, pools) == self._last:
            return
        self._last = graphs, pools
        place = compile_site([frame.f_code.co_filename for frame in user_frames(sys._getframe(1))], captures=not graphs)
        self.report(CompiledGraphs(**watch.now, place=place, graphs=graphs, pools=pools, pool_bytes=nbytes or None))


@final
class PrivatePools:
    """Private pools of the CUDA allocator that hold memory: one for each graph that was captured."""

    def __init__(self) -> None:
        self._known = (0, 0)
        self._allocated = 0
        """Segments that the driver gave so far; without a new one there is no new pool."""

    def read(self) -> tuple[int, int]:
        """How many there are, and their bytes.

        From ``memory_stats_as_nested_dict``; versions of torch that do not tell (2.11 does not, 2.15 does) have them in
        the snapshot's segments, which is read where the driver gave new ones.
        """
        if not torch.cuda.is_initialized():
            return 0, 0
        stats = torch.cuda.memory_stats_as_nested_dict()
        told = stats.get("reserved_bytes_by_private_pools")
        if told is not None:
            sizes = [int(pool["all"]["current"]) for pool in told.values()]
            return sum(size > 0 for size in sizes), sum(sizes)
        allocated = int(stats.get("segment", {}).get("all", {}).get("allocated", 0))
        if allocated != self._allocated:
            self._known = _pools_in_segments() or self._known
            self._allocated = allocated
        return self._known


def _pools_in_segments() -> tuple[int, int] | None:
    """Private pools of the current device that hold memory, and their bytes; None where a long trace would come too."""
    try:
        segments = torch.cuda.memory.memory_snapshot(include_traces=False)
    except TypeError:  # before 2.11
        is_on = getattr(torch._C, "_cuda_isHistoryEnabled", None)
        if is_on is not None and is_on():
            return None
        segments = torch.cuda.memory.memory_snapshot()
    device, sizes = torch.cuda.current_device(), dict[tuple[int, int], int]()
    for segment in segments:
        pool = tuple(segment.get("segment_pool_id") or _SHARED)
        if pool != _SHARED and segment["device"] == device:
            sizes[pool] = sizes.get(pool, 0) + int(segment["total_size"])
    return len(sizes), sum(sizes.values())


def unique_graphs() -> int:
    """Graphs that torch.compile made in this process. A private counter; checked in torch 2.13."""
    utils: Any = sys.modules.get("torch._dynamo.utils")
    counters = getattr(utils, "counters", None)
    return int(counters["stats"].get("unique_graphs", 0)) if counters is not None and "stats" in counters else 0


@final
class OtherDevicesProbe(Probe):
    """Asks a few times whether this process holds memory on a CUDA device that is not its own."""

    def _prepare(self) -> None:
        self._looks = [FIRST, 256]
        if not self.watch.device.startswith(("cuda", "auto")):
            self.unsubscribe("on_batch_end")

    def on_batch_end(self) -> None:
        """Looks early and then seldom; a process without a rank, or with a model on several devices, means it so."""
        watch = self.watch
        if watch.batches < self._looks[0] or watch.device == "auto":
            return
        del self._looks[0]
        if not self._looks:
            self.unsubscribe("on_batch_end")
        if not watch.device.startswith("cuda") or not torch.cuda.is_initialized() or not _is_rank():
            return
        indices, meant = _homes(watch.models), _device_of_rank()
        if len(indices) > 1:
            if meant is None or meant not in indices or _ranks() < torch.cuda.device_count():
                return
            indices = {meant}  # each of the other devices belongs to another rank
        own = next(iter(indices), torch.cuda.current_device())  # where a model is, whatever the current device is
        if meant is not None and meant != own == torch.cuda.current_device() == 0:
            self.unsubscribe("on_batch_end")
            self.report(
                OtherDevice(
                    **watch.now,
                    place=NOWHERE,
                    device="cuda:0",
                    own_device=f"cuda:{meant}",
                    bytes=torch.cuda.memory_reserved(0),
                    model=True,
                )
            )
            return
        for index in range(torch.cuda.device_count()):
            reserved = 0 if index == own else torch.cuda.memory_reserved(index)
            if reserved >= MIN_OTHER_BYTES:
                self.unsubscribe("on_batch_end")
                there = torch.device("cuda", index)
                held = self.holders(lambda tensor, there=there: 0 if tensor.device == there else None, graph=False)  # type: ignore[misc]
                self.report(
                    OtherDevice(
                        **watch.now,
                        place=held[0].place if held else NOWHERE,
                        device=str(there),
                        own_device=f"cuda:{own}",
                        bytes=reserved,
                    )
                )


def _homes(models: Iterable[nn.Module]) -> set[int]:
    """The CUDA devices on which models lie."""
    devices = {parameter.device for model in models for parameter in parameters_of(model)}
    return {device.index for device in devices if device.type == "cuda"}


def _device_of_rank() -> int | None:
    """The device that a launcher means for this process; None where the machine has not one for each of its ranks."""
    local = os.environ.get("LOCAL_RANK", "")
    if not local.isdigit() or not int(local) < _ranks() <= torch.cuda.device_count():
        return None
    return int(local)


def _ranks() -> int:
    """How many processes a launcher started on this machine, as far as it says so."""
    ranks = os.environ.get("LOCAL_WORLD_SIZE", os.environ.get("WORLD_SIZE", ""))
    return int(ranks) if ranks.isdigit() else 0


def _is_rank() -> bool:
    """Whether this process is one of several that share the machine's devices among them."""
    distributed: Any = sys.modules.get("torch.distributed")
    started = distributed is not None and distributed.is_available() and distributed.is_initialized()
    return started or "LOCAL_RANK" in os.environ


@final
class SentProbe(Probe):
    """Counts tensors that were sent to other processes through CUDA IPC and are gone here, once in 16 batches.

    Their memory stays allocated for as long as a receiver has it. Torch tells neither that nor how much it is.
    """

    def _prepare(self) -> None:
        self._next, self._most = EVERY, 0
        if not self.watch.device.startswith(("cuda", "auto")):
            self.unsubscribe("on_batch_end", "on_run_end")

    def on_batch_end(self) -> None:
        """Looks when it is due."""
        if self.watch.batches >= self._next:
            self._next = self.watch.batches + EVERY
            self.on_run_end()

    def on_run_end(self) -> None:
        """Tells where there are more than ever."""
        handles = list(shared_cache.items())  # those of host memory are names of files, or tuples
        gone = sum(isinstance(key, bytes) and not key.startswith(b"/") and ref.expired() for key, ref in handles)
        if gone > self._most:
            self._most = gone
            self.report(SentToProcesses(**self.watch.now, tensors=gone))


FIRST_LOOK, LAST_LOOK = 16, 4096
"""Batches of the first look; each later one comes after twice as many."""
RISES = 2
"""Looks in a row that have to show more than the one before."""
MIN_GROWN_BYTES = 16 * 1024**2
ROUNDED_BYTES, ROUNDED_SHARE = 32 * 1024**2, 0.25
"""What rounding must take to be told, and of what is in use."""
SEARCHES = 3
"""Walks over what is in reach that may ask who keeps pinned tensors."""


@final
class PinnedProbe(Probe):
    """Tells once, when the cache rose from look to look and is twice what it was; and of rounding to powers of two.

    What a checkpoint is staged in, or what is offloaded, is made of a few large tensors; batches come in and out.
    """

    def _prepare(self) -> None:
        self._next = FIRST_LOOK
        self._held: list[tuple[int, int]] = []
        self._searches, self._searched = SEARCHES, 0
        """Those left, and what was in use at the last."""

    def on_batch_end(self) -> None:
        """Looks when it is due."""
        watch = self.watch
        if watch.batches < self._next:
            return
        self._next *= 2
        if self._next > LAST_LOOK or watch.device.partition(":")[0] not in ("cuda", "auto"):
            self.unsubscribe("on_batch_end")
        held, active = _pinned_bytes()
        if held is None:
            return
        self._look_for_rounding(active or 0)
        self._held = [*self._held[-RISES:], (watch.batch, held)]
        since, before = self._held[0]
        rises = sum(b[1] > a[1] for a, b in zip(self._held, self._held[1:], strict=False))
        if rises < RISES or held < 2 * before or held - before < MIN_GROWN_BYTES:
            return
        self.unsubscribe("on_batch_end")
        self.report(
            PinnedCacheGrows(**watch.now, bytes=held, active_bytes=active, before_bytes=before, since_batch=since)
        )

    def _look_for_rounding(self, active_bytes: int) -> None:
        """Asks who keeps pinned tensors, where so much more is in use than at the last time that it may matter."""
        if not self._searches or active_bytes - self._searched < ROUNDED_BYTES / ROUNDED_SHARE:
            return
        self._searches, self._searched = self._searches - 1, active_bytes
        asked: dict[int, int] = {}

        def judge(tensor: torch.Tensor) -> int | None:
            if type(tensor) is not torch.Tensor or tensor.device.type != "cpu" or not tensor.is_pinned():
                return None
            key = storage_key(tensor)
            if key is not None:
                asked[key[0]] = key[1]
            return None if key is None else key[1]

        holders = self.holders(judge, graph=False, collector=False)
        blocks = sum(1 << (size - 1).bit_length() for size in asked.values() if size)
        wanted = sum(asked.values())
        # Memory that was registered with CUDA is pinned as well, and as large as it is; the cache knows nothing of it.
        if not holders or blocks > active_bytes or blocks - wanted < max(ROUNDED_BYTES, ROUNDED_SHARE * blocks):
            return
        self._searches = 0
        self.report(
            PinnedRounded(
                **self.watch.now, place=holders[0].place, tensors=len(asked), bytes=wanted, block_bytes=blocks
            )
        )


def _pinned_bytes() -> tuple[int | None, int | None]:
    """What the cache holds, and what of it is in use; the keys changed their names after torch 2.7."""
    told = getattr(torch.cuda, "host_memory_stats", None)
    if told is None or not torch.cuda.is_initialized():
        return None, None
    stats = told()
    old = "reserved_bytes.current" in stats
    held = stats.get("reserved_bytes.current" if old else "allocated_bytes.current")
    return held, stats.get("allocated_bytes.current" if old else "active_bytes.current")
