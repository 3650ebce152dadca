"""From a trace to the answer for one card: replayed, judged, its peaks with what they could also be."""

from __future__ import annotations

import linecache
from collections import Counter
from dataclasses import replace

from memguard.forecast.cards import Card
from memguard.forecast.kernels.workspaces import (
    CUBLAS_BYTES,
    CUBLAS_BYTES_HOPPER,
    ROCM_BYTES,
    UNKNOWN,
    Workspaces,
    is_optional,
    version_of,
    workspaces_for,
)
from memguard.forecast.result import (
    DOES_NOT_FIT,
    FITS,
    FITS_WITH_RETRIES,
    REPLAYED,
    SCALED,
    TRACED,
    Forecast,
    Line,
    PlotPoint,
    Share,
)
from memguard.forecast.simulate import Simulation, simulate
from memguard.forecast.trace import OWNERS, Kind, Recorded, Site, Trace
from memguard.text.units import MIB

NCCL_GROUP_BYTES = (128 * MIB, 640 * MIB, 2048 * MIB)
"""What NCCL takes for one group of ranks: low, typical, high. It depends on the links, the channels and the version.

Published: 544 MiB for two and 688 for more A100s on NVLink (NVIDIA/nccl issue 964), 1.6 GB for one group and 6 GB for
three or more (issue 864). The maintainers say there that it grows with the number of channels, which fast links raise.
"""


_RISING = (9, 0)
"""The compute capability from which on addresses rise."""


def judge(
    traced: Trace,
    *,
    card: Card | None,
    torch_version: str,
    alloc_conf: str,
    reserved_by_others_bytes: int = 0,
    seconds: float = 0.0,
    ranged: bool = True,
) -> Forecast:
    """The forecast that a trace gives for a card; its ranges, which take most of the time, only if it is `ranged`."""
    workspaces = workspaces_for(traced.compute_capability, torch_version)
    run = run_on(traced, card, torch_version, alloc_conf, reserved_by_others_bytes, workspaces)
    verdict = verdict_of(run) if card is not None else None
    without = verdict
    if verdict not in (None, FITS) and any(event.kind == Kind.WORKSPACE for event in traced.events):
        none = replace(workspaces, unknown_share=0.0)
        without = verdict_of(run_on(traced, card, torch_version, alloc_conf, reserved_by_others_bytes, none))
    needed = run
    if run.out_of_memory is not None:
        needed = run_on(traced, None, torch_version, alloc_conf, workspaces=workspaces, falling=falls(traced, card))
    allocated_range = (needed.allocated_peak_bytes, needed.allocated_peak_bytes)
    reserved_range = (needed.reserved_peak_bytes, needed.reserved_peak_bytes)
    sources: tuple[str, ...] = ()
    if ranged:
        allocated_range, reserved_range, sources = ranges_of(
            traced, needed, card, torch_version, alloc_conf, falling=falls(traced, card)
        )
    owners, modules, lines = shares_at_peak(traced, needed)
    step, phase, line, workspace = peak_place(traced, needed)
    return Forecast(
        device=card.title if card else "no GPU named",
        device_total_bytes=card.total_bytes if card else None,
        context_bytes=card.context_bytes[1] if card else 0,
        reserved_by_others_bytes=reserved_by_others_bytes,
        communication_bytes=communication_bytes(traced, card),
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
        peak_workspace_bytes=workspace or None,
        refused_workspaces_bytes=run.refused_bytes,
        verdict_without_workspaces=without,
        owners=owners,
        modules=modules,
        lines=lines,
        batch=traced.batch,
        plot=plot_points(traced, needed),
        notes=traced.notes,
        operators=traced.operators,
        seconds=seconds,
        source=source_of(traced),
    )


def source_of(traced: Trace) -> str:
    """Where the figures of a trace come from."""
    if traced.recorded is None:
        return TRACED
    return SCALED if traced.recorded.scaled else REPLAYED


def communication_bytes(traced: Trace, card: Card | None) -> tuple[int, int, int]:
    """What NCCL takes for the groups in which a rank communicates: low, typical, high.

    Nothing on a bare amount of memory, which is all PyTorch's.
    """
    if card is None or not card.exact_model:
        return 0, 0, 0
    low, typical, high = (len(traced.groups) * nbytes for nbytes in NCCL_GROUP_BYTES)
    return low, typical, high


def falls(traced: Trace, card: Card | None) -> bool:
    """Whether a card's driver hands out ever lower addresses; where steps were measured, their history tells.

    By what was seen: reserved memory published for an RTX 3060 and an RTX 4060 is met better so, that recorded on an
    H200 is not. Of a bare amount of memory it is not assumed.
    """
    if traced.recorded is not None and (card is None or card.name == traced.recorded.device):
        return traced.recorded.falling
    return card is not None and card.exact_model and card.compute_capability < _RISING


def verdict_of(run: Simulation) -> str:
    """Fits, fits only with retries, or does not."""
    if run.out_of_memory is not None:
        return DOES_NOT_FIT
    return FITS_WITH_RETRIES if run.num_alloc_retries else FITS


def run_on(
    traced: Trace,
    card: Card | None,
    torch_version: str,
    conf: str,
    others: int = 0,
    workspaces: Workspaces | None = None,
    falling: bool | None = None,
) -> Simulation:
    """The trace replayed on a card, as far as its memory goes; addresses fall as on that card, unless it is said."""
    return simulate(
        traced,
        total_bytes=card.total_bytes if card else None,
        context_bytes=card.context_bytes[1] + communication_bytes(traced, card)[1] if card else 0,
        others_bytes=others,
        conf=conf,
        torch_version=torch_version,
        workspaces=workspaces or workspaces_for(traced.compute_capability, torch_version),
        falling=falls(traced, card) if falling is None else falling,
    )


# How far the peaks may be off, and why: what a machine without the GPU cannot know.

_ALLOCATED_SPREAD, _RESERVED_SPREAD = 0.005, 0.02
_RESERVED_SPREAD_CONVOLVED = 0.04
"""Where convolutions take workspaces, which decide how free memory lies."""
_RECURRENT_SPREAD = 1 / 3
_SCALED_SPREADS = 0.02, 0.1
"""What was seen for a batch size eight times as large as the one that was measured."""
_SAID_OF = {
    Kind.CONVOLUTION: "cuDNN chooses convolution plans on the GPU: from no workspaces up to the largest that were seen",
    Kind.ATTENTION: "from Hopper on cuDNN may run attention: the same outputs, another workspace in backward",
}
_BLACKWELL_SETTLED = (2, 15)

Range = tuple[int, int]


def ranges_of(
    traced: Trace, needed: Simulation, card: Card | None, torch_version: str, conf: str, *, falling: bool
) -> tuple[Range, Range, tuple[str, ...]]:
    """Ranges of the allocated and the reserved peak, and what they come from.

    Args:
        traced: The trace.
        needed: It replayed on a GPU without end.
        card: The GPU; None for none in particular.
        torch_version: The PyTorch that will run it.
        conf: Its ``PYTORCH_CUDA_ALLOC_CONF``.
        falling: Whether its driver is taken to hand out ever lower addresses.
    """
    if traced.recorded is not None:
        return _of_recorded(traced.recorded, needed, card, conf)
    known = workspaces_for(traced.compute_capability, torch_version)
    others: list[Workspaces] = []
    sources = []
    if card is None or not card.exact_model:
        others += [replace(known, cublas_bytes=nbytes) for nbytes in (CUBLAS_BYTES, CUBLAS_BYTES_HOPPER)]
        sources.append("the compute capability is not named: cuBLAS takes 8 MiB before Hopper, 32 MiB from there on")
    elif traced.compute_capability >= (10, 0) and version_of(torch_version) < _BLACKWELL_SETTLED:
        others += [replace(known, cublas_bytes=nbytes) for nbytes in (CUBLAS_BYTES, CUBLAS_BYTES_HOPPER)]
        sources.append("before torch 2.15 cuBLAS takes 8 or 32 MiB on Blackwell, by release")
    if card is not None and card.amd:
        others.append(replace(known, cublas_bytes=ROCM_BYTES))
        sources.append("on AMD the libraries' workspaces were not measured: from 32 to 128 MiB, MIOpen's left out")
    called = {event.kind for event in traced.events} & set(UNKNOWN)
    if called:
        others += [replace(known, unknown_share=share) for share in (0.25, 0.5, 1.0)]
        if Kind.CONVOLUTION in called:  # attention is counted as if it took none
            others += [replace(known, unknown_share=0.0), replace(known, other_rules=True)]
        sources += [_SAID_OF[kind] for kind in UNKNOWN if kind in called]
    convolutions = (event.nbytes for event in traced.events if event.kind == Kind.CONVOLUTION)
    beside = needed.reserved_peak_bytes + max(convolutions, default=0)  # a workspace for which no free block is left
    uncertain = int(traced.recurrent_bytes * _RECURRENT_SPREAD)
    if uncertain:
        sources.append("cuDNN runs recurrent layers on a GPU: what it keeps for backward may differ by a third")
    reserved_spread = _RESERVED_SPREAD_CONVOLVED if Kind.CONVOLUTION in called else _RESERVED_SPREAD
    sources.append(f"the spread that the validation shows: 0.5 % of allocated, {100 * reserved_spread:g} % of reserved")
    runs = [
        simulate(traced, conf=conf, torch_version=torch_version, workspaces=each, falling=order)
        for each, order in [(known, not falling), *((other, falling) for other in others)]
    ]
    if runs[0].reserved_peak_bytes != needed.reserved_peak_bytes:
        sources.append("the order in which the driver hands out addresses decides where free memory is")
    runs.append(needed)
    return (
        _spread([run.allocated_peak_bytes for run in runs], _ALLOCATED_SPREAD, uncertain),
        _spread([run.reserved_peak_bytes for run in runs] + [beside], reserved_spread, uncertain),
        tuple(sources),
    )


def _of_recorded(
    recorded: Recorded, needed: Simulation, card: Card | None, conf: str
) -> tuple[Range, Range, tuple[str, ...]]:
    """Real steps replayed: exact where they ran, else other sizes or kernels can be chosen."""
    peaks = needed.allocated_peak_bytes, needed.reserved_peak_bytes
    spreads = _ALLOCATED_SPREAD, _RESERVED_SPREAD
    if recorded.scaled:
        spreads = _SCALED_SPREADS
        source = "each allocation was scaled by the batch size, and kernels may take other workspaces at another one"
    elif card is None or card.name != recorded.device:
        source = f"the kernels and workspaces are those that {recorded.device} took; another GPU may take others"
    elif conf != recorded.alloc_conf:
        source = "the same allocations under other settings of the allocator"
    else:
        return (peaks[0], peaks[0]), (peaks[1], peaks[1]), ("replayed for the GPU and the settings that were measured",)
    return _spread([peaks[0]], spreads[0], 0), _spread([peaks[1]], spreads[1], 0), (source,)


def _spread(peaks: list[int], share: float, uncertain: int) -> Range:
    return int((min(peaks) - uncertain) * (1 - share)), int((max(peaks) + uncertain) * (1 + share))


# From a trace and its simulation to what people ask: who holds the peak, which module, which line.

_MOST_LINES = 12
_MOST_MODULES = 20
_PLOT_POINTS = 400


def owner_of(trace: Trace, block: int) -> str:
    """Owner of a block; those with negative numbers are library workspaces."""
    return "workspaces" if block < 0 else trace.owners[block]


def shares_at_peak(
    trace: Trace, simulation: Simulation
) -> tuple[tuple[Share, ...], tuple[Share, ...], tuple[Line, ...]]:
    """Bytes alive at the peak by owner, by module and by line of user code, largest first."""
    owners: Counter[str] = Counter()
    modules: Counter[str] = Counter()
    lines: Counter[Site] = Counter()
    for event in simulation.alive_at_peak():
        owners[owner_of(trace, event.block)] += event.nbytes
        site = trace.sites[event.site]
        modules[site.module or "(outside modules)"] += event.nbytes
        lines[site._replace(module="", phase=site.phase if site.line is None else "")] += event.nbytes
    return (
        tuple(Share(name=name, bytes=owners[name]) for name in OWNERS if owners[name]),
        tuple(Share(name=name, bytes=nbytes) for name, nbytes in modules.most_common(_MOST_MODULES)),
        tuple(line_of(site, nbytes) for site, nbytes in lines.most_common(_MOST_LINES)),
    )


def line_of(site: Site, nbytes: int) -> Line:
    """A place with its source text."""
    source = linecache.getline(site.file, site.line).strip() if site.file and site.line else ""
    return Line(
        file=site.file,
        line=site.line,
        function=site.function,
        source=source or None,
        module=site.module,
        phase=site.phase,
        bytes=nbytes,
    )


def peak_place(trace: Trace, simulation: Simulation) -> tuple[int, str, Line | None, int]:
    """The step in which the peak is reached, from 0, its phase, its line, and the bytes if it is cuDNN's workspace."""
    step = 0
    for event in simulation.events[: simulation.peak_event]:
        if event.kind == Kind.STEP:
            step = event.nbytes
    if not simulation.events:
        return 0, "setup", None, 0
    event = simulation.events[simulation.peak_event]
    site = trace.sites[event.site]
    return step, site.phase, line_of(site, event.nbytes), event.nbytes if is_optional(event.block) else 0


def plot_points(trace: Trace, simulation: Simulation) -> tuple[PlotPoint, ...]:
    """Memory by owner over the step that holds the peak, thinned so that no peak is lost."""
    marks = [index for index, event in enumerate(simulation.events) if event.kind == Kind.STEP]
    begin = max((index for index in marks if index <= simulation.peak_event), default=0)
    end = min((index for index in marks if index > simulation.peak_event), default=len(simulation.events))
    owners: Counter[str] = Counter()
    sizes: dict[int, int] = {}
    width = max(1, (end - begin) // _PLOT_POINTS)
    points: list[PlotPoint] = []
    best: tuple[int, PlotPoint] | None = None
    total = 0
    phase = ""
    for index, event in enumerate(simulation.events[:end]):
        if event.kind == Kind.ALLOC:
            sizes[event.block] = event.nbytes
            owners[owner_of(trace, event.block)] += event.nbytes
            total += event.nbytes
            phase = trace.sites[event.site].phase
        elif event.kind == Kind.FREE:
            nbytes = sizes.pop(event.block, 0)
            owners[owner_of(trace, event.block)] -= nbytes
            total -= nbytes
        if index < begin:
            continue
        if best is None or total > best[0]:
            best = (total, PlotPoint(event=index - begin, phase=phase, owners={k: v for k, v in owners.items() if v}))
        if (index - begin) % width == width - 1 and best is not None:
            points.append(best[1])
            best = None
    if best is not None:
        points.append(best[1])
    return tuple(points)
