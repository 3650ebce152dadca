"""From a trace to the answer for one card: replayed, judged, its peaks with what they could also be."""

from __future__ import annotations

from dataclasses import replace

from memguard.forecast.cards import Card
from memguard.forecast.explain import peak_place, plot_points, shares_at_peak
from memguard.forecast.kernels.workspaces import Workspaces, workspaces_for
from memguard.forecast.ranges import ranges_of
from memguard.forecast.result import DOES_NOT_FIT, FITS, FITS_WITH_RETRIES, REPLAYED, SCALED, TRACED, Forecast
from memguard.forecast.simulate import Simulation, simulate
from memguard.forecast.trace import Kind, Trace
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
