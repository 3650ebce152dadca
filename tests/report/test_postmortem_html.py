from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import pytest

from memguard.postmortem import Cause, PostMortem
from memguard.postmortem.scene import Objects, Replayed, Request, Scene, TopLine, TopTensor
from memguard.postmortem.verdict import Advice, Verdict
from memguard.records.facts import Place
from memguard.records.findings import Finding, Severity
from memguard.records.stats import Stage
from memguard.report.postmortem_html import render_html
from memguard.report.postmortem_text import render_markdown, render_short

MIB = 1 << 20
EVIL = "<script>alert(1)</script>"


SCENE = Scene(
    device="cuda:0",
    batch=7,
    stage=Stage.TRAIN,
    epoch=0,
    message=f"CUDA out of memory. {EVIL}",
    request=Request(requested_bytes=2 * MIB, limit_bytes=16 * MIB, free_bytes=0, allocated_bytes=15 * MIB),
    objects=Objects(
        site=Place(file="/home/somebody/train.py", line=8, function="main"),
        owners={"activations": 12 * MIB, "parameters": 3 * MIB, "gradients": 0},
        lines=(TopLine(file=f"/x/{EVIL}.py", line=3, function="f", bytes=MIB),),
        tensors=(TopTensor(name=EVIL, owner="outputs", shape=(2, 3), dtype="float32", bytes=24),),
    ),
    replays=(Replayed(conf="expandable_segments:True", fits=True, reserved_peak_bytes=MIB, events=4, batches=2),),
    findings=(
        Finding(
            code="MG101", name="retained-graph", severity=Severity.WARNING, message="kept", advice="detach", batch=3
        ),
    ),
)
TOLD = PostMortem(
    id="oom-rank00000-batch7",
    scene=SCENE,
    verdict=Verdict(cause=Cause.LEAK, text=f"A leak: `losses` keeps 3.00 MiB {EVIL}."),
    advice=(Advice(kind="detach", text=f"store `loss.item()` {EVIL}", gain_bytes=3 * MIB),),
)


def told(**changed: Any) -> PostMortem:
    return replace(TOLD, scene=replace(SCENE, **changed))


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_one_file_and_nothing_runs() -> None:
    """What comes from the program is escaped, every tag is closed, and nothing is fetched from anywhere."""
    page = render_html(told())
    tags = Tags()
    tags.feed(page)
    assert tags.open == []
    assert not {"script", "link", "img", "iframe"} & {tag for tag, _ in tags.seen}
    assert not any(
        name in ("src", "href") or name.startswith("on") for _, attributes in tags.seen for name in attributes
    )
    assert EVIL not in page and page.count("&lt;script&gt;") == 4
    assert "url(" not in page and "@import" not in page


def test_the_whole_story() -> None:
    """Cause, request, advice with its gain, owners, tensors, replays, findings and PyTorch's text stand in it."""
    text = re.sub(r"<[^>]+>", " ", render_html(replace(told(rank=3), caught=True)))
    for part in ("Out of memory in train batch 7", "2.00 MiB asked for by train.py:8", "rank 3", "Saves about 3.00 MiB",
                 "activations and saved tensors", "80%", "[2, 3]", "4 allocations and frees of the last 2 batches",
                 "MG101", "CUDA out of memory", "The program caught the error"):  # fmt: skip
        assert part in text, part


@pytest.mark.parametrize(("allocated", "rest"), [(15, "14.0 MiB"), (1, None), (None, None)])
def test_lines_that_do_not_tell_of_all_say_so(allocated: int | None, rest: str | None) -> None:
    """In every form what lies elsewhere follows them, unless that is nothing or not known."""
    request = Request(allocated_bytes=allocated and allocated * MIB)
    line = TopLine(file="train.py", line=3, function="f", bytes=MIB)
    case = told(request=request, objects=Objects(lines_allocated=True, lines=(line,)))
    page = re.sub(r"<[^>]+>", " ", render_html(case))
    assert (f"train.py:3 1.00 MiB, elsewhere {rest}." in render_short(case)) is bool(rest)
    assert (f"| elsewhere | {rest} |" in render_markdown(case)) is bool(rest)
    assert (re.search(rf"elsewhere\s+{rest}", page) is not None) is bool(rest)


def test_a_bare_one() -> None:
    """Where next to nothing is known, the page says what there is."""
    page = render_html(replace(told(objects=Objects(), replays=(), findings=(), message=""), advice=()))
    assert "What to change" not in page and "Out of memory in train batch 7" in page


@pytest.mark.parametrize("width", [60, 80, 120])
def test_the_short_form_fits_the_terminal(width: int) -> None:
    """No line is wider than the terminal, sizes stay whole, and it tells what was asked, held, why, what to change."""
    long = replace(TOLD.verdict, text="A leak: " + "what stays grew by 11.3 MiB and " * 9)
    lines = render_short(replace(TOLD, verdict=long), width=width).splitlines()
    assert max(map(len, lines)) <= width
    assert not any(re.search(r"\d$", line) for line in lines[1:-1])
    heads = [line[:10].strip() for line in lines if line[:10].strip()]
    assert heads == ["memguard:", "Held by:", "By line:", "Why:", "Change:"]


@pytest.mark.parametrize("allocated", [False, True])
def test_lines_that_did_not_allocate_are_not_taken_for_those_that_did(allocated: bool) -> None:
    """Without a history of allocations every form says that functions stood there whose variables hold it."""
    case = told(objects=replace(SCENE.objects, lines_allocated=allocated))
    for text in (render_short(case, width=240), render_markdown(case), render_html(case)):
        assert ("that the functions holding it had reached" not in text) is allocated
    assert case.to_json()["lines_allocated"] is allocated
