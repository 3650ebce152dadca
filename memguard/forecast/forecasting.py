"""The forecast of a training step: traced once, simulated for the device, judged and explained."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

import torch

from memguard.forecast.cards import Card, find_card
from memguard.forecast.child import in_child
from memguard.forecast.explain import peak_place, plot_points, shares_at_peak
from memguard.forecast.result import DOES_NOT_FIT, FITS, FITS_WITH_RETRIES, Forecast
from memguard.forecast.session import Made, trace
from memguard.forecast.setting import Setting
from memguard.forecast.simulate import Simulation, simulate
from memguard.forecast.trace import Kind, Trace
from memguard.forecast.workspaces import CUBLAS_BYTES, CUBLAS_BYTES_HOPPER, Workspaces, version_of, workspaces_for

Step = Callable[[], Any]


def forecast(
    step: Step | None = None,
    *,
    model: Any = None,
    optimizer: Any = None,
    device: str | int | None = None,
    steps: int = 3,
    batch: int | None = None,
    torch_version: str | None = None,
    alloc_conf: str | None = None,
    reserved_by_others_bytes: int = 0,
) -> Forecast:
    """What a training step will need on a GPU, and whether it fits. Needs no GPU.

    The step runs on fake tensors in a forked child process: nothing of the caller's model, data or random state
    changes, and no memory is taken for weights.

    Args:
        step: Does one training step; takes no argument. Its closure holds model, optimizer and data, wherever they are.
        model: The `torch.nn.Module` that the step trains.
        optimizer: The optimizer, or a list of them.
        device: A card like ``"nvidia-h200"``, or an amount of memory like ``"24GiB"``, all of it PyTorch's. None: the
            GPU of this machine, or no verdict without one.
        steps: How many steps to look at; the optimizer's states exist from the second on.
        batch: The batch size of the step as it stands; asks for the largest that fits.
        torch_version: The PyTorch that will run the step; by default the one installed here. Libraries' workspaces
            depend on it.
        alloc_conf: ``PYTORCH_CUDA_ALLOC_CONF`` of that run; by default that of this process.
        reserved_by_others_bytes: What other processes hold on the GPU.

    Raises:
        ValueError: The device, the version or the allocator's configuration is not known.
        MemGuardError: The step could not be traced; the text says why.
    """
    if step is None or not callable(step):
        raise TypeError(f"the step must be a function that does one training step, got {type(step).__name__}")
    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"model must be a torch.nn.Module, got {type(model).__name__}")
    return forecast_of(
        lambda: (model, optimizer, step),
        device=device,
        steps=steps,
        batch=batch,
        torch_version=torch_version,
        alloc_conf=alloc_conf,
        reserved_by_others_bytes=reserved_by_others_bytes,
    )


def forecast_of(
    make: Callable[[], Made],
    *,
    device: str | int | None = None,
    steps: int = 3,
    batch: int | None = None,
    torch_version: str | None = None,
    alloc_conf: str | None = None,
    reserved_by_others_bytes: int = 0,
) -> Forecast:
    """The same of a function that builds model, optimizer and step; it runs on fake tensors too.

    Args:
        make: Returns model, optimizer and step.
        device: See `forecast`; likewise all others.
        steps: See `forecast`.
        batch: See `forecast`.
        torch_version: See `forecast`.
        alloc_conf: See `forecast`.
        reserved_by_others_bytes: See `forecast`.
    """
    started = time.perf_counter()
    if steps < 1:
        raise ValueError(f"steps must be at least 1, got {steps}")
    card = find_card(device) if device is not None else _this_machine()
    version = torch_version or torch.__version__
    version_of(version)
    conf = alloc_conf if alloc_conf is not None else environment_conf()
    setting = Setting(
        steps=steps,
        compute_capability=card.compute_capability if card else (8, 0),
        total_bytes=card.total_bytes if card else 80 * 2**30,
        multiprocessors=card.multiprocessors if card else 108,
        threads_per_multiprocessor=card.threads_per_multiprocessor if card else 2048,
        name=card.title if card else "GPU",
        batch=batch,
    )
    traced = in_child(lambda: trace(make, setting))
    return judge(
        traced,
        card=card,
        torch_version=version,
        alloc_conf=conf,
        reserved_by_others_bytes=reserved_by_others_bytes,
        seconds=time.perf_counter() - started,
    )


def judge(
    traced: Trace,
    *,
    card: Card | None,
    torch_version: str,
    alloc_conf: str,
    reserved_by_others_bytes: int = 0,
    seconds: float = 0.0,
) -> Forecast:
    """The forecast that a trace gives for a card."""
    workspaces = workspaces_for(traced.compute_capability)
    run = _run_on(traced, card, torch_version, alloc_conf, reserved_by_others_bytes, workspaces)
    verdict = verdict_of(run) if card is not None else None
    needed = run
    if run.out_of_memory is not None:
        needed = simulate(traced, conf=alloc_conf, torch_version=torch_version, workspaces=workspaces)
    allocated_range, reserved_range, sources = _ranges(traced, needed, card, torch_version, alloc_conf)
    owners, modules, lines = shares_at_peak(traced, needed)
    step, phase, line = peak_place(traced, needed)
    return Forecast(
        device=card.title if card else "no GPU named",
        device_total_bytes=card.total_bytes if card else None,
        context_bytes=card.context_bytes[1] if card else 0,
        reserved_by_others_bytes=reserved_by_others_bytes,
        torch_version=torch_version,
        alloc_conf=alloc_conf,
        steps=needed.steps,
        allocated_peak_bytes=needed.allocated_peak_bytes,
        reserved_peak_bytes=needed.reserved_peak_bytes,
        allocated_peak_bytes_range=allocated_range,
        reserved_peak_bytes_range=reserved_range,
        range_sources=sources,
        verdict=verdict,
        num_alloc_retries=run.num_alloc_retries,
        out_of_memory=run.out_of_memory,
        peak_step=step,
        peak_phase=phase,
        peak_line=line,
        owners=owners,
        modules=modules,
        lines=lines,
        batch=traced.batch,
        plot=plot_points(traced, needed),
        notes=traced.notes,
        operators=traced.operators,
        seconds=seconds,
    )


def verdict_of(run: Simulation) -> str:
    """Fits, fits only with retries, or does not."""
    if run.out_of_memory is not None:
        return DOES_NOT_FIT
    return FITS_WITH_RETRIES if run.num_alloc_retries else FITS


def environment_conf() -> str:
    """The allocator's configuration in this process's environment."""
    for name in ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF", "PYTORCH_ALLOC_CONF"):
        if value := os.environ.get(name):
            return value
    return ""


def _run_on(
    traced: Trace, card: Card | None, torch_version: str, conf: str, others: int, workspaces: Workspaces
) -> Simulation:
    return simulate(
        traced,
        total_bytes=card.total_bytes if card else None,
        context_bytes=card.context_bytes[1] if card else 0,
        others_bytes=others,
        conf=conf,
        torch_version=torch_version,
        workspaces=workspaces,
    )


def _ranges(
    traced: Trace, needed: Simulation, card: Card | None, torch_version: str, conf: str
) -> tuple[tuple[int, int], tuple[int, int], tuple[str, ...]]:
    """What the peaks could be, by everything that a machine without the GPU cannot know."""
    runs = [needed]
    sources = []
    if card is None or not card.exact_model:
        for nbytes in (CUBLAS_BYTES, CUBLAS_BYTES_HOPPER):
            runs.append(_with(traced, torch_version, conf, Workspaces(cublas_bytes=nbytes)))
        sources.append("the compute capability is not named: cuBLAS takes 8 MiB before Hopper, 32 MiB from there on")
    if any(event.kind == Kind.CONVOLUTION for event in traced.events):
        known = workspaces_for(traced.compute_capability)
        runs.append(
            _with(traced, torch_version, conf, Workspaces(cublas_bytes=known.cublas_bytes, convolution_share=1.0))
        )
        sources.append(
            "cuDNN chooses its algorithms on the GPU: from no workspace up to as much as a convolution handles"
        )
    sources.append("the spread that the validation shows: 0.5 % of allocated, 1.5 % of reserved")
    allocated = [run.allocated_peak_bytes for run in runs]
    reserved = [run.reserved_peak_bytes for run in runs]
    return (
        (int(min(allocated) * 0.995), int(max(allocated) * 1.005)),
        (int(min(reserved) * 0.985), int(max(reserved) * 1.015)),
        tuple(sources),
    )


def _with(traced: Trace, torch_version: str, conf: str, workspaces: Workspaces) -> Simulation:
    return simulate(traced, conf=conf, torch_version=torch_version, workspaces=workspaces)


def _this_machine() -> Card | None:
    """The GPU of this machine, without its context: what is free now is PyTorch's."""
    if not torch.cuda.is_available():
        return None
    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    return Card(
        name=properties.name,
        title=properties.name,
        total_bytes=properties.total_memory,
        compute_capability=(properties.major, properties.minor),
        multiprocessors=properties.multi_processor_count,
        context_bytes=(300 << 20, 450 << 20, 800 << 20),
    )
