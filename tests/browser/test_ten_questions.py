"""The ten questions of docs/memory-tab.md: each answered in at most two clicks from the page's opening."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import pytest

from memguard.recording.reader import Recording, find_recordings
from memguard.text.units import format_bytes
from tests.browser.chromium import Visit, needs_chromium

pytestmark = [pytest.mark.browser, needs_chromium]
PAGE = Path(__file__).parents[2] / "docs" / "memory-tab.md"
_OPEN = "tr[data-run='{}'] >> text=Open"
LEAK = _OPEN.format("leak")


class Answer(NamedTuple):
    """Where a question is answered."""

    clicks: tuple[str, ...]
    """What is clicked on, from the opening of the page on, which with several runs is the overview."""
    place: str
    """Where the answer stands then."""
    words: tuple[str, ...]
    """Of the answer; in braces what `facts` says."""


ANSWERS = {
    "What is wrong?": Answer((LEAK,), ".headline", ("train.py:41", "losses", "Fix:", "loss.item()")),
    "What filled the peak?": Answer((LEAK,), "#contents", ("Allocated peak", "{peak}", "losses", "{kept}")),
    "Which layer takes the most?": Answer(
        (LEAK, ".part[data-name='Saved activations']"), "#contents tbody tr:first-child", ("model.layers.", "{layer}")
    ),
    "Where in the batch is the peak?": Answer(
        (LEAK,), "#contents", ("It was reached in the backward", "model.lm_head")
    ),
    "Since when does it grow?": Answer((LEAK,), ".headline", ("began in batch {began}, detected in batch {detected}",)),
    "What did earlier batches leave behind?": Answer(
        (LEAK, ".part[data-name='Kept from before the batch']"), "#contents table", ("losses", "train.py:41", "{kept}")
    ),
    "How much would a change save?": Answer(("[data-view=oom]",), "main", ("What to change", "saves about {saving}")),
    "What was it doing when it died?": Answer(
        ("[data-view=oom]",), ".headline", ("Out of memory in batch {died}", "train", "model.py:88", "in the forward")
    ),
    "Does the other run do better?": Answer(
        ("[data-view=compare]",), "main", ("Peak allocated: ", "more", "{peak} now")
    ),
    "Which rank is the worst?": Answer((_OPEN.format("four-ranks"),), "#rank-note", ("highest peak of all",)),
}


@pytest.fixture(scope="module")
def facts(demo: Path) -> dict[str, str]:
    """What the recording says."""
    recording = Recording.open(find_recordings(demo / "leak")[0])
    contents, (oom,) = recording.of_kind("contents")[-1], recording.of_kind("oom")
    sizes = {name: max(row[6] for row in contents["rows"] if row[0] == name) for name in ("kept", "activations")}
    found = next(each for each in recording.of_kind("finding") if each["code"] == "MG101")
    return {
        "peak": format_bytes(int(recording.rows["allocated_peak_bytes"].max())),
        "kept": format_bytes(sizes["kept"]),
        "layer": format_bytes(sizes["activations"]),
        "began": f"{found['since']:,}",
        "detected": f"{found['batch']:,}",
        "died": f"{oom['batch']:,}",
        "saving": format_bytes(oom["advice"][0]["gain_bytes"]),
    }


def test_the_questions_are_those_of_the_documentation() -> None:
    """Each is in its table, and each of its table is here."""
    rows = re.findall(r"^\| ([^|]+\?) \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert rows == list(ANSWERS) and len(rows) == 10


@pytest.mark.parametrize("question", ANSWERS)
def test_a_question_is_answered_within_two_clicks(visit: Visit, url: str, facts: dict[str, str], question: str) -> None:
    """With the recording's own numbers."""
    clicks, place, words = ANSWERS[question]
    assert len(clicks) <= 2
    frame = visit.alone(url)
    for selector in clicks:
        frame.click(selector)
    frame.wait_for_selector(place)
    frame.wait_for_selector("body[data-ready]:not([data-ready=''])")
    text = " ".join(frame.inner_text(place).split())
    assert [word for word in words if word.format(**facts) not in text] == []
