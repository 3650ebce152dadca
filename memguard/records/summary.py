"""Summary of a run as plain numbers: kept live by the recorder, or computed from a recording."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from memguard.records.findings import Finding
from memguard.records.kept_floor import KeptFloor
from memguard.records.phases import PhaseTotals
from memguard.records.stats import STAGES, BatchRecord, Series, Stage
from memguard.thresholds import FULL_SHARE, NOTABLE_SHARE


@dataclass(frozen=True, slots=True, kw_only=True)
class Peak:
    """Where the memory of a run (or of one stage) stood highest."""

    allocated_bytes: int | None = None
    """In tensors on the device; None where it counts none."""
    reserved_bytes: int | None = None
    """Held by PyTorch's allocator in the same batch."""
    host_rss_bytes: int | None = None
    """RAM of the process in the same batch."""
    stage: Stage = Stage.OTHER
    """Stage of the batch."""
    batch: int = 0
    """Number of its record in the run."""
    epoch: int | None = None
    """Its epoch."""
    index: int | None = None
    """Number of the batch within stage and epoch."""
    shapes: list[Any] | None = None
    """Its inputs: a name and a shape for each."""

    def to_json(self) -> dict[str, Any]:
        """The peak under the keys of the report's JSON contract."""
        return {
            "allocated_bytes": self.allocated_bytes,
            "reserved_bytes": self.reserved_bytes,
            "host_rss_bytes": self.host_rss_bytes,
            "stage": self.stage.value,
            "batch": self.batch,
            "epoch": self.epoch,
            "index": self.index,
            "input_shapes": self.shapes,
        }


@dataclass(slots=True, kw_only=True)
class StageSummary:
    """What one stage comes to."""

    batches: int = 0
    """How many there were."""
    seconds: float = 0.0
    """What they took together."""
    peak: Peak = field(default_factory=Peak)
    """Where memory was highest."""
    host_rss_peak_bytes: int | None = None
    """The highest RAM at a batch's end, which need not be where the device's memory stood highest."""
    kept: KeptFloor | None = None
    """What stayed allocated after its batches."""

    def raise_rss(self, nbytes: int | None) -> None:
        """Takes one more reading of the process's RAM into account."""
        if nbytes is not None and nbytes > (self.host_rss_peak_bytes or 0):
            self.host_rss_peak_bytes = nbytes


@dataclass(slots=True, kw_only=True)
class Summary:
    """What one process's run comes to."""

    device: str = "unknown"
    """The guarded device, like ``"cuda:0"``."""
    device_name: str | None = None
    """What its driver calls it."""
    device_total_bytes: int | None = None
    """Its capacity."""
    measures_peaks: bool = True
    """Whether it counts peaks; else the highest figures at the ends of batches are shown."""
    rank: int = 0
    """This process's rank."""
    world_size: int = 1
    """Number of processes of the run."""
    stages: dict[Stage, StageSummary] = field(default_factory=dict)
    """What each stage comes to."""
    phases: dict[str, PhaseTotals] = field(default_factory=dict)
    """By name, in the order of their first ends: what the program names of its loop."""
    owners: dict[str, int] = field(default_factory=dict)
    """Bytes by owner at the highest recorded peak."""
    settings: dict[str, str] = field(default_factory=dict)
    """Versions, device and options, as texts; empty where they are unknown."""
    reserved_peak_bytes: int | None = None
    """The most that PyTorch's allocator held."""
    num_alloc_retries: int | None = None
    """How often the allocator emptied its cache to find memory."""
    num_ooms: int | None = None
    """Out-of-memory errors of the allocator, caught or not."""
    findings: list[Finding] = field(default_factory=list)
    """All findings, one for each cause."""
    oom: dict[str, Any] | None = None
    """The post-mortem, if the run ran out of memory."""
    ended: str | None = None
    """How the run ended; None: without a word, or it still runs."""
    is_running: bool = False
    """Whether the run goes on in this process; of a recording that has no end this is unknown, and False."""
    overhead_seconds: float | None = None
    """What memguard took in the loop, start-up excluded; None as below."""
    overhead_share: float | None = None
    """Part of the wall time that memguard spent in the loop; None: unknown, because a run records it at its end."""
    start_up_seconds: float | None = None
    """What memguard took before the first batch, loading its modules included; None as above."""
    recording: str | None = None
    """The recording's path; None if nothing could be written."""
    uploaded: str | None = None
    """The URL of the run's directory, where all of the recording was copied to one."""
    devices: list[Summary] = field(default_factory=list)
    """The further devices of the process, each with a summary of its own."""
    starts: int = 1
    """Recordings of one rank, one after the other, that this summary combines."""
    misses_training: bool = False
    """Whether a model was trained where memguard does not look: on another thread."""
    notes: list[str] = field(default_factory=list)
    """What was switched off or left out, in words."""

    @property
    def batches(self) -> int:
        """Batches of all stages."""
        return sum(stage.batches for stage in self.stages.values())

    @property
    def counted_batches(self) -> int:
        """Batches as the program counts them: without what is between stages, and without checkpoints.

        Where there is nothing else, as where a device is watched alone, those count.
        """
        beside = sum(self.stages[stage].batches for stage in (Stage.OTHER, Stage.CHECKPOINT) if stage in self.stages)
        return self.batches - beside or self.batches

    @property
    def in_order(self) -> dict[Stage, StageSummary]:
        """The stages in the order of reports: training first, what is none of them last."""
        return {stage: self.stages[stage] for stage in STAGES if stage in self.stages}

    @property
    def peak(self) -> Peak:
        """The highest of the stages' peaks."""
        return max((stage.peak for stage in self.in_order.values()), key=peak_height, default=Peak())

    @property
    def risen(self) -> tuple[Stage, KeptFloor] | None:
        """The stage in which the memory kept rose most, where that is so much that silence about it would be false.

        Between the stages a program sets up what it trains: a rise there that goes on shows in a stage as well.
        """
        limit = min(filter(None, (self.device_total_bytes, self.peak.allocated_bytes)), default=0)
        rises = [(stage, entry.kept) for stage, entry in self.in_order.items() if entry.kept is not None]
        rises = [(s, kept) for s, kept in rises if s is not Stage.OTHER and kept.rise_bytes > NOTABLE_SHARE * limit > 0]
        return max(rises, key=lambda one: one[1].rise_bytes, default=None)

    @property
    def is_at_edge(self) -> bool:
        """Whether the device was full: reserved to the last, with retries of the allocator."""
        total, reserved = self.device_total_bytes, self.reserved_peak_bytes
        return bool(total and reserved and self.num_alloc_retries) and (reserved or 0) > FULL_SHARE * (total or 0)

    @property
    def is_sound(self) -> bool:
        """Whether there is nothing to worry about: it ended well and was observed, and kept memory did not grow."""
        whole = self.ended == "finished" and not self.misses_training and self.oom is None and not self.num_ooms
        return whole and self.risen is None and not self.is_at_edge

    @property
    def ran_out(self) -> bool:
        """Whether the device's memory ran out at least once, caught or not."""
        return bool(self.num_ooms) or (self.oom is not None and self.oom.get("device") == self.device)

    @property
    def headroom_bytes(self) -> int | None:
        """What the device had left where most was reserved: see `headroom`."""
        return headroom(self.device_total_bytes, self.reserved_peak_bytes, ran_out=self.ran_out)

    @property
    def unallocated_bytes(self) -> int | None:
        """The device's capacity less the allocated peak: what a perfect allocator would have left."""
        return headroom(self.device_total_bytes, self.peak.allocated_bytes, ran_out=False)

    def count(self, series: Iterable[Series], shapes: Sequence[list[Any]]) -> None:
        """Takes more records into account."""
        for records in series:
            first = records[0]
            stage = self.stages.get(first.stage)
            if stage is None:
                stage = self.stages[first.stage] = StageSummary(kept=KeptFloor(first.stage))
            if stage.kept is not None:
                stage.kept.observe(records)
            stage.batches += len(records)
            stage.seconds += sum([record.seconds for record in records])
            self._raise(stage, first, shapes[first.shapes] if first.shapes is not None else None)

    def _raise(self, stage: StageSummary, record: BatchRecord, shapes: list[Any] | None) -> None:
        """The peaks, where this record's are higher, and the counts of retries and failures."""
        stage.raise_rss(record.host_rss_bytes)
        height = record.allocated_peak_bytes
        if height is None:
            height = record.allocated_end_bytes
        if height is None:
            higher = (record.host_rss_bytes or 0) > (stage.peak.host_rss_bytes or 0)
        else:
            higher = height > (stage.peak.allocated_bytes or 0)
        if higher:
            stage.peak = Peak(
                allocated_bytes=height,
                reserved_bytes=record.reserved_peak_bytes or record.reserved_bytes,
                host_rss_bytes=record.host_rss_bytes,
                stage=record.stage,
                batch=record.batch,
                epoch=record.epoch,
                index=record.index,
                shapes=shapes,
            )
        reserved = record.reserved_peak_bytes
        if reserved is not None and reserved > (self.reserved_peak_bytes or 0):
            self.reserved_peak_bytes = reserved
        if record.num_alloc_retries is not None:
            self.num_alloc_retries = (self.num_alloc_retries or 0) + record.num_alloc_retries
        if record.num_ooms is not None:
            self.num_ooms = (self.num_ooms or 0) + record.num_ooms

    def to_json(self) -> dict[str, Any]:
        """The run under the keys of the report's JSON contract (design of version 1)."""
        peak = self.peak.to_json()
        if self.reserved_peak_bytes is not None:
            peak["reserved_bytes"] = self.reserved_peak_bytes
        return {
            "version": 1,
            "device": self.device,
            "device_name": self.device_name,
            "device_total_bytes": self.device_total_bytes,
            "headroom_bytes": self.headroom_bytes,
            "unallocated_bytes": self.unallocated_bytes,
            "batches": {stage.value: summary.batches for stage, summary in self.in_order.items()},
            "peak": peak,
            "peaks": {stage.value: summary.peak.to_json() for stage, summary in self.in_order.items()},
            "phases": [totals.to_json() for totals in self.phases.values()],
            "num_alloc_retries": self.num_alloc_retries,
            "num_ooms": self.num_ooms,
            "findings": [finding.to_json() for finding in self.findings],
            "oom": self.oom,
            "ended": self.ended,
            "overhead": {"seconds": _rounded(self.overhead_seconds), "share": _rounded(self.overhead_share)},
            "start_up_seconds": _rounded(self.start_up_seconds),
            "recording": self.recording,
            "uploaded": self.uploaded,
            "devices": [
                {"device": each.device, "device_total_bytes": each.device_total_bytes, "peak": each.peak.to_json()}
                for each in self.devices
            ],
            "notes": self.notes,
            "rank": self.rank,
        }


def headroom(total_bytes: int | None, reserved_peak_bytes: int | None, *, ran_out: bool) -> int | None:
    """The one definition of headroom: the device's capacity less the highest reserved memory, 0 where memory ran out.

    Args:
        total_bytes: The device's capacity.
        reserved_peak_bytes: The most that PyTorch reserved.
        ran_out: Whether an allocation failed.

    Returns:
        Bytes; None where the capacity or what was reserved is unknown.
    """
    if not total_bytes or reserved_peak_bytes is None:
        return None
    return 0 if ran_out else max(total_bytes - reserved_peak_bytes, 0)


def most(values: Iterable[float | None]) -> float | None:
    """The highest of some figures; None, unknown, where one of them is."""
    listed = list(values)
    known = [value for value in listed if value is not None]
    return max(known) if known and len(known) == len(listed) else None


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 6)


def peak_height(peak: Peak) -> tuple[int, int]:
    """What peaks are compared by: the device's allocated bytes, else the process's RAM."""
    return (peak.allocated_bytes or 0, peak.host_rss_bytes or 0)
