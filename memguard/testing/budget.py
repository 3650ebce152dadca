"""A budget for a block of code: its peak, its change since a baseline, and its findings, checked at the block's end."""

from __future__ import annotations

import gc
import os
import tempfile
from types import TracebackType
from typing import final

from memguard.integrations.guarded_device import max_memory_allocated, max_memory_reserved
from memguard.integrations.script import GuardedProgram
from memguard.options import Options
from memguard.records.findings import Finding, Severity
from memguard.records.stats import Stage
from memguard.records.summary import Peak, StageSummary, Summary, peak_height
from memguard.report.baseline import BaselineFile
from memguard.report.text import describe_peak
from memguard.text.places import place_text
from memguard.text.units import MIB, format_bytes, parse_bytes

LARGER, SEGMENTS_BYTES = 2, 64 * MIB
"""Where no device is given, a virtual one is so many times the budget, and room for the allocator's segments of 20 MiB:
a block that needs more than the budget then runs to its end, and the failure says how much more."""


class MemoryBudgetExceeded(AssertionError):
    """A block of code used more memory than it may, or memguard found a fault in it."""


@final
class MemoryBudget:
    """The handle of one checked block; `memory_budget` makes it, ``with`` runs it, once.

    Args:
        limit_bytes: The highest allocated peak that passes; None: any.
        device: The device to run on, as in `Options`.
        baseline: Where the peak is compared; None: nowhere.
        name: Of the block in the baseline's file.
        tolerance: The share by which the peak may be above the baseline's.
        update: Whether to write the baseline instead of comparing with it.
        fail_on: The least severe finding that fails; None: findings do not fail.
        ignore: Rules to leave out.
    """

    def __init__(
        self,
        *,
        limit_bytes: int | None,
        device: str,
        baseline: BaselineFile | None,
        name: str,
        tolerance: float,
        update: bool,
        fail_on: Severity | None,
        ignore: tuple[str, ...],
    ) -> None:
        self.limit_bytes, self.device, self.name = limit_bytes, device, name
        self.is_below_baseline = False
        """Whether the peak was further below the baseline's than the tolerance: the baseline should be renewed."""
        self.summary = Summary(device=device)
        """What the block came to; empty until its end."""
        self._baseline, self._tolerance, self._update = baseline, tolerance, update
        self._fail_on = fail_on
        self._logdir = tempfile.TemporaryDirectory(prefix="memguard-budget-", ignore_cleanup_errors=True)
        options = Options(device=device, validation="warn", ignore=ignore, progress=False, logdir=self._logdir.name)
        self._program = GuardedProgram(options)

    @property
    def allocated_peak_bytes(self) -> int | None:
        """The highest allocated bytes; None until the end, and where the device does not report it."""
        return self.summary.peak.allocated_bytes

    @property
    def reserved_peak_bytes(self) -> int | None:
        """The highest bytes that PyTorch's allocator held; None as above."""
        return self.summary.reserved_peak_bytes

    @property
    def findings(self) -> list[Finding]:
        """What memguard found in the block; empty until its end."""
        return self.summary.findings

    def __enter__(self) -> MemoryBudget:
        gc.collect()  # tensors in cycles that earlier code left would count
        self._program.begin()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        try:
            peaks = self._highest() if kind is None else (None, None)
            self._program.end("finished" if kind is None else f"an exception: {kind.__name__}")
            self.summary = self._worst(*peaks)
        finally:
            self._logdir.cleanup()
        if kind is not None:
            return  # the block's own error says more, an out-of-memory error too
        failures = [*self._over_limit(), *self._over_baseline(), *self._found()]
        if failures:
            raise MemoryBudgetExceeded("\n".join(failures))

    def _highest(self) -> tuple[int | None, int | None]:
        """The device's peaks, those outside of all batches included."""
        try:
            return max_memory_allocated(), max_memory_reserved()
        except Exception:  # no guard is open, or the device does not report it: `_over_limit` says so
            return None, None

    def _worst(self, allocated: int | None, reserved: int | None) -> Summary:
        """The summary with the highest peak of those that the block made."""
        summaries = self._program.summaries or [Summary(device=self.device)]
        worst = max(summaries, key=lambda each: peak_height(each.peak))
        worst.findings = [finding for each in summaries for finding in each.findings]
        if allocated is not None and allocated > (worst.peak.allocated_bytes or 0):
            entry = worst.stages.setdefault(Stage.OTHER, StageSummary())
            entry.peak = Peak(allocated_bytes=allocated, reserved_bytes=reserved, stage=Stage.OTHER)
        if reserved is not None:
            worst.reserved_peak_bytes = max(reserved, worst.reserved_peak_bytes or 0)
        return worst

    def _over_limit(self) -> list[str]:
        peak = self.allocated_peak_bytes
        if peak is None and (self.limit_bytes is not None or self._baseline is not None):
            return [
                f"{self.name}: no allocated memory was measured on {self.device}; give a device that counts it, like "
                "device='virtual:24GiB'"
            ]
        if self.limit_bytes is None or peak is None or peak <= self.limit_bytes:
            return []
        return [
            f"{self.name}: the peak is {format_bytes(peak)} allocated, {format_bytes(peak - self.limit_bytes)} above "
            f"the budget of {format_bytes(self.limit_bytes)}, {self._where()}"
        ]

    def _over_baseline(self) -> list[str]:
        peak = self.allocated_peak_bytes
        if self._baseline is None or peak is None:
            return []
        if self._update:
            self._baseline.put(self.summary, self.name)
            return []
        known = self._baseline.get(self.name) if self._baseline.path.exists() else None
        before = None if known is None else known.peak.allocated_bytes
        if known is None or not before:
            return [
                f"{self.name}: {self._baseline.path} has no baseline of this name; write it with --memguard-update "
                "(update=True in memory_budget) and commit the file"
            ]
        if known.device != self.device:
            return [
                f"{self.name}: the baseline was measured on {known.device}, this run on {self.device}; use one device "
                "or write it anew with --memguard-update"
            ]
        self.is_below_baseline = peak < before * (1 - self._tolerance)
        if peak <= before * (1 + self._tolerance):
            return []
        return [
            f"{self.name}: the peak is {format_bytes(peak)} allocated, {(peak - before) / before:+.2%} against the "
            f"baseline's {format_bytes(before)} (allowed: {self._tolerance:+.2%}), {self._where()}"
        ]

    def _found(self) -> list[str]:
        if self._fail_on is None:
            return []
        lines = []
        for each in self.findings:
            if self._fail_on <= each.severity:
                where = f" ({place_text(each.file, each.line)})" if each.file is not None else ""
                lines.append(f"{self.name}: {each.code} {each.name}{where}: {each.message}\n  Fix: {each.advice}")
        return lines

    def _where(self) -> str:
        peak = self.summary.peak
        return "outside of all batches" if peak.stage is Stage.OTHER else f"at {describe_peak(peak)}"


def memory_budget(
    budget: str | int | None = None,
    *,
    device: str | None = None,
    baseline: str | os.PathLike[str] | None = None,
    name: str = "block",
    tolerance: float = 0.01,
    update: bool = False,
    fail_on: str | None = "warning",
    ignore: tuple[str, ...] = (),
) -> MemoryBudget:
    """A check of what a block of code uses; run the block in ``with``.

    Whatever models the block calls are guarded, as in ``memguard run``; nothing in them changes. At the block's end the
    check fails if the allocated peak is above the budget or the baseline, or if memguard found a fault. An exception
    of the block, an out-of-memory error of the device too, comes out unchanged.

    Args:
        budget: The highest allocated peak that passes, like ``"20GiB"`` or a number of bytes; None: any.
        device: The device to run on, as in `memguard.watch`; None: a virtual GPU a little over twice the budget.
        baseline: A file of baselines (JSON), to be committed; the peak is compared with what it says under the name.
        name: Of this block, in the baseline's file and in messages.
        tolerance: The share by which the peak may be above the baseline's; 0.01 is one per cent.
        update: Whether to write the baseline instead of comparing with it.
        fail_on: "info", "warning" or "critical": the least severe finding that fails; None: findings do not fail.
        ignore: Codes or names of rules to leave out.

    Returns:
        The handle, with `allocated_peak_bytes`, `reserved_peak_bytes`, `findings` and `summary` after the block.

    Raises:
        ValueError: Neither budget nor device is given, or an option is not valid.
        MemoryBudgetExceeded: At the block's end: it used too much, or has a fault.
        MemGuardError: At the block's end: the baseline's file cannot be read or written.
    """
    limit = parse_bytes(budget) if isinstance(budget, str) else budget
    if limit is not None and limit <= 0:
        raise ValueError(f"budget must be greater than zero, got {budget!r}")
    if device is None:
        if limit is None:
            raise ValueError("memory_budget needs a budget, like '20GiB', or a device, like 'virtual:24GiB'")
        device = f"virtual:{LARGER * limit + SEGMENTS_BYTES}B"
    if tolerance < 0:
        raise ValueError(f"tolerance is a share such as 0.01 for one per cent, got {tolerance!r}")
    if fail_on is not None and fail_on not in [severity.value for severity in Severity]:
        raise ValueError(f"fail_on must be info, warning, critical or None, got {fail_on!r}")
    return MemoryBudget(
        limit_bytes=limit,
        device=device,
        baseline=None if baseline is None else BaselineFile(baseline),
        name=name,
        tolerance=tolerance,
        update=update,
        fail_on=None if fail_on is None else Severity(fail_on),
        ignore=ignore,
    )
