"""A run's summary in words: the verdict, why and what next, and how it is shown on a terminal."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from memguard.records.findings import Finding, Severity
from memguard.records.kept_floor import floor_of
from memguard.records.phases import PhaseTotals
from memguard.records.stats import Stage
from memguard.records.summary import Peak, StageSummary, Summary
from memguard.report.page import summary_html
from memguard.report.summaries import merge
from memguard.report.text import render


@pytest.mark.parametrize(
    ("batches", "ended", "misses", "says"),
    [
        (2, "finished", False, "2 batches, nothing to worry about."),
        (1, "finished", False, "1 batch, nothing to worry about."),
        (1, "an exception: OSError", False, "1 batch, no warnings; it ended with an exception: OSError."),
        (0, None, False, "0 batches, nothing was recorded; the run ended without a word (killed?) or still runs."),
        (0, "finished", False, "0 batches, nothing was recorded."),
        (3, "finished", True, "3 batches, no warnings."),
    ],
)
def test_only_a_run_that_finished_is_nothing_to_worry_about(
    batches: int, ended: str | None, misses: bool, says: str
) -> None:
    """A run that failed, vanished or trained unseen has no findings, which is less; one batch is told as one."""
    stages = {Stage.TRAIN: StageSummary(batches=batches)}
    summary = Summary(device="cpu", stages=stages, ended=ended, misses_training=misses)
    assert render(summary).splitlines()[0] == f"memguard on cpu: {says}"


@pytest.mark.parametrize(("stage", "rises"), [(Stage.TRAIN, True), (Stage.PREDICT, True), (Stage.OTHER, False)])
def test_what_a_program_sets_up_before_it_trains_is_no_rise(stage: Stage, rises: bool) -> None:
    """A model that is moved to the device is no reason to worry; what training or a pass keeps is."""
    kept = floor_of(stage, [(number, number * 2**20, (number + 1) * 2**20, number) for number in range(40)])
    summary = Summary(device="cpu", device_total_bytes=2**26, ended="finished")
    summary.stages[stage] = StageSummary(batches=40, kept=kept)
    assert (summary.risen is not None) is rises
    assert ("What stays allocated after a batch never fell" in render(summary)) is rises


def test_the_cost_is_that_of_start_up_and_apart_from_it_that_of_a_batch() -> None:
    """With the share of the run's time; that a virtual device takes more is said where there is one."""
    stages = {Stage.TRAIN: StageSummary(batches=10_000)}
    cost = Summary(
        device="cpu", stages=stages, overhead_seconds=0.5, overhead_share=0.002, start_up_seconds=0.92, ended="finished"
    )
    says = "Cost of memguard: start-up 0.92 s, then 0.05 ms a batch, 0.20% of the run's time."
    assert f"{says}\n" in render(cost) + "\n"
    simulated = render(replace(cost, device="virtual:1GiB"))
    assert f"{says} The virtual device's own time is not counted.\n" in simulated + "\n"
    assert "start-up 12 s, then 398 ms a batch" in render(
        replace(cost, start_up_seconds=12.3, overhead_seconds=0.398 * cost.batches)
    )
    assert "start-up 9.3 ms, then " in render(replace(cost, start_up_seconds=0.0093))
    assert "Cost of memguard: 0.05 ms a batch, " in render(replace(cost, start_up_seconds=None))
    assert "in a longer run the share falls" not in render(replace(cost, overhead_share=0.08))
    short = replace(cost, stages={Stage.TRAIN: StageSummary(batches=60)}, overhead_share=0.08)
    assert "The first 64 batches are checked most closely; in a longer run the share falls." in render(short)
    assert "Cost of memguard: unknown" in render(replace(cost, overhead_share=None))


def test_the_cost_of_several_ranks_is_that_of_the_rank_with_most() -> None:
    """Restarts of a rank add up; ranks do not, and neither do their batches."""
    one = Summary(
        device="cpu",
        stages={Stage.TRAIN: StageSummary(batches=100)},
        overhead_seconds=0.1,
        overhead_share=0.01,
        start_up_seconds=1.0,
    )
    both = merge([one, replace(one, rank=1, overhead_seconds=0.2, stages=dict(one.stages))])
    assert (both.overhead_seconds, both.start_up_seconds) == (0.2, 1.0)
    assert "start-up 1 s, then 2 ms a batch, 1.00% of the run's time on the rank with most." in render(both, ranks=2)
    again = merge([one, replace(one, stages=dict(one.stages))])
    assert (again.overhead_seconds, again.start_up_seconds) == (0.2, 2.0)


@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    """Tables that do not fit become a paragraph for each row; no word or figure is lost."""
    stages = {
        stage: StageSummary(batches=1000, seconds=8.0, peak=Peak(allocated_bytes=7 << 30, reserved_bytes=9 << 30))
        for stage in (Stage.TRAIN, Stage.VALIDATION)
    }
    phases = {"rollout": PhaseTotals(name="rollout", times=7, seconds=1.0)}
    findings = [_finding("MG501", Severity.CRITICAL, 3)]
    summary = Summary(device="cuda:0", stages=stages, phases=phases, findings=findings, ended="finished")
    folded = render(summary, width=width)
    assert max(map(len, folded.splitlines())) <= width
    words = [set(re.findall(r"[\w.]+", text)) for text in (render(summary), folded)]
    assert words[0] - words[1] <= {"stage", "phase"}  # the head of a row that became a paragraph


@pytest.mark.parametrize(
    ("stages", "says"),
    [
        ({Stage.TRAIN: 5, Stage.OTHER: 3, Stage.CHECKPOINT: 2}, "5 batches"),
        ({Stage.TRAIN: 5, Stage.VALIDATION: 2, Stage.OTHER: 1}, "7 batches"),
        ({Stage.OTHER: 4}, "4 batches"),
    ],
)
def test_batches_are_counted_as_the_program_counts_them(stages: dict[Stage, int], says: str) -> None:
    """What lies between stages and a checkpoint are no batches of the program, unless there is nothing else."""
    summary = Summary(
        device="cpu", ended="finished", stages={name: StageSummary(batches=count) for name, count in stages.items()}
    )
    assert render(summary).splitlines()[0].startswith(f"memguard on cpu: {says}, ")


def _finding(code: str, severity: Severity, line: int | None = None) -> Finding:
    return Finding(
        code=code,
        name="scripted",
        severity=severity,
        message="it keeps tensors of every batch",
        advice=f"mend {code}",
        file="/home/me/train.py",
        line=line,
        holder="history" if line else None,
        bytes=3 << 20,
    )


def test_the_summary_begins_with_what_why_and_what_next() -> None:
    """A cause with a line says more than a graver one without; each severity is a word, the gravest comes first."""
    findings = [
        _finding("MG309", Severity.INFO, 3),
        _finding("MG301", Severity.WARNING, 7),
        _finding("MG501", Severity.CRITICAL),
    ]
    lines = render(Summary(device="cpu", ended="finished", findings=findings)).splitlines()
    assert lines[:3] == [
        "memguard on cpu: 0 batches, 1 critical finding and 1 warning.",
        "Why:   MG301 scripted at train.py:7 (`history`, 3.00 MiB).",
        "Next:  mend MG301",
    ]
    said = lines[lines.index("Findings:") + 1 :][:6:2]
    assert [line.split()[:2] for line in said] == [["critical", "MG501"], ["warning", "MG301"], ["info", "MG309"]]


def test_an_out_of_memory_error_is_the_why() -> None:
    """Its cause comes before any finding, and the first advice of the report is what to do next."""
    oom = {"batch": 4, "cause": "Size: too large.", "advice": [{"text": "make the batch 8"}], "rank": 0}
    lines = render(Summary(device="cpu", ended="an exception", oom=oom)).splitlines()
    assert lines[1:3] == ["Why:   Out of memory at batch 4: Size: too large.", "Next:  make the batch 8"]


def test_a_terminal_gets_wrapped_lines_and_colours() -> None:
    """Sentences are as wide as the terminal, severities are coloured; what a finding says can act on no terminal."""
    finding = replace(_finding("MG301", Severity.WARNING, 7), message="it keeps " + "tensors " * 20 + "\x1b[2J")
    summary = Summary(device="cpu", ended="finished", findings=[finding])
    text = render(summary, width=60, colours=True)
    assert "\x1b[33mwarning" in text and text.count("\x1b") == 2
    assert max(len(line.replace("\x1b[33m", "").replace("\x1b[0m", "")) for line in text.splitlines()) <= 60
    assert "\x1b" not in render(summary, width=60)


def test_a_notebook_shows_the_same_as_a_table() -> None:
    """Verdict, why, stages and findings, with whatever the program named escaped."""
    finding = replace(_finding("MG301", Severity.WARNING, 7), holder="<b>names</b>")
    stages = {Stage.TRAIN: StageSummary(batches=4, seconds=1.0, peak=Peak(allocated_bytes=1 << 20))}
    page = summary_html(Summary(device="cpu", stages=stages, findings=[finding], ended="finished"))
    assert "4 batches, 1 warning." in page and "<td>train</td><td>4</td>" in page and "Cost of memguard" in page
    assert "warning</b>" in page and "<code>&lt;b&gt;names&lt;/b&gt;</code>" in page and "<b>names" not in page


def test_a_run_that_goes_on_is_told_as_one() -> None:
    """The verdict of a run that is asked from within is one so far; nothing was killed."""
    summary = Summary(device="cpu", stages={Stage.TRAIN: StageSummary(batches=4)}, is_running=True)
    assert render(summary).splitlines()[0] == "memguard on cpu: 4 batches, no warnings so far."
