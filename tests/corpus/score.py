"""How well the programs of one run of the corpus were told."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

from tests.corpus.runner import Outcome, exit_code_of, known_misses, marks_of

_COUNTED = ("faults", "found", "right line", "right holder", "healthy", "false alarms", "silences")


class Score:
    """Counts outcomes.

    Args:
        device: Where the programs run.

    Attributes:
        counts: Faults, and how many were found, at the right line and with the right holder in the same finding;
            healthy programs, false alarms, and runs called nothing to worry about that were not; known misses, and how
            many are found again.
    """

    def __init__(self, device: str) -> None:
        self.counts = Counter[str]()
        self._device, self._began = device, time.monotonic()
        self._delays: dict[str, list[tuple[int, str]]] = {}
        self._known_misses = frozenset(known_misses())

    def add(self, path: Path, outcome: Outcome | str) -> list[str]:
        """Counts a program; returns what is not as it should be, a line each."""
        if isinstance(outcome, str):
            self.counts["no outcome"] += 1
            return [f"no outcome: {outcome}"]
        lines = outcome.complaints
        if outcome.exit_code != exit_code_of(path, None if self._device == "virtual" else self._device):
            lines.append(f"exit code {outcome.exit_code}\n{outcome.output[-2000:]}")
        if path in self._known_misses:
            self.counts["known misses"] += 1
            if lines or self._device != "virtual":
                return []
            self.counts["found again"] += 1
            return ["FOUND AGAIN: it is told as marked; move it back"]
        for mark in outcome.marks:
            self.counts["faults"] += 1
            self.counts["found"] += outcome.found(mark)
            self.counts["right line"] += outcome.right_line(mark)
            self.counts["right holder"] += outcome.right_holder(mark)
            if (delay := outcome.delay(mark)) is not None:
                self._delays.setdefault(mark.code, []).append((delay, path.name))
        self.counts["healthy"] += not marks_of(path)
        self.counts["false alarms"] += len(outcome.alarms)
        self.counts["silences"] += len(outcome.silences)
        return lines

    def __str__(self) -> str:
        lines = []
        for code, found in sorted(self._delays.items()):
            found.sort()
            late = ", ".join(f"{name} {delay}" for delay, name in found[-3:])
            median = found[len(found) // 2][0]
            lines.append(f"{self._device}: {code} told after {median} batches (median), the latest: {late}")
        names = [*_COUNTED, *(name for name in self.counts if name not in _COUNTED and self.counts[name])]
        counts = ", ".join(f"{name} {self.counts[name]}" for name in names)
        return "\n".join([*lines, f"{self._device}: {counts}, {time.monotonic() - self._began:.0f} s"])
