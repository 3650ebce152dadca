"""Parts of a session chosen by the options: rank, sinks, shared state of the probes."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

import memguard
from memguard.backends.cuda_history import choose_history
from memguard.backends.interface import Backend
from memguard.evidence.interface import ProbeContext
from memguard.guards.differentiates import differentiates
from memguard.integrations.ray_train import ray_worker
from memguard.launch import Launch, read_launch
from memguard.options import Options
from memguard.sinks.console import ConsoleSink
from memguard.sinks.interface import Sink
from memguard.sinks.tensorboard import TensorBoardSink
from memguard.text.urls import is_url, shown

if TYPE_CHECKING:
    from memguard.sinks.export.sink import ExportSink


def find_launch(rank: int | None, world_size: int | None) -> Launch:
    """This process's place in its run, as the front door, Ray Train, torch.distributed or the environment tells."""
    if rank is None and world_size is None and (worker := ray_worker()) is not None:
        return worker
    if rank is None and world_size is None and dist.is_available() and dist.is_initialized():
        rank, world_size = dist.get_rank(), dist.get_world_size()
    return read_launch(rank=rank, world_size=world_size)


def make_sinks(
    options: Options, writer: Callable[[], Any] | None, logdir: Path, rank: int, *, console: bool, record: bool
) -> list[Sink]:
    """The first rank tells all it knows; the others only what concerns them alone."""
    sinks: list[Sink] = [ConsoleSink()] if console else []
    if rank:
        from memguard.sinks.several_ranks import OnlyHere

        return [OnlyHere(sink, logdir, rank) for sink in sinks]
    if not record:
        return sinks
    curves = TensorBoardSink(log_every=options.log_every, writer=writer, logdir=logdir, layout=options.custom_scalars)
    return [*sinks, curves]


def make_export(options: Options, launch: Launch, logdir: Path) -> ExportSink | None:
    """The sink that every rank exports through, where the options ask for one."""
    if options.export is None:
        return None
    from memguard.sinks.export.place import Exporting
    from memguard.sinks.export.sink import make_export_sink

    exporting = Exporting(
        rank=launch.rank,
        world_size=launch.world_size,
        local_rank=launch.local_rank,
        node=launch.node,
        restart=launch.restart,
        run=launch.run or logdir.name,
        version=memguard.__version__,
    )
    return make_export_sink(options.export, exporting)


def make_watch(options: Options, backend: Backend, *, lightning: bool) -> ProbeContext:
    """What the probes see of the run, and share."""
    watch = ProbeContext(device=options.device, lightning=lightning, read=backend.read)
    watch.differentiates = differentiates
    watch.uses = getattr(backend, "uses", None)  # the virtual one's, whose modules take a tenth of the start-up
    if options.history == "auto":
        watch.history = choose_history(options.device, backend)
    return watch


def describe_run(options: Options, launch: Launch) -> dict[str, Any]:
    """What a recording says of the process that wrote it."""
    return {
        "memguard": memguard.__version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "argv": sys.argv[:20],
        "options": {name: getattr(options, name) for name in options.__slots__} | _without_password(options),
        "node": launch.node,
        "local_rank": launch.local_rank,
        "restart": launch.restart,
        "run": launch.run,
    }


def _without_password(options: Options) -> dict[str, Any]:
    place = options.logdir
    return {"logdir": shown(os.fspath(place))} if place is not None and is_url(place) else {}
