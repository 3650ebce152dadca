from __future__ import annotations

import io

import pytest

from memguard.records.findings import Finding, Severity
from memguard.sinks.console import print_finding
from memguard.sinks.findings_table import as_markdown
from memguard.text.terminal import one_line, printable

HOSTILE = "cache['a\nmemguard MG999 forged: all is well\x1b[2J\x07\u202egnp\r\t']"
"""A key of a user's dictionary, which comes into messages as the name of what holds the memory."""


def finding() -> Finding:
    """As it comes out of a stranger's recording."""
    told = Finding(code="MG301", name="outputs-accumulate", severity=Severity.WARNING, message="", advice="")
    data = {**told.to_json(), "message": f"`{HOSTILE}` keeps 8 tensors", "advice": HOSTILE, "holder": HOSTILE}
    return Finding.from_json(data)


def assert_harmless(text: str, *, lines: int) -> None:
    """Nothing in it acts on a terminal, and it has as many lines as it should."""
    assert len(text.splitlines()) == lines
    assert text.replace("\n", "").isprintable()


def test_what_acts_on_a_terminal_is_shown_instead() -> None:
    """Escape sequences, bells and what turns the order of letters; ends of lines stay, unless it must be one line."""
    assert printable("a\x1b[2J\nb\u202e") == "a\\x1b[2J\nb\\u202e"
    assert one_line("a\x1b\nb\tc\r") == "a\\x1b\\nb\\tc\\r"
    assert one_line("Größe in µs") == "Größe in µs"


def test_a_finding_is_one_line_whoever_named_what_it_tells_of() -> None:
    """Message, fix, holder and function; a key with an end of line cannot forge a message of ours."""
    found = finding()
    for text in (found.message, found.advice, found.holder or ""):
        assert_harmless(text, lines=1)
    assert "a\\nmemguard MG999" in found.message


def test_the_terminal_shows_two_lines_for_it() -> None:
    """What happened, and the fix."""
    stream = io.StringIO()
    print_finding(finding(), stream)
    assert_harmless(stream.getvalue(), lines=2)


def test_the_table_has_one_row_for_it() -> None:
    """In TensorBoard's text."""
    table = as_markdown([finding()])
    rows = [row for row in table.splitlines() if "MG301" in row]
    assert len(rows) == 1
    assert_harmless(rows[0], lines=1)


@pytest.mark.parametrize("text", [7, None, ["x"]])
def test_what_is_no_text_is_left_to_those_who_read_it(text: object) -> None:
    """A broken recording is judged by its reader."""
    assert Finding(code="", name="", severity=Severity.INFO, message=text, advice="").message is text  # type: ignore[arg-type]
