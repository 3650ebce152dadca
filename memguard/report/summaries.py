"""What a recording comes to, and several of them: of a rank's restarts, or of all ranks. No torch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from memguard.recording.reader import Recording
from memguard.records.findings import Finding
from memguard.records.kept_floor import FALL, LAST, OVER, SETTLING, WINDOW, KeptFloor, floor_of
from memguard.records.phases import PhaseTotals, totals_in
from memguard.records.stats import STAGES, Stage
from memguard.records.summary import Peak, StageSummary, Summary, most, peak_height
from memguard.report.text import ranks_text
from memguard.text.units import format_bytes

_HEAD, _TAIL = 2 * (SETTLING + WINDOW), LAST + 1
"""Batches at the beginning and at the end that decide what a floor rose from, and to."""
_SHORT = 0.25
"""Of a limit, the part below which all ranks together leave RAM to spare, loader processes included."""


def summarize(recording: Recording) -> Summary:
    """What one recording comes to; vectorised, so a million batches take a second."""
    session, end = recording.session, recording.end
    overhead = (end or {}).get("overhead") or {}
    ooms = [oom for oom in recording.of_kind("oom") if not oom.get("caught")]
    summary = Summary(
        device=str(session.get("device", "unknown")),
        device_name=session.get("device_name"),
        device_total_bytes=session.get("device_total_bytes"),
        measures_peaks=bool(session.get("measures_peaks", True)),
        rank=int(session.get("rank", 0) or 0),
        world_size=int(session.get("world_size", 1) or 1),
        findings=recording.findings,
        oom=ooms[-1] if ooms else None,
        ended=str(end["reason"]) if end and "reason" in end else None,
        overhead_seconds=overhead.get("seconds"),
        overhead_share=overhead.get("share"),
        start_up_seconds=(end or {}).get("start_up_seconds"),
        recording=recording.source,
        misses_training=bool((end or {}).get("misses_training")),
        notes=[*recording.told, *recording.notes],
    )
    summary.owners, summary.settings = _owners(recording), _settings(session)
    summary.phases = totals_in(recording.of_kind("phase"))
    _count_stages(recording, summary)
    caught = len(recording.of_kind("oom")) - len(ooms)
    if caught and not recording.told:  # it ended without a word, or is of an older version
        summary.notes.append(f"the program caught {caught} out-of-memory error{'s' * (caught > 1)} and went on")
    if summary.ended is None and len(recording):
        summary.notes.append(_last_words(recording))
    return summary


def merge(summaries: list[Summary]) -> Summary:
    """Several summaries as one: of a rank's restarts, or of all ranks."""
    if len(summaries) == 1:
        return summaries[0]
    first, last = summaries[0], summaries[-1]
    merged = Summary(
        device=first.device,
        device_name=first.device_name,
        device_total_bytes=first.device_total_bytes or last.device_total_bytes,
        measures_peaks=all(summary.measures_peaks for summary in summaries),
        rank=first.rank,
        world_size=max(summary.world_size for summary in summaries),
        ended=last.ended,
        recording=last.recording,
        overhead_seconds=_of_a_rank(summaries, "overhead_seconds"),
        start_up_seconds=_of_a_rank(summaries, "start_up_seconds"),
        overhead_share=most(summary.overhead_share for summary in summaries),
        owners=max((summary.owners for summary in summaries), key=lambda owners: sum(owners.values())),
        settings=last.settings,
        starts=max(summary.starts for summary in summaries),
        misses_training=any(summary.misses_training for summary in summaries),
    )
    findings: dict[Any, Finding] = {}
    for summary in summaries:
        for stage, entry in summary.stages.items():
            known = merged.stages.setdefault(stage, StageSummary())
            known.batches += entry.batches
            known.seconds += entry.seconds
            known.peak = max(known.peak, entry.peak, key=peak_height)
            known.raise_rss(entry.host_rss_peak_bytes)
            known.kept = max(filter(None, (known.kept, entry.kept)), key=lambda kept: kept.rise_bytes, default=None)
        for name, totals in summary.phases.items():
            merged.phases.setdefault(name, PhaseTotals(name=name)).add(totals)
        findings.update({(finding.rank, finding.cause): finding for finding in summary.findings})
        merged.notes += [note for note in summary.notes if note not in merged.notes]
        merged.oom = summary.oom or merged.oom
        if summary.rank == first.rank:  # those of other ranks stay with them
            newer = {device.device for device in summary.devices}
            merged.devices = [each for each in merged.devices if each.device not in newer] + summary.devices
    merged.findings = list(findings.values())
    for name in ("reserved_peak_bytes", "num_alloc_retries", "num_ooms"):
        values = [value for summary in summaries if (value := getattr(summary, name)) is not None]
        combine = max if name == "reserved_peak_bytes" else sum
        setattr(merged, name, combine(values) if values else None)
    return merged


def _of_a_rank(summaries: list[Summary], name: str) -> float | None:
    """Seconds of all starts of a rank, of the rank with most; None where one of them is unknown."""
    ranks: dict[int, float] = {}
    for summary in summaries:
        seconds = getattr(summary, name)
        if seconds is None:
            return None
        ranks[summary.rank] = ranks.get(summary.rank, 0.0) + seconds
    return max(ranks.values())


def _floor_of(recording: Recording, rows: Any, stage: Stage) -> KeptFloor:
    """The floor of a stage's records; those without an allocator's numbers are left out.

    Of a long training in which each batch has its step, all but the first and the last batches are judged as one array.
    """
    import numpy as np

    names = ("batch", "allocated_start_bytes", "allocated_end_bytes", "optimizer_steps")
    columns = np.stack([recording.column(name)[rows] for name in names])
    columns = columns[:, ~np.isnan(columns[[0, 2]]).any(axis=0)]  # a damaged file may have a NaN anywhere
    middle = columns[:, _HEAD:-_TAIL]
    if stage is not Stage.TRAIN or not middle.shape[1] or not (np.diff(columns[3]) > 0).all():
        return floor_of(stage, _ends(columns))
    floor = floor_of(stage, _ends(columns[:, :_HEAD]))
    highest = np.maximum.accumulate(np.append(floor.highest_bytes, middle[2]))
    counts = middle[2] >= OVER * (floor.from_bytes or 0)
    floor.pass_over(int(highest[-1]), fell=bool((counts & (middle[2] < (1 - FALL) * highest[:-1])).any()))
    for batch, start, end, steps in _ends(columns[:, -_TAIL:]):
        floor.push(batch, start, end, steps=steps)
    return floor


def _ends(columns: Any) -> Iterator[tuple[int, int | None, int, int]]:
    """Of each record what `floor_of` takes."""
    for batch, start, end, steps in zip(*columns.tolist(), strict=True):
        yield int(batch), None if start != start else int(start), int(end), int(steps) if steps == steps else 0


_SETTINGS = (
    *("memguard", "torch", "python", "device", "device_name", "device_total_bytes", "world_size"),
    *("precision", "batch_size", "script", "integration"),
)
_OWNERS = {"optimizer": "optimizer states", "kept": "kept from before the batch", "activations": "saved activations"}


def _owners(recording: Recording) -> dict[str, int]:
    """By category where the contents of a peak were recorded, else by owner: of the highest peak there is."""
    sizes: dict[str, int] = {}
    contents = recording.of_kind("contents")
    if contents:
        highest = max(contents, key=lambda line: line.get("allocated_peak_bytes") or 0)
        for row in highest.get("rows") or ():
            if isinstance(row, list) and len(row) > 6 and isinstance(row[0], str) and isinstance(row[6], int):
                sizes[_OWNERS.get(row[0], row[0])] = sizes.get(_OWNERS.get(row[0], row[0]), 0) + row[6]
    elif owners := recording.of_kind("owners"):
        for key, value in owners[-1].items():
            if key.endswith("_bytes") and isinstance(value, int):
                name = key.removesuffix("_bytes")
                sizes[_OWNERS.get(name, name)] = value
    return sizes


def _settings(session: dict[str, Any]) -> dict[str, str]:
    options = session.get("options")
    told = {name: session.get(name) for name in _SETTINGS}
    told |= {f"option {name}": value for name, value in (options.items() if isinstance(options, dict) else ())}
    told.pop("option logdir", None)  # differs between any two runs
    return {name: str(value) for name, value in told.items() if value is not None}


def _count_stages(recording: Recording, summary: Summary) -> None:
    import numpy as np

    allocated = recording.column("allocated_peak_bytes")
    height = np.where(np.isnan(allocated), recording.column("allocated_end_bytes"), allocated)
    rss = recording.column("host_rss_bytes")
    seconds = recording.column("seconds")
    for stage in STAGES:
        rows = np.flatnonzero(recording.stage_mask(stage))
        if not len(rows):
            continue
        heights = height[rows] if not np.isnan(height[rows]).all() else rss[rows]
        top = rows[int(np.nanargmax(heights))] if not np.isnan(heights).all() else rows[0]
        record = recording.record(int(top))
        summary.stages[stage] = StageSummary(
            batches=len(rows),
            seconds=float(np.nansum(seconds[rows])),
            peak=Peak(
                allocated_bytes=None if np.isnan(height[top]) else int(height[top]),
                reserved_bytes=record.reserved_peak_bytes or record.reserved_bytes,
                host_rss_bytes=record.host_rss_bytes,
                stage=stage,
                batch=record.batch,
                epoch=record.epoch,
                index=record.index,
                shapes=recording.shapes(record.shapes),
            ),
            kept=_floor_of(recording, rows, stage),
            host_rss_peak_bytes=None if np.isnan(rss[rows]).all() else int(np.nanmax(rss[rows])),
        )
    for name, column in (("num_alloc_retries", "num_alloc_retries"), ("num_ooms", "num_ooms")):
        values = recording.column(column)
        setattr(summary, name, None if np.isnan(values).all() else int(np.nansum(values)))
    reserved = recording.column("reserved_peak_bytes")
    summary.reserved_peak_bytes = None if np.isnan(reserved).all() else int(np.nanmax(reserved))


def fallen_in(peers: Iterable[dict[str, Any]]) -> list[int]:
    """The ranks that a recording's ``peer`` lines tell of as fallen; one that finished did not fall."""
    told = (peer.get("rank") for peer in peers if peer.get("what") != "finished")
    return sorted({rank for rank in told if isinstance(rank, int)})


def _last_words(recording: Recording) -> str:
    """What is known of a run that ended without a word: another rank fell, or it was killed, or it still runs."""
    last = recording.record(len(recording) - 1)
    at = f"at batch {last.batch} ({last.stage.value})"
    if fallen := fallen_in(recording.of_kind("peer")):
        return f"the run stopped {at}: {ranks_text(fallen)} fell before"
    limit, rss = recording.session.get("host_limit_bytes"), last.host_rss_bytes
    ram = f" with RAM at {format_bytes(rss)}" if rss is not None else ""
    of = f" of a limit of {format_bytes(limit)}" if ram and isinstance(limit, int) else ""
    ranks = max(int(recording.session.get("world_size") or 1), 1)
    plenty = rss is not None and isinstance(limit, int) and rss * ranks < _SHORT * limit
    why = "" if plenty else " (the kernel does that when RAM runs out)"
    return f"the run ended without a word {at}{ram}{of}: it was killed from outside{why}, or it still runs"
