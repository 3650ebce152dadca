"""How far the peaks may be off, and why: what a machine without the GPU cannot know."""

from __future__ import annotations

from dataclasses import replace

from memguard.forecast.cards import Card
from memguard.forecast.kernels.workspaces import (
    CUBLAS_BYTES,
    CUBLAS_BYTES_HOPPER,
    ROCM_BYTES,
    UNKNOWN,
    Workspaces,
    version_of,
    workspaces_for,
)
from memguard.forecast.simulate import Simulation, simulate
from memguard.forecast.trace import Kind, Recorded, Trace

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
