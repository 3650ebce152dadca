import io
import sys

import pytest

from memguard.records.findings import Severity
from memguard.sinks.console import ConsoleSink, print_finding, print_text
from tests.fakes import finding


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def told(*findings: object) -> str:
    stream = io.StringIO()
    sink = ConsoleSink(stream)
    for one in findings:
        sink.finding(one)  # type: ignore[arg-type]
    return stream.getvalue()


def test_a_finding_is_told_with_code_message_and_fix() -> None:
    """Two lines: what happened, and what to do."""
    assert told(finding()) == "memguard warning MG999 scripted: it leaks\n  Fix: stop it\n"


def test_a_cause_is_told_once_and_again_when_it_becomes_worse() -> None:
    """Repeats stay silent."""
    text = told(finding(), finding(), finding(severity=Severity.CRITICAL))
    assert text.count("it leaks") == 2


def test_mere_information_waits_for_the_summary_unless_memguard_acted() -> None:
    """Infos are not printed while the run goes on; acts are."""
    assert told(finding(severity=Severity.INFO)) == ""
    assert "MG001" in told(finding(severity=Severity.INFO, code="MG001"))


def test_a_rank_above_zero_is_named() -> None:
    """Several processes share one terminal."""
    assert "[rank 3]" in told(finding(rank=3))


def test_markup_in_a_message_is_text() -> None:
    """A path in square brackets is printed as it is."""
    assert "a[bold]b" in told(finding(message="a[bold]b"))


def test_a_text_is_printed_where_stderr_is_now(capsys: pytest.CaptureFixture[str]) -> None:
    """On a line of its own, at once."""
    print_text("memguard: well")
    assert capsys.readouterr().err == "memguard: well\n"


@pytest.mark.parametrize("stream", [None, "closed", "broken"])
def test_a_text_that_nobody_can_read_is_no_error(stream: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program without a console, a closed stream, a pipe whose reader is gone."""

    class Broken(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    closed = io.StringIO()
    closed.close()
    monkeypatch.setattr(sys, "stderr", {None: None, "closed": closed, "broken": Broken()}[stream])
    print_text("memguard: well")


def test_a_terminal_gets_folded_lines_and_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    """At its width, the severity in its colour; NO_COLOR leaves the colour out, a file gets whole lines."""
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    one = finding(message="it keeps " + "the outputs of every batch, " * 6, advice="store a number " * 8)
    stream, plain, file = Terminal(), Terminal(), io.StringIO()
    print_finding(one, stream)
    monkeypatch.setenv("NO_COLOR", "1")
    print_finding(one, plain)
    print_finding(one, file)
    assert stream.getvalue().startswith("memguard \x1b[33mwarning\x1b[0m MG999")
    assert stream.getvalue().replace("\x1b[33m", "").replace("\x1b[0m", "") == plain.getvalue()
    assert max(map(len, plain.getvalue().splitlines())) <= 60 and len(plain.getvalue().splitlines()) > 5
    assert plain.getvalue().split() == file.getvalue().split() and len(file.getvalue().splitlines()) == 2
