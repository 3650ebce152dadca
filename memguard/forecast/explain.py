"""From a trace and its simulation to what people ask: who holds the peak, which module, which line."""

from __future__ import annotations

import linecache
from collections import Counter

from memguard.forecast.kernels.workspaces import is_optional
from memguard.forecast.result import Line, PlotPoint, Share
from memguard.forecast.simulate import Simulation
from memguard.forecast.trace import OWNERS, Kind, Site, Trace

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
