"""Plain English: pages that a user reads first are free of turns that read as translated."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

BANNED = {
    r"\b(is|are|was|were) told\b": "say reported, recorded or shown",
    r"\blook(s|ed)? at\b": "say samples, examines or reads",
    r"\bstands?\b": "say is, are, or name the verb",
    r"\blikewise\b": "say the same, or repeat the noun",
    r"\bin vain\b": "say unused, or without effect",
    r"\bnobody\b": "name who does not, or use the passive",
    r"\bsomebody\b": "name who",
    r"\bwhose turn\b": "say when",
    r"\bwhat comes of\b": "say the result",
    r"\bthe more so\b": "leave it out",
    r"\bBesides,": "say also",
}
"""Turns that the glossary's readers stumbled over, with what to write instead."""

PAGES = [
    ROOT / name
    for name in (
        "README.md",
        "CONTRIBUTING.md",
        "SECURITY.md",
        "docs/README.md",
        "docs/getting-started.md",
        "docs/glossary.md",
        "docs/how-it-works.md",
        "docs/memory-as-a-test.md",
        "docs/numbers.md",
        "docs/releasing.md",
    )
]
"""Pages in plain English; add a page here when it is."""

_SHOWN = re.compile(r"^```\n(memguard .*?)^```$|<!-- costs:.*?<!-- end of costs -->", re.MULTILINE | re.DOTALL)
"""What the program prints, and generated tables: their words are checked where they are made."""


def offences(text: str) -> list[str]:
    """The banned turns in a text, each with what to write instead."""
    own = _SHOWN.sub("", text)
    return [
        f"{match[0]!r}: {instead}"
        for turn, instead in BANNED.items()
        for match in re.finditer(turn, own, re.IGNORECASE)
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_is_in_plain_english(page: Path) -> None:
    """None of the banned turns is in it."""
    assert offences(page.read_text()) == []


def test_a_banned_turn_would_be_found() -> None:
    """The check itself can fail, also at a line's break; printed messages do not count."""
    assert len(offences("The line is told.\nIt\nstands there, likewise.")) == 3
    assert offences("```\nmemguard on cpu: it stands\n```\n") == []
