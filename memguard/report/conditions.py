"""Conditions on which a check fails, such as ``peak>+3%``: parsed from text, held against a run and its baseline."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, final

from memguard.errors import MemGuardError
from memguard.records.findings import Severity
from memguard.records.stats import Stage
from memguard.records.summary import Summary
from memguard.text.units import format_bytes, parse_bytes

EXAMPLES: Final = "peak>20GiB, peak>+3%, reserved>+200MiB, peak[validation]>+1%, findings>0, new-findings>0, retries>0"

_TEXT = re.compile(
    r"\s*(?P<metric>peak|reserved|host|findings|new-findings|retries)\s*(\[\s*(?P<stage>\w+)\s*\])?\s*"
    r"(?P<comparison>>=?)\s*(?P<plus>\+?)\s*(?P<limit>[^\s].*?)\s*"
)
_PERCENT = re.compile(r"(\d+(?:\.\d+)?)\s*%")
_COUNTS = ("findings", "new-findings", "retries")


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """One condition; it is met where the run's figure is above the limit."""

    text: str
    """As it was written."""
    metric: str
    """"peak" (allocated), "reserved" or "host" (RAM of the process) in bytes; "findings", "new-findings" (of warning
    or worse) or "retries" as a count."""
    stage: Stage | None = None
    """The stage whose peak is meant; None: the highest of all."""
    includes_limit: bool = False
    """Whether it is met at the limit itself."""
    limit: float = 0.0
    """Bytes or a count; or what may be added to the baseline, in bytes, or as its share where `is_share`."""
    is_relative: bool = False
    is_share: bool = False

    @classmethod
    def parse(cls, text: str) -> Condition:
        """The condition in a text.

        Args:
            text: Like ``"peak>+3%"`` (against the baseline), ``"peak[train]>20GiB"`` or ``"findings>0"``.

        Raises:
            MemGuardError: It is none; the text names examples.
        """
        match = _TEXT.fullmatch(text)
        if match is None:
            raise MemGuardError(f"{text!r} is no condition; write it like {EXAMPLES}")
        metric, limit = match["metric"], match["limit"]
        stage = _stage(text, match["stage"]) if match["stage"] else None
        if stage is not None and metric in (*_COUNTS, "reserved"):
            raise MemGuardError(f"{text!r}: only peak and host are known by stage")
        percent = _PERCENT.fullmatch(limit)
        is_relative = bool(match["plus"])
        if percent is not None and not is_relative:
            raise MemGuardError(f"{text!r}: a share is of the baseline, so write +{limit}")
        try:
            if percent is not None:
                value = float(percent[1]) / 100
            elif metric in _COUNTS:
                value = float(int(limit))
            else:
                value = float(parse_bytes(limit)) if limit not in ("0", "0%") else 0.0
        except ValueError as error:
            raise MemGuardError(f"{text!r}: {error}") from None
        return cls(
            text=text,
            metric=metric,
            stage=stage,
            includes_limit=match["comparison"] == ">=",
            limit=value,
            is_relative=is_relative,
            is_share=percent is not None,
        )

    @property
    def needs_baseline(self) -> bool:
        """Whether it can be held only against another run."""
        return self.is_relative or self.metric == "new-findings"

    def failure(self, run: Summary, baseline: Summary | None) -> str | None:
        """What is wrong, in words; None where the condition is not met.

        Raises:
            MemGuardError: There is nothing to compare with, or one of the two does not have the figure.
        """
        if self.needs_baseline and baseline is None:
            raise MemGuardError(f"{self.text!r} needs a run or a baseline to compare with: --compare")
        value = self._value(run, baseline)
        limit, before = self.limit, None
        if self.is_relative and baseline is not None:
            before = self._value(baseline, None)
            limit = before * (1 + self.limit) if self.is_share else before + self.limit
        if value < limit or (value == limit and not self.includes_limit):
            return None
        what = self.metric + (f"[{self.stage.value}]" if self.stage is not None else "")
        is_bytes = self.metric not in _COUNTS
        show: Callable[[float], str] = format_bytes if is_bytes else lambda number: f"{number:.0f}"
        if before is None:
            return f"{self.text}: {what} is {show(value)}"
        share = f", {(value - before) / before:+.1%}" if before else ""
        return f"{self.text}: {what} is {show(value)}, the baseline has {show(before)}{share}"

    def _value(self, summary: Summary, baseline: Summary | None) -> float:
        if self.metric == "findings":
            return float(len(_serious(summary)))
        if self.metric == "new-findings":
            known = _serious(baseline) if baseline is not None else set()
            return float(len(_serious(summary) - known))
        if self.metric == "retries":
            return float(summary.num_alloc_retries or 0)
        if self.stage is not None and self.stage not in summary.stages:
            raise MemGuardError(f"{self.text!r}: no batch of {self.stage.value} was recorded")
        peak = summary.stages[self.stage].peak if self.stage is not None else summary.peak
        if self.metric == "host":
            nbytes = peak.host_rss_bytes
        else:
            nbytes = peak.allocated_bytes if self.metric == "peak" else summary.reserved_peak_bytes
        if nbytes is None:
            raise MemGuardError(f"{self.text!r}: {summary.device} did not measure it")
        return float(nbytes)


def _serious(summary: Summary) -> set[tuple[str, str | None]]:
    """Its findings of warning or worse, by code and holder: a line moves with every edit above it."""
    return {(each.code, each.holder) for each in summary.findings if each.severity is not Severity.INFO}


def _stage(text: str, name: str) -> Stage:
    try:
        return Stage(name)
    except ValueError:
        raise MemGuardError(
            f"{text!r}: there is no stage {name!r}; the stages are {', '.join(stage.value for stage in Stage)}"
        ) from None
