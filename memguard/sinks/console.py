"""What is printed on stderr: each finding once, and other messages."""

from __future__ import annotations

import sys
from typing import TextIO, final

from memguard.records.findings import Finding, Severity
from memguard.sinks.interface import Sink
from memguard.text.terminal import above_progress, coloured, fold, fold_lines, terminal_of


@final
class ConsoleSink(Sink):
    """Prints a warning, or an act of memguard's own, when it is first told, or becomes worse.

    Args:
        stream: Where to; None is the process's stderr at the time of printing.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream
        self._told: dict[tuple[str, str | None, int | None, str | None], Severity] = {}

    def finding(self, finding: Finding) -> None:
        """Prints the finding if it is new or worse than when it was told."""
        told = self._told.get(finding.cause)
        if told is not None and finding.severity <= told:
            return
        if finding.severity < Severity.WARNING and not finding.code.startswith("MG0"):
            return
        self._told[finding.cause] = finding.severity
        print_finding(finding, self._stream)

    def close(self) -> None:
        """Nothing is left to print."""


def print_finding(finding: Finding, stream: TextIO | None = None) -> None:
    """One finding for a person: what happened, then the fix; folded and coloured as the terminal allows."""
    stream = stream if stream is not None else sys.stderr
    width, colours = terminal_of(stream)
    rank = f" [rank {finding.rank}]" if finding.rank else ""
    head = f"memguard {finding.severity.value} {finding.code} {finding.name}{rank}: {finding.text}"
    lines = fold(head, width, rest="  ")
    severity = finding.severity.value
    lines[0] = lines[0].replace(severity, coloured(severity, severity, colours), 1)
    if finding.advice:
        lines += fold(f"Fix: {finding.advice}", width, first="  ", rest="       ")
    print_text("\n".join(lines), stream)


def print_text(text: str, stream: TextIO | None = None) -> None:
    """Any text for a person, above what shows progress; lost where nobody reads it.

    Args:
        text: What to print.
        stream: Where to; None is the process's stderr as it is at the time.
    """
    stream = stream if stream is not None else sys.stderr
    if stream is None:  # a program without a console
        return
    width, _ = terminal_of(stream)
    if "\x1b" not in text:  # what has colours is folded already
        text = "\n".join(fold_lines(text, width))
    try:
        with above_progress(stream):
            print(text, file=stream, flush=True)
    except (OSError, ValueError):  # a pipe whose reader is gone, a stream that was closed
        pass
