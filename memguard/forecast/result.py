"""The answer of a forecast: figures, verdict, and what they are made of. Plain data; knows no torch."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, final

from memguard.forecast.simulate import StepMemory

FITS = "fits"
FITS_WITH_RETRIES = "fits only with retries"
DOES_NOT_FIT = "does not fit"
VERDICTS = (FITS, FITS_WITH_RETRIES, DOES_NOT_FIT)
"""The allocator flushes its cache and tries again before it gives up; a step that needs it is over the edge already."""


TRACED, REPLAYED, SCALED = "traced", "replayed", "scaled"
SOURCES = (TRACED, REPLAYED, SCALED)
"""Where a figure comes from: the step on fake tensors; the allocations of real steps, replayed; the same at another
batch size than was measured, each allocation on a line through two that were."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """What one owner, module or line holds at the peak."""

    name: str
    """The owner, module or line."""
    bytes: int
    """What it holds."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A line of the user's code, and what was allocated there and is alive at the peak."""

    file: str | None
    """Path of the file; None where the code has none."""
    line: int | None
    """Line in it."""
    function: str | None
    """Function that it is in."""
    source: str | None
    """The line itself."""
    module: str
    """The module whose forward it is in; "" outside of all."""
    phase: str
    """Part of the step, like ``"forward"``."""
    bytes: int
    """What it allocated that is alive at the peak."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Suggestion:
    """A change of the training step, and what the forecast says of it."""

    name: str
    """In a few words."""
    change: str
    """What to write."""
    cost: str
    """What it costs."""
    allocated_peak_bytes: int
    """The peak with it."""
    reserved_peak_bytes: int
    """The reserved peak with it."""
    verdict: str
    """One of `VERDICTS`, with it."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class TableRow:
    """One batch size on one card."""

    batch: int | None
    """None: as the step is written."""
    card: str
    """Name of the card."""
    allocated_peak_bytes: int | None
    """Peak on it; None where the step cannot be forecast."""
    reserved_peak_bytes: int | None
    """Reserved peak on it."""
    verdict: str | None
    """None where the step cannot be forecast."""
    reason: str | None = None
    """Why not."""
    source: str = TRACED
    """One of `SOURCES`."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """Real steps on this machine's GPU at one batch size, and how a replay of their allocations compares."""

    batch: int | None
    """None: as the step is written."""
    device: str
    """The GPU, as PyTorch names it."""
    steps: tuple[StepMemory, ...]
    """What the allocator counted in each; the last one may have run out of memory."""
    allocated_peak_bytes: int
    """The peak that the allocator counted."""
    reserved_peak_bytes: int
    """The same of reserved memory."""
    num_alloc_retries: int
    """How often the allocator emptied its cache to find memory."""
    out_of_memory: str | None
    """PyTorch's text if it ran out of memory."""
    replayed_allocated_peak_bytes: int | None
    """The peak of the same allocations in the simulated allocator; None where it ran out of memory."""
    replayed_reserved_peak_bytes: int | None
    """The same of reserved memory."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class LargestBatch:
    """The largest batch that a card runs; 0 if one sample is too much."""

    card: str
    """Name of the card."""
    batch: int | None
    """None where the step cannot be forecast."""
    batch_without_retries: int | None
    """The largest for which the allocator need not empty its cache."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class RankShare:
    """Ranks of a training that are alike, and what each of them needs."""

    role: str
    """Where in the mesh they are, like ``pp 0 (first)``; "" if all are alike."""
    rank: int
    """The one that was traced."""
    count: int
    """How many ranks are like it."""
    allocated_peak_bytes: int
    """Its peak."""
    reserved_peak_bytes: int
    """Its reserved peak."""
    verdict: str | None
    """Whether it fits; None without a device."""
    owners: tuple[Share, ...]
    """What it holds at its peak."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutShare:
    """What the highest rank needs if the training's meshes have other sizes."""

    mesh: dict[str, int]
    """Ranks along each dimension."""
    allocated_peak_bytes: int | None
    """Peak of its highest rank; None where it cannot be forecast."""
    reserved_peak_bytes: int | None
    """Its reserved peak."""
    verdict: str | None
    """Whether it fits; None without a device, or where it cannot be forecast."""
    role: str = ""
    """Where in the mesh the highest rank is; "" if all are alike."""
    reason: str | None = None
    """Why it cannot be forecast."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class PlotPoint:
    """Allocated memory at one moment of the last step, by owner."""

    event: int
    """Number of the allocation or release."""
    phase: str
    """Part of the step."""
    owners: dict[str, int]
    """Bytes of each owner."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """What a training step will need on a GPU, before the GPU is touched."""

    device: str
    """The card, or the amount of memory, as people write it."""
    device_total_bytes: int | None
    """Its capacity; None without a device."""
    context_bytes: int
    """Taken off the total: what the process holds outside PyTorch's allocator."""
    reserved_by_others_bytes: int
    """Taken off it as well: what other processes hold."""
    torch_version: str
    """Version of PyTorch for which allocator and workspaces were simulated."""
    alloc_conf: str
    """The allocator's settings, as in PYTORCH_CUDA_ALLOC_CONF."""
    steps: tuple[StepMemory, ...]
    """Each simulated step."""
    allocated_peak_bytes: int
    """Highest in tensors over all steps."""
    reserved_peak_bytes: int
    """Highest that PyTorch's allocator holds over all steps."""
    allocated_peak_bytes_range: tuple[int, int]
    """Between which figures the true peak is expected."""
    reserved_peak_bytes_range: tuple[int, int]
    """The same of the reserved peak."""
    range_sources: tuple[str, ...]
    """Where the ranges come from."""
    verdict: str | None
    """One of `VERDICTS`; None without a device to judge."""
    num_alloc_retries: int
    """How often the allocator empties its cache to find memory."""
    out_of_memory: str | None
    """PyTorch's own text, if the step runs out of memory."""
    peak_step: int
    """Number of the step with the peak, from 0."""
    peak_phase: str
    """The part of it: forward, backward, optimizer step."""
    peak_line: Line | None
    """The line that makes the allocation at which the peak is reached: the user's, or a library's; never memguard's."""
    owners: tuple[Share, ...]
    """What holds the peak: parameters, gradients, optimizer states, activations."""
    modules: tuple[Share, ...]
    """The same by module."""
    lines: tuple[Line, ...]
    """The same by line of code."""
    peak_workspace_bytes: int | None = None
    """Size of that allocation, if it is a convolution's workspace; else None."""
    refused_workspaces_bytes: tuple[int, ...] = ()
    """Workspaces of convolutions that do not fit; PyTorch then takes cuDNN's next plan, here one without any."""
    verdict_without_workspaces: str | None = None
    """The verdict if no convolution took a workspace; another one than `verdict` says that it hangs on them."""
    batch: int | None = None
    """The batch size that was given."""
    largest_batch: int | None = None
    """The largest that runs without running out of memory, confirmed by a trace; None if it was not asked for."""
    largest_batch_without_retries: int | None = None
    """The largest for which the allocator need not empty its cache."""
    largest_batch_with_margin: int | None = None
    """The largest that runs without retries, and would run too if two per cent of the GPU were not there."""
    suggestions: tuple[Suggestion, ...] = ()
    """Changes that were forecast, and what they save."""
    table: tuple[TableRow, ...] = ()
    """Batch sizes by cards, if either was asked for."""
    largest_batches: tuple[LargestBatch, ...] = ()
    """For each card of the table, if the batch size is known."""
    ranks: tuple[RankShare, ...] = ()
    """The ranks of a training of several processes by role, the highest first; all other figures are of that one."""
    layouts: tuple[LayoutShare, ...] = ()
    """The layouts that were compared, the lowest first; all other figures are of that one."""
    communication_bytes: tuple[int, int, int] = (0, 0, 0)
    """What NCCL takes outside PyTorch's allocator: low, typical, high. The typical is taken off the total."""
    plot: tuple[PlotPoint, ...] = ()
    """Allocated memory over the step with the peak."""
    notes: tuple[str, ...] = ()
    """What the trace had to assume."""
    operators: int = 0
    """How many were traced."""
    seconds: float = 0.0
    """What the forecast took."""
    source: str = TRACED
    """One of `SOURCES`: where these figures come from."""
    measured: tuple[Measurement, ...] = ()
    """What real steps took on this machine's GPU, if that was asked for."""
    method: str = field(default="the step itself on fake CUDA tensors, its allocations replayed through the allocator")
    """How it was made."""

    @property
    def usable_bytes(self) -> int | None:
        """What PyTorch can have of the GPU; None without a device."""
        if self.device_total_bytes is None:
            return None
        taken = self.context_bytes + self.reserved_by_others_bytes + self.communication_bytes[1]
        return self.device_total_bytes - taken

    @property
    def fits(self) -> bool | None:
        """Whether the step runs on the device without retries; None without a device."""
        return None if self.verdict is None else self.verdict == FITS

    @property
    def first_step(self) -> StepMemory:
        """The first step, in which the optimizer makes its states."""
        return self.steps[0]

    @property
    def steady_step(self) -> StepMemory:
        """The last step, as all later ones."""
        return self.steps[-1]

    def to_json(self) -> dict[str, Any]:
        """The same under the same names, as JSON has it."""
        return {"version": 1, "fits": self.fits, **asdict(self)}

    def _repr_html_(self) -> str:
        """What a notebook shows for a cell that ends with the forecast: the page, in a frame of its own."""
        from memguard.report.forecast_html import framed

        return framed(self)

    def __str__(self) -> str:
        from memguard.report.forecast_text import forecast_text

        return forecast_text(self)
