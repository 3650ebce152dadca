"""What is printed on stderr: each finding once, and other messages."""

from __future__ import annotations

import random
import sys
from typing import TextIO, final

from memguard.records.findings import Finding, Severity
from memguard.sinks.interface import Sink

_STYLE = {Severity.INFO: "cyan", Severity.WARNING: "yellow", Severity.CRITICAL: "bold red"}


@final
class ConsoleSink(Sink):
    """Prints a finding when it is first told, or becomes worse.

    Args:
        stream: Where to; None is the process's stderr at the time of printing.
        least: The least severity that is printed at once; acts of memguard's own (MG0xx) always are.
    """

    def __init__(self, stream: TextIO | None = None, *, least: Severity = Severity.WARNING) -> None:
        self._stream, self._least = stream, least
        self._told: dict[tuple[str, str | None, int | None, str | None], Severity] = {}

    def finding(self, finding: Finding) -> None:
        """Prints the finding if it is new or worse than when it was told."""
        told = self._told.get(finding.cause)
        if told is not None and finding.severity <= told:
            return
        if finding.severity < self._least and not finding.code.startswith("MG0"):
            return
        self._told[finding.cause] = finding.severity
        print_finding(finding, self._stream)

    def close(self) -> None:
        """Nothing is left to print."""


def print_finding(finding: Finding, stream: TextIO | None = None) -> None:
    """One finding for a person: what happened, then the fix, coloured where the terminal shows colours."""
    state = random.getstate()  # rich draws a number when it is imported, and this may be in the middle of a training
    try:
        from rich.console import Console
        from rich.text import Text
    except ImportError:  # not installed: the same words without colours
        print(_plain(finding), file=stream or sys.stderr, flush=True)
        return
    finally:
        random.setstate(state)
    console = Console(file=stream or sys.stderr, soft_wrap=True, highlight=False)
    head = Text("memguard ", style="bold")
    head.append(f"{finding.severity.value}", style=_STYLE[finding.severity])
    head.append(f" {finding.code} {finding.name}", style="bold")
    if finding.rank:
        head.append(f" [rank {finding.rank}]", style="dim")
    head.append(f": {finding.text}")
    console.print(head)
    if finding.advice:
        console.print(Text(f"  Fix: {finding.advice}", style="green"))


def _plain(finding: Finding) -> str:
    rank = f" [rank {finding.rank}]" if finding.rank else ""
    text = f"memguard {finding.severity.value} {finding.code} {finding.name}{rank}: {finding.text}"
    return f"{text}\n  Fix: {finding.advice}" if finding.advice else text


def print_text(text: str) -> None:
    """Any other text for a person, on the process's stderr as it is at the time; lost where nobody reads it."""
    if sys.stderr is None:  # a program without a console
        return
    try:
        print(text, file=sys.stderr, flush=True)
    except (OSError, ValueError):  # a pipe whose reader is gone, a stream that was closed
        pass
