"""The forecast of a training step: traced once, simulated for the device, judged and explained.

Long because the three ways to a forecast (a function, ranks, real steps) end in the same answers, which are here.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import nn
from torch.optim.optimizer import Optimizer
from torch.utils._python_dispatch import _disable_current_modes

from memguard.allocator import CachingAllocator
from memguard.errors import MemGuardError
from memguard.forecast.cards import CARDS, Card, context_of, find_card
from memguard.forecast.child import in_child
from memguard.forecast.fakes.process_group import load_distributed
from memguard.forecast.fakes.without_dynamo import warm_up
from memguard.forecast.judging import run_on
from memguard.forecast.kernels.workspaces import version_of
from memguard.forecast.layouts import layouts_of
from memguard.forecast.recorded import Measured
from memguard.forecast.result import FITS, Forecast, LayoutShare, Measurement
from memguard.forecast.session import Made
from memguard.forecast.study import Question, Study
from memguard.forecast.target import batch_parameter, call_target
from memguard.forecast.variants import Make, MeasuredVariants, Say
from memguard.options import suggests_names
from memguard.text.terminal import StatusLine

_TABLE_FACTORS = (0.25, 0.5, 1, 2, 4)


@suggests_names
def forecast(
    step: Callable[..., Any] | None = None,
    *,
    model: nn.Module | Callable[..., Any],
    optimizer: Optimizer | Sequence[Optimizer] | None = None,
    device: str | int | None = None,
    steps: int = 3,
    batch: int | None = None,
    torch_version: str | None = None,
    alloc_conf: str | None = None,
    reserved_by_others_bytes: int = 0,
    suggest: bool | None = None,
    cards: Iterable[str] = (),
    nproc: int | None = None,
    nnodes: int = 1,
    meshes: Iterable[Mapping[str, int]] = (),
) -> Forecast:
    """What a training step will need on a GPU, and whether it fits. Needs no GPU.

    The step runs on fake tensors in a forked child process: nothing of the caller's model, data or random state
    changes, and no memory is taken for weights.

    Args:
        step: Does one training step. Its closure holds model, optimizer and data, wherever they are. If it has a
            parameter ``batch``, it is given a batch size; else tensors whose first dimension is ``batch`` get another
            size in the search. None (default): ``model`` is a LightningModule; its own training step runs on a batch
            of its dataloader.
        model: The `torch.nn.Module` that the step trains; with ``nproc`` instead a function that returns (model,
            optimizer, step), as each rank builds it.
        optimizer: The optimizer, or several. None (default): the step has none.
        device: A card like ``"nvidia-h200"`` or ``"rtx 4090"``, or an amount of memory like ``"24GiB"``, all of it
            PyTorch's; a number is bytes. None (default): the GPU of this machine, or no verdict without one.
        steps: How many steps to trace (default 3). The optimizer's states exist from the second on.
        batch: The batch size of the step as it is written: asks for the largest that fits. None (default): it is not
            asked for.
        torch_version: The PyTorch that will run the step, like ``"2.11"``: the workspaces of libraries depend on it.
            None (default): the one installed here.
        alloc_conf: ``PYTORCH_CUDA_ALLOC_CONF`` of that run. None (default): that of this process.
        reserved_by_others_bytes: Bytes that other processes hold on the GPU (default 0).
        suggest: Trace what would make it fit as well. None (default): only if it does not fit, of one process.
        cards: Cards to judge beside ``device``, or ``["all"]``; with ``batch`` also the largest batch of each.
        nproc: Processes on each node, one GPU each: the function is run as each rank that differs from the others, on
            a process group that sends nothing. None (default): a single process.
        nnodes: Nodes (default 1).
        meshes: Layouts to compare, each the sizes of a mesh by its dimensions' names, like ``{"dp": 4, "tp": 2}``:
            ``init_device_mesh`` with these names makes it so, whatever sizes the code has.

    Returns:
        The peaks in bytes with their ranges, the verdict, and what holds the memory; ``print`` it, or take its fields.

    Raises:
        TypeError: ``model`` is no module (with ``nproc``: no function), or ``step`` cannot be called.
        ValueError: The device, the version or the allocator's configuration is not known.
        MemGuardError: The step could not be traced; the text says why.
    """
    make, takes_batch = _make_of(step, model, optimizer) if nproc is None else _make_of_rank(step, model)
    return forecast_of(
        make,
        device=device,
        steps=steps,
        batch=batch,
        torch_version=torch_version,
        alloc_conf=alloc_conf,
        reserved_by_others_bytes=reserved_by_others_bytes,
        takes_batch=takes_batch,
        suggest=suggest,
        cards=cards,
        nproc=nproc,
        nnodes=nnodes,
        meshes=meshes,
    )


def _make_of_rank(step: Callable[..., Any] | None, model: Any) -> tuple[Make, bool]:
    """The same of a training of several processes."""
    if isinstance(model, nn.Module) or not callable(model) or step is not None:
        raise TypeError(
            "with nproc, model must be a function that returns (model, optimizer, step), and step None: each rank "
            f"builds its own; got {type(model).__name__}"
        )
    return lambda wanted: call_target(model, wanted), batch_parameter(model) is not None


def _make_of(step: Callable[..., Any] | None, model: Any, optimizer: Any) -> tuple[Make, bool]:
    """What gives model, optimizer and step for a batch size, and whether it heeds that."""
    if not isinstance(model, nn.Module):
        raise TypeError(f"model must be a torch.nn.Module, got {type(model).__name__}")
    if step is None:
        from memguard.forecast.lightning import lightning_made

        if not hasattr(model, "training_step"):
            raise TypeError("the step must be a function that does one training step, got None")
        return lambda wanted: lightning_made(model), False
    if not callable(step):
        raise TypeError(f"the step must be a function that does one training step, got {type(step).__name__}")
    name = batch_parameter(step)

    def make(wanted: int | None) -> Made:
        if name is None or wanted is None:
            return model, optimizer, step
        return model, optimizer, lambda: step(**{name: wanted})

    return make, name is not None


def forecast_of(make: Make, *, timeout_seconds: float | None = None, **options: Any) -> Forecast:
    """The forecast of a function that builds model, optimizer and step; it runs on fake tensors too.

    Args:
        make: Returns model, optimizer and step for a batch size, or for None as they are.
        timeout_seconds: How long to wait for it before it is given up.
        **options: Those of `forecast`; ``takes_batch``, whether ``make`` heeds the batch size; ``progress``, for a bar
            on stderr.
    """
    started = time.perf_counter()
    question = asked(**options)
    found = in_child(lambda: answer(make, question), timeout_seconds=timeout_seconds)
    return replace(found, seconds=time.perf_counter() - started)


@suggests_names
def asked(
    *,
    device: str | int | None = None,
    steps: int = 3,
    batch: int | None = None,
    torch_version: str | None = None,
    alloc_conf: str | None = None,
    reserved_by_others_bytes: int = 0,
    takes_batch: bool = False,
    suggest: bool | None = None,
    cards: Iterable[str] = (),
    nproc: int | None = None,
    nnodes: int = 1,
    meshes: Iterable[Mapping[str, int]] = (),
    progress: bool = False,
) -> Question:
    """The question that these options put; `forecast` and `forecast_of` describe them and the errors."""
    if steps < 1:
        raise ValueError(f"steps must be at least 1, got {steps}")
    if batch is not None and batch < 1:
        raise ValueError(f"batch must be at least 1, got {batch}")
    for name, number in (("nproc", nproc), ("nnodes", nnodes)):
        if number is not None and number < 1:
            raise ValueError(f"{name} must be at least 1, got {number}")
    if nproc is None and nnodes != 1:
        raise ValueError(f"nnodes={nnodes} needs nproc, the number of processes on each node")
    card = find_card(device) if device is not None else _this_machine()
    names = list(cards)
    # Not torch's own type of text, which would load PyTorch where it is unpickled.
    version = str(torch_version or torch.__version__)
    version_of(version)
    conf = alloc_conf if alloc_conf is not None else environment_conf()
    CachingAllocator(1 << 30, conf, version)  # refuses what it does not know, or what is no caching allocator
    return Question(
        card=card,
        steps=steps,
        batch=batch,
        torch_version=version,
        alloc_conf=conf,
        reserved_by_others_bytes=reserved_by_others_bytes,
        takes_batch=takes_batch,
        suggest=suggest,
        nproc=nproc,
        nnodes=nnodes,
        layouts=layouts_of(meshes, nproc * nnodes if nproc is not None else None),
        table_cards=CARDS if "all" in names else tuple(find_card(name) for name in names),
        progress=progress,
    )


def answer(make: Make, question: Question) -> Forecast:
    """The forecast, made in this process, which it changes for good; each trace is made in a child of it."""
    if question.nproc is None:
        warm_up()
    else:
        load_distributed()
    with _disable_current_modes(), _progress(question.progress) as say:
        found, study = _lowest(make, question, say)
        return _with_the_rest(found, study, question)


def answer_measured(measured: Sequence[Measured], question: Question) -> Forecast:
    """The forecast from real steps on this machine's GPU: their allocations replayed, and scaled by the batch size."""
    if question.card is not None and question.card.name == measured[0].device:
        outside = max(one.outside_bytes for one in measured)
        question = replace(question, card=replace(question.card, context_bytes=(outside,) * 3))
    traces = MeasuredVariants(measured, question.batch)
    study = Study(traces, question)
    found = study.forecast()
    found = replace(
        found,
        measured=tuple(_measurement(one, question) for one in measured),
        notes=(*found.notes, *([traces.alone] if traces.alone and question.batch is not None else [])),
        method=f"real steps on {measured[0].device}, their allocations replayed through the allocator",
    )
    return _with_the_rest(found, study, question, scales=traces.alone is None)


def _measurement(one: Measured, question: Question) -> Measurement:
    replayed = None
    if one.trace is not None and one.trace.recorded is not None:
        conf = one.trace.recorded.alloc_conf
        replayed = run_on(one.trace, None, question.torch_version, conf)
    return Measurement(
        batch=one.batch,
        device=one.device,
        steps=one.steps,
        allocated_peak_bytes=one.allocated_peak_bytes,
        reserved_peak_bytes=one.reserved_peak_bytes,
        num_alloc_retries=one.num_alloc_retries,
        out_of_memory=one.out_of_memory,
        replayed_allocated_peak_bytes=replayed and replayed.allocated_peak_bytes,
        replayed_reserved_peak_bytes=replayed and replayed.reserved_peak_bytes,
    )


def _with_the_rest(found: Forecast, study: Study, question: Question, *, scales: bool = True) -> Forecast:
    """The forecast with what was asked beside the step itself: batch sizes, changes, cards."""
    card, cards, batch = question.card, question.table_cards, question.batch
    if batch is not None and card is not None and scales:
        largest, smooth, careful = study.largest_batches()
        found = replace(
            found,
            largest_batch=largest,
            largest_batch_without_retries=smooth,
            largest_batch_with_margin=careful,
        )
    # Each change is one more trace of the highest rank: of hundreds of ranks that takes minutes.
    unasked = question.suggest is None and question.nproc is None and found.verdict not in (None, FITS)
    if question.suggest or unasked:
        found = replace(found, suggestions=study.suggestions(found))
    if cards or (batch is not None and card is not None):
        chosen = cards or ((card,) if card else ())
        found = replace(found, table=study.table(chosen, _sizes(batch) if scales else [batch]))
        if batch is not None and cards and scales:
            found = replace(found, largest_batches=study.largest_on_each(chosen))
    return found


def _lowest(make: Make, question: Question, say: Say) -> tuple[Forecast, Study]:
    """The forecast of the step, and its study; of several layouts, of the one that needs the least."""
    shares: list[LayoutShare] = []
    made: list[tuple[Forecast, Study]] = []
    for layout in question.layouts or ((),):
        study = Study(make, question, layout=layout, say=say)
        share = LayoutShare(mesh=dict(layout), allocated_peak_bytes=None, reserved_peak_bytes=None, verdict=None)
        try:
            found = study.forecast()
        except MemGuardError as error:
            if len(question.layouts) < 2:
                raise
            shares.append(replace(share, reason=str(error)))
            continue
        made.append((found, study))
        shares.append(
            replace(
                share,
                allocated_peak_bytes=found.allocated_peak_bytes,
                reserved_peak_bytes=found.reserved_peak_bytes,
                verdict=found.verdict,
                role=found.ranks[0].role if found.ranks else "",
            )
        )
    if not made:
        raise MemGuardError(f"no layout can be forecast: {shares[0].reason}")
    found, study = min(made, key=lambda one: one[0].reserved_peak_bytes)
    shares.sort(key=lambda one: (one.reserved_peak_bytes is None, one.reserved_peak_bytes))
    return replace(found, layouts=tuple(shares) if question.layouts else ()), study


def _sizes(batch: int | None) -> list[int | None]:
    """The batch sizes of a table."""
    if batch is None:
        return [None]
    return sorted({max(1, int(batch * factor)) for factor in _TABLE_FACTORS})  # type: ignore[return-value]


@contextlib.contextmanager
def _progress(shown: bool) -> Iterator[Say]:
    """A line on stderr: the traces that are made, and those that are wanted so far."""
    line = StatusLine()
    if shown:
        line.show("memguard: tracing")
    try:
        yield lambda text, made, wanted: line.show(f"memguard: {text}, {made}/{wanted}") if shown else None
    finally:
        line.clear()


def environment_conf() -> str:
    """The allocator's configuration in this process's environment."""
    for name in ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF", "PYTORCH_ALLOC_CONF"):
        if value := os.environ.get(name):
            return value
    return ""


def _this_machine() -> Card | None:
    """The GPU of this machine, less its context.

    A child of its own asks for it while this process has not used CUDA: after as little as the number of GPUs no fork
    can use the driver, and then the trace could not ask it anything. Where the child cannot, this process has used it.
    """
    if not torch.cuda.is_initialized():
        with contextlib.suppress(MemGuardError):
            return in_child(_card_in_use)
    return _card_in_use()


def _card_in_use() -> Card | None:
    if not torch.cuda.is_available():
        return None
    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    capability = (properties.major, properties.minor)
    return Card(
        name=properties.name,
        title=properties.name,
        total_bytes=properties.total_memory,
        compute_capability=capability,
        multiprocessors=properties.multi_processor_count,
        threads_per_multiprocessor=getattr(properties, "max_threads_per_multi_processor", 2048),
        context_bytes=context_of(capability, properties.multi_processor_count),
    )
