"""One trace from start to end, inside the child process: fake GPU, model, steps."""

from __future__ import annotations

import contextlib
import logging
import warnings
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.optim.optimizer import Optimizer

from memguard.errors import MemGuardError
from memguard.forecast.changes import HALF_BATCH, accumulated_twice, apply_change, prepare_change
from memguard.forecast.distributed import stand_in_for_process_group
from memguard.forecast.fakes.compiled import follow_compiled, has_compiled
from memguard.forecast.fakes.device_guard import install_device_guard
from memguard.forecast.fakes.gpu import become_gpu
from memguard.forecast.fakes.placement import Placement
from memguard.forecast.fakes.process_group import Place, join, name_process
from memguard.forecast.fakes.speed import hasten_fake_tensors
from memguard.forecast.fakes.torch_on_fakes import prepare_torch, undecomposed
from memguard.forecast.fakes.unnamed_gpu import AutocastInputs, GpuNumbers
from memguard.forecast.fakes.without_dynamo import keep_distributed_tensors_out, keep_dynamo_out
from memguard.forecast.kernels.attention import install_attention
from memguard.forecast.kernels.fused_norm import install_group_norm, install_rms_norm
from memguard.forecast.kernels.products import install_products
from memguard.forecast.layouts import layout_text
from memguard.forecast.recorded import settle
from memguard.forecast.setting import Setting
from memguard.forecast.trace import Kind, Trace
from memguard.forecast.tracer import Tracer
from memguard.forecast.watching import watch

Step = Callable[[], Any]
Made = tuple[nn.Module | None, Any, Step]
"""Model, optimizer (or several, or None), and the function that does one training step."""


def trace(make: Callable[[], Made], setting: Setting) -> Trace:
    """Run the steps on fake tensors and write down their memory. Changes this process for good."""
    place = None
    if setting.processes is None:
        keep_dynamo_out()
        keep_distributed_tensors_out()
    else:
        place = Place(setting.rank, setting.processes, setting.nodes)
        name_process(place)
    logging.getLogger(FakeTensor.__module__).setLevel(logging.CRITICAL)  # an error is told once, by the caller
    install_device_guard()
    hasten_fake_tensors()
    torch.autograd.set_multithreading_enabled(False)
    fake_mode = FakeTensorMode(allow_non_fake_inputs=True, allow_fallback_kernels=False)  # or real ones would run
    tracer = Tracer(fake_mode, setting)
    tracer.sites.outermost = trace.__code__
    become_gpu(
        name=setting.name,
        total_bytes=setting.total_bytes,
        compute_capability=setting.compute_capability,
        allocated_bytes=lambda: tracer.allocated_bytes,
        empty_cache=lambda: tracer.mark(Kind.EMPTY_CACHE),
        number=setting.local_rank,
        count=setting.processes or 1,
    )
    prepare_torch(tracer)
    if place is None:
        stand_in_for_process_group(tracer)
    else:
        join(tracer, place)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that a kernel is replaced is the purpose
        kept = [install_attention(tracer), install_rms_norm(tracer), install_group_norm(tracer)]
        kept += [install_products(), undecomposed()]
    with fake_mode, tracer, contextlib.ExitStack() as modes:
        numbers = GpuNumbers()
        shards = prepare_change(setting.change)
        with numbers:
            model, optimizers, step = make()
        if numbers.seen:
            modes.enter_context(numbers)  # every operator takes a little longer, so only where it is needed
        if setting.layout and not tracer.laid_out:
            raise MemGuardError(
                f"the layout {layout_text(setting.layout)} is that of no mesh: the code calls no init_device_mesh with "
                f"mesh_dim_names of {', '.join(name for name, _ in setting.layout)}"
            )
        optimizers = optimizers_of(optimizers)
        apply_change(setting.change, model, optimizers, shards)
        own = step  # whose closure holds the inputs, whoever calls it
        if setting.change == HALF_BATCH.name:
            step = accumulated_twice(step, optimizers)
        placed = Placement(tracer, model, optimizers)
        placed.move()
        placed.bring(own)
        follow_compiled(tracer, model)
        hooks = watch(tracer, model, optimizers)
        if tracer.everything_on_gpu:
            modes.enter_context(AutocastInputs(tracer))
        tracer.sites.stepping = True
        for number in range(setting.steps):
            tracer.mark(Kind.STEP, nbytes=number)
            step()
            hooks()
        tracer.mark(Kind.STEP, nbytes=setting.steps)
        if setting.traced_batch not in (None, setting.batch) and not tracer.resized:
            raise MemGuardError(
                f"no input of the step has the batch size {setting.batch} as its first dimension; let the function (or "
                "the step) take a parameter named batch"
            )
        if torch.backends.cudnn.benchmark and any(event.kind == Kind.CONVOLUTION for event in tracer.events):
            tracer.note("cudnn.benchmark is on: while it tries algorithms, the first step can be above the figure")
        result = tracer.trace(steps=setting.steps, batch=setting.traced_batch or setting.batch)
    settle(result)
    cuts = cuts_of(model.parameters()) if place is not None and model is not None else ()
    result = replace(result, compiled=has_compiled(), cuts=cuts)
    del kept  # until here they replaced PyTorch's
    return result


def optimizers_of(given: Any) -> list[Optimizer]:
    """One optimizer, several or none as a list."""
    if given is None:
        return []
    if isinstance(given, Optimizer):
        return [given]
    if isinstance(given, Iterable):
        return [optimizer for optimizer in given if isinstance(optimizer, Optimizer)]
    raise MemGuardError(f"the optimizer is a {type(given).__name__}, not a torch.optim.Optimizer or a list of them")


# Where along a device mesh the shards of parameters become smaller, where their sizes do not divide by the ranks.

Cut = tuple[str, int]
"""Name of a mesh's dimension, and the coordinate from which on some shards are smaller."""


def cuts_of(tensors: Iterable[torch.Tensor]) -> tuple[Cut, ...]:
    """The cuts of all distributed tensors among these, as `torch.chunk` makes them: a last part, then empty ones."""
    found: set[Cut] = set()
    for tensor in tensors:
        placements: Any = getattr(tensor, "placements", None)
        mesh: Any = getattr(tensor, "device_mesh", None)
        if placements is None or not getattr(mesh, "mesh_dim_names", None):
            continue
        sizes = list(tensor.shape)
        for number, placement in enumerate(placements):
            dim = getattr(placement, "dim", None)
            if not placement.is_shard() or dim is None:
                continue
            whole, ranks = sizes[dim], int(mesh.size(number))
            part = -(-whole // ranks)
            sizes[dim] = part
            if part:
                ends = (whole // part, -(-whole // part))
                found |= {(mesh.mesh_dim_names[number], end) for end in ends if 0 < end < ranks}
    return tuple(sorted(found))
