"""What assistants are told: forty questions with known answers, the limits of what may be read, and the server."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from memguard.assistants.directory import MOST_CHARACTERS, bounded
from memguard.assistants.server import make_server, tools_of
from memguard.cli import main
from memguard.errors import MemGuardError
from tests.allocator.recorded import SHARED
from tests.assistants.directory import MIB, make_directory

Tools = Mapping[str, Callable[..., dict[str, Any]]]
Question = tuple[str, str, dict[str, Any], Callable[[dict[str, Any]], Any], Any]

RING, SPLIT, TRAINING = (f"snapshots/{name}.pickle" for name in ("ring-buffer", "max-split", "leak"))
LEAK, CLEAN, OOM, RANKS, LENGTHS = "runs/leak", "runs/clean", "runs/too_large", "runs/ranks", "runs/lengths"
ATTENTION, TRAIN_128, TRAIN_512, SMALL, OLD = (
    f"snapshots/{name}.pickle"
    for name in (
        "attention-whole-process",
        "lm-2.7b-ctx128-train",
        "lm-2.7b-ctx512-train",
        "lm-small-forward-bf16",
        "old-format-2023",
    )
)


def _first_of_code(lines: list[dict[str, Any]]) -> str:
    """The first line that is one of a file's, without the folder: the backward pass has none."""
    return next(str(line["where"]).rpartition("/")[2] for line in lines if ".py:" in line["where"])


def _first(answer: dict[str, Any]) -> dict[str, Any]:
    return dict(answer["devices"][0])


ON_RUNS: list[Question] = [
    ("How many runs are there?", "list_runs", {}, lambda a: a["runs_in_all"], 5),
    (
        "Which runs ran out of memory?",
        "list_runs",
        {},
        lambda a: [each["run"] for each in a["runs"] if each["out_of_memory"]],
        [OOM],
    ),
    (
        "Which runs have a warning?",
        "list_runs",
        {},
        lambda a: {each["run"] for each in a["runs"] if each["findings"]["warning"]},
        {LEAK, RANKS},
    ),
    ("What does the newest run train on?", "list_runs", {"limit": 1}, lambda a: a["runs"][0]["device"], "cuda:0"),
    ("How many batches did the leak train?", "describe_run", {"run": LEAK}, lambda a: a["batches"], {"train": 30}),
    ("How large is its device?", "describe_run", {"run": LEAK}, lambda a: a["device_total_bytes"], 64 * MIB),
    ("How did the one that failed end?", "describe_run", {"run": OOM}, lambda a: "OutOfMemory" in a["ended"], True),
    (
        "At which batch is the peak of the run of many lengths, and how high?",
        "describe_run",
        {"run": LENGTHS},
        lambda a: (a["peak"]["batch"], a["peak"]["allocated_bytes"], a["peak"]["input_shapes"]),
        (77, 40 * MIB, [["tokens", [4, 40], "int64"]]),
    ),
    (
        "How high is its peak in validation?",
        "describe_run",
        {"run": LENGTHS},
        lambda a: a["peaks"]["validation"]["allocated_bytes"],
        4 * MIB,
    ),
    ("How much room was left?", "describe_run", {"run": LENGTHS}, lambda a: a["headroom_bytes"], 38 * MIB),
    (
        "Which variable leaks, and in which line?",
        "list_findings",
        {"run": LEAK, "code": "MG101"},
        lambda a: [(each["holder"], Path(each["file"]).name, each["line"]) for each in a["findings"]],
        [("history", "leak.py", 7)],
    ),
    (
        "Of how many batches are the graphs kept?",
        "list_findings",
        {"run": LEAK, "code": "retained-graph"},
        lambda a: a["findings"][0]["count"],
        30,
    ),
    (
        "How is that mended?",
        "list_findings",
        {"run": LEAK, "code": "MG101"},
        lambda a: "x.item()" in a["findings"][0]["advice"],
        True,
    ),
    ("Is anything wrong with the clean run?", "list_findings", {"run": CLEAN}, lambda a: a["count"], 0),
    (
        "Is anything critical in the run of four ranks?",
        "list_findings",
        {"run": RANKS, "at_least": "critical"},
        lambda a: a["count"],
        0,
    ),
    (
        "What was found on rank 2?",
        "list_findings",
        {"run": RANKS, "rank": 2},
        lambda a: [(each["code"], each["line"]) for each in a["findings"]],
        [("MG101", 48)],
    ),
    (
        "Why did it run out of memory?",
        "explain_out_of_memory",
        {"run": OOM},
        lambda a: (a["cause_kind"], a["site"]["line"], a["requested_bytes"]),
        ("size", 5, 256 * MIB),
    ),
    ("In which batch was that?", "explain_out_of_memory", {"run": OOM}, lambda a: a["batch"] in (7, 8), True),
    ("Did the clean run?", "explain_out_of_memory", {"run": CLEAN}, lambda a: a["out_of_memory"], False),
    (
        "Does memory rise from batch to batch in the leak?",
        "memory_over_batches",
        {"run": LEAK, "column": "allocated_end_bytes", "points": 10},
        lambda a: a["last"] > 5 * a["first"] and a["points"] == sorted(a["points"], key=lambda p: p["lowest"]),
        True,
    ),
    (
        "And in the clean run?",
        "memory_over_batches",
        {"run": CLEAN, "column": "allocated_end_bytes", "first_batch": 1},
        lambda a: a["highest"] == a["lowest"],
        True,
    ),
    (
        "How high is the peak between the batches 0 and 50?",
        "memory_over_batches",
        {"run": LENGTHS, "last_batch": 50},
        lambda a: (a["batches"], a["highest"]),
        (51, 16 * MIB),
    ),
    (
        "When do three stretches of the training peak?",
        "memory_over_batches",
        {"run": LENGTHS, "stage": "train", "points": 4},
        lambda a: [each["highest"] // MIB for each in a["points"]],
        [16, 16, 16, 40],
    ),
    (
        "Which batches need most?",
        "highest_batches",
        {"run": LENGTHS, "count": 2},
        lambda a: [(each["batch"], each["allocated_peak_bytes"] // MIB) for each in a["batches"]],
        [(77, 40), (1, 16)],
    ),
    (
        "Which inputs does the largest have?",
        "highest_batches",
        {"run": LENGTHS, "count": 1},
        lambda a: a["batches"][0]["input_shapes"],
        [["tokens", [4, 40], "int64"]],
    ),
    (
        "Whose was the memory at the peak?",
        "describe_batch",
        {"run": LENGTHS, "batch": 77},
        lambda a: max(a["owners"]["owners"], key=a["owners"]["owners"].__getitem__),
        "activations",
    ),
    (
        "Which rank is the worst, and why?",
        "compare_ranks",
        {"run": RANKS},
        lambda a: (a["worst_rank"]["rank"], "MG101" in a["worst_rank"]["why"][0], a["by_peak"][0]["rank"]),
        (2, True, 2),
    ),
    (
        "Which rank ended without a word?",
        "compare_ranks",
        {"run": RANKS},
        lambda a: [each["rank"] for each in a["by_peak"] if each["ended"] is None],
        [3],
    ),
    (
        "What is new in the leak against the clean run?",
        "compare_runs",
        {"run": LEAK, "earlier": CLEAN},
        lambda a: (a["peak_difference_bytes"] > MIB, "MG101" in {each["code"] for each in a["new_findings"]}),
        (True, True),
    ),
    (
        "What does MG302 mean?",
        "explain_rule",
        {"code": "MG302"},
        lambda a: a["rules"][0]["name"],
        "view-pins-storage",
    ),
    (
        "Would the run of many lengths fit a T4?",
        "would_it_fit",
        {"card": "t4", "run": LENGTHS},
        lambda a: a["fits"],
        True,
    ),
    (
        "Would it fit 32 MiB?",
        "would_it_fit",
        {"card": "32MiB", "run": LENGTHS},
        lambda a: (a["fits"], a["could_fit"]),
        (False, False),
    ),
    (
        "Is there a forecast, and does its step fit?",
        "list_forecasts",
        {},
        lambda a: [(each["file"], each["verdict"]) for each in a["forecasts"]],
        [("forecast.json", "fits")],
    ),
    (
        "Which line sets the forecast's peak?",
        "describe_forecast",
        {"file": "forecast.json"},
        lambda a: (Path(a["peak_line"]["file"]).name, a["peak_line"]["source"]),
        ("step.py", "optimizer.step()"),
    ),
]
ON_SNAPSHOTS: list[Question] = [
    (
        "How much did the ring buffer's program reserve?",
        "explain_snapshot",
        {"file": RING},
        lambda a: (_first(a)["space"]["reserved_bytes"], _first(a)["space"]["segments"]),
        (2_908_749_824, 14),
    ),
    (
        "Which line of the training holds most at its peak, the backward pass apart?",
        "explain_snapshot",
        {"file": TRAINING, "top": 5},
        lambda a: _first_of_code(_first(a)["trace"]["peak"]["lines"]),
        "train.py:100 in train",
    ),
    (
        "How many allocations does its history have?",
        "explain_snapshot",
        {"file": TRAINING},
        lambda a: (_first(a)["trace"]["actions"]["alloc"], _first(a)["trace"]["actions"]["segment_alloc"]),
        (292, 13),
    ),
    (
        "How much more does the run with a split limit reserve than the one with the ring buffer?",
        "compare_snapshots",
        {"file": SPLIT, "earlier": RING},
        lambda a: _first(a)["reserved_bytes"]["difference"],
        3_063_939_072 - 2_908_749_824,
    ),
    (
        "Is the replay exact?",
        "replay_snapshot",
        {"file": SPLIT},
        lambda a: (_first(a)["exact"], _first(a)["address_mismatches"], _first(a)["num_ooms"]),
        (True, 0, 4),
    ),
    (
        "Would the training have fitted 32 MiB?",
        "replay_snapshot",
        {"file": TRAINING, "capacity": "32MiB"},
        lambda a: _first(a)["what_if"]["num_ooms"] > 0,
        True,
    ),
]
ON_SHARED_SNAPSHOTS: list[Question] = [
    (
        "How much did the attention benchmark reserve?",
        "explain_snapshot",
        {"file": ATTENTION},
        lambda a: (_first(a)["space"]["reserved_bytes"] / MIB, _first(a)["space"]["segments"]),
        (3606.0, 9),
    ),
    (
        "Which line holds most at the peak of the training?",
        "explain_snapshot",
        {"file": TRAIN_128, "top": 5},
        lambda a: _first_of_code(_first(a)["trace"]["peak"]["lines"]),
        "optimizers.py:82 in step",
    ),
    (
        "How many allocations does its history have?",
        "explain_snapshot",
        {"file": TRAIN_128},
        lambda a: (_first(a)["trace"]["actions"]["alloc"], _first(a)["trace"]["actions"]["segment_alloc"]),
        (6771, 783),
    ),
    (
        "How much more does context 512 reserve than context 128?",
        "compare_snapshots",
        {"file": TRAIN_512, "earlier": TRAIN_128},
        lambda a: _first(a)["reserved_bytes"]["difference"] / MIB,
        1640.0,
    ),
    (
        "Is the replay exact?",
        "replay_snapshot",
        {"file": SMALL},
        lambda a: (_first(a)["exact"], _first(a)["address_mismatches"]),
        (True, 0),
    ),
    (
        "Would the attention benchmark have fitted 2 GiB?",
        "replay_snapshot",
        {"file": ATTENTION, "capacity": "2GiB"},
        lambda a: _first(a)["what_if"]["num_ooms"] > 0,
        True,
    ),
]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory that is asked about."""
    root = tmp_path_factory.mktemp("assistants")
    make_directory(root)
    return root


@pytest.fixture
def tools(root: Path) -> Tools:
    """The tools of that directory, by name; none has read anything yet."""
    return {tool.__name__: tool for tool in tools_of(root)}


def put(tools: Tools, questions: list[Question]) -> tuple[list[str], list[str]]:
    """The questions that were answered wrong, and those that took two seconds of this process's time or more."""
    wrong, slow = [], []
    for question, tool, arguments, picked, expected in questions:
        began = time.process_time()
        answer = tools[tool](**arguments)
        took = time.process_time() - began
        assert len(json.dumps(answer)) <= MOST_CHARACTERS, question
        try:
            told = picked(answer)
        except (LookupError, TypeError) as error:
            told = error
        if told != expected:
            wrong.append(f"{question} {told!r} instead of {expected!r}")
        if took >= 2:
            slow.append(f"{question} {took:.2f} s")
    print("\n".join([*wrong, *slow]))
    return wrong, slow


def test_forty_questions_have_their_known_answers(tools: Tools) -> None:
    """At least 38 of 40 are right, and each takes under two seconds."""
    questions = [*ON_RUNS, *ON_SNAPSHOTS]
    assert len(questions) == 40
    wrong, slow = put(tools, questions)
    assert len(wrong) <= 2 and not slow


@pytest.mark.skipif(not SHARED, reason="snapshots of real GPUs, which this repository may not hold")
def test_questions_on_snapshots_of_real_gpus_have_their_known_answers(tools: Tools) -> None:
    """Their figures are of those who recorded them."""
    assert put(tools, ON_SHARED_SNAPSHOTS) == ([], [])


@pytest.mark.parametrize(
    "path",
    ["..", "../outside", "/etc", "link", "runs/../../outside", "s3://bucket/run", "runs\0x", "snapshots/away.pickle"],
)
def test_nothing_outside_the_directory_is_read(path: str, tmp_path: Path) -> None:
    """Neither by a way up, nor through a link, nor by a URL; not even whether it exists is told."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "away.pickle").write_bytes(b"x")
    inside = tmp_path / "inside"
    (inside / "runs").mkdir(parents=True)
    (inside / "snapshots").mkdir()
    (inside / "link").symlink_to(tmp_path / "outside")
    (inside / "snapshots" / "away.pickle").symlink_to(tmp_path / "outside" / "away.pickle")
    tools = {tool.__name__: tool for tool in tools_of(inside, forecasts=True)}
    calls: list[tuple[str, dict[str, Any]]] = [
        ("describe_run", {"run": path}),
        ("explain_snapshot", {"file": path}),
        ("describe_forecast", {"file": path}),
        ("forecast_step", {"target": f"{path}:make"}),
    ]
    for tool, arguments in calls:
        with pytest.raises(MemGuardError, match=r"outside|no path"):
            tools[tool](**arguments)
    assert tools["list_snapshots"]()["snapshots"] == []


@pytest.mark.parametrize(
    ("tool", "arguments", "words"),
    [
        ("describe_run", {"run": "runs/none"}, "does not exist"),
        ("describe_batch", {"run": LENGTHS, "batch": 999}, "has no batch 999"),
        ("list_findings", {"run": RANKS, "rank": 9}, "the ranks are 0, 1, 2, 3"),
        ("list_findings", {"at_least": "bad"}, "info, warning, critical"),
        ("memory_over_batches", {"run": LENGTHS, "column": "x"}, "allocated_peak_bytes"),
        ("memory_over_batches", {"run": LENGTHS, "stage": "x"}, "train, "),
        ("explain_snapshot", {"file": "leak.py"}, "leak.py"),
        ("describe_forecast", {"file": "leak.py"}, "no forecast"),
        ("would_it_fit", {"card": "abacus", "run": LENGTHS}, "nvidia"),
    ],
)
def test_a_question_that_makes_no_sense_is_answered_with_what_would(
    tool: str, arguments: dict[str, Any], words: str, tools: Tools
) -> None:
    """The error names the valid ones."""
    with pytest.raises((MemGuardError, ValueError), match=words):
        tools[tool](**arguments)


def test_nothing_is_written(root: Path, tools: Tools) -> None:
    """Whatever is asked, the directory stays as it was."""
    before = {path: (path.stat().st_size, path.stat().st_mtime_ns) for path in root.rglob("*")}
    for _, tool, arguments, _, _ in ON_RUNS:
        tools[tool](**arguments)
    assert before == {path: (path.stat().st_size, path.stat().st_mtime_ns) for path in root.rglob("*")}


def test_a_run_that_goes_on_is_read_anew(root: Path, tools: Tools) -> None:
    """What was read is kept only until its files grow."""
    recording = next((root / CLEAN).rglob("*.bin"))
    before = tools["describe_run"](run=CLEAN)["batches"]["train"]
    data = recording.read_bytes()
    try:
        recording.write_bytes(data + data[-128:])
        assert tools["describe_run"](run=CLEAN)["batches"]["train"] == before + 1
    finally:
        recording.write_bytes(data)


@pytest.mark.parametrize(
    "answer",
    [
        {"text": "x" * 100_000},
        {"lines": list(range(100_000))},
        {"deep": [{"lines": ["y" * 1000] * 50, "more": {"text": "z" * 9000}} for _ in range(20)]},
        {str(number): "x" * 300 for number in range(1000)},
    ],
)
def test_an_answer_is_cut_to_its_length_and_says_so(answer: dict[str, Any]) -> None:
    """The longest lists and texts first."""
    told = bounded(answer)
    assert len(json.dumps(told)) <= MOST_CHARACTERS and told["shortened"]


def test_a_client_of_the_protocol_is_served(root: Path) -> None:
    """Over stdin and stdout of `memguard mcp`: the tools are listed as reading only, and answer; errors have words."""
    mcp = pytest.importorskip("mcp")

    async def ask() -> tuple[Any, Any, Any]:
        command = mcp.StdioServerParameters(
            command=sys.executable,
            args=["-W", "ignore", "-m", "memguard", "mcp", str(root)],
            env={**os.environ},
        )
        async with mcp.Client(mcp.stdio_client(command)) as client:
            listed = await client.list_tools()
            findings = await client.call_tool("list_findings", {"run": LEAK, "code": "MG101"})
            refused = await client.call_tool("describe_run", {"run": "../.."})
            return listed, findings, refused

    listed, findings, refused = asyncio.run(asyncio.wait_for(ask(), 60))
    assert {tool.name for tool in listed.tools} == {tool.__name__ for tool in tools_of(root)}
    assert all(tool.annotations.read_only_hint and tool.description for tool in listed.tools)
    assert json.loads(findings.content[0].text)["findings"][0]["holder"] == "history"
    assert refused.is_error and "is outside" in refused.content[0].text


def test_forecasts_are_made_only_where_that_was_asked_for(root: Path) -> None:
    """They run the project's code: such a tool does not claim to read only."""
    assert "forecast_step" not in {tool.__name__ for tool in tools_of(root)}
    asked = {tool.__name__: tool for tool in tools_of(root, forecasts=True)}
    told = asked["forecast_step"](target="step.py:make", device="24GiB", batch=16)
    assert told["verdict"] == "fits" and told["allocated_peak_bytes"] > 24 * MIB


def test_what_is_missing_is_said(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The SDK, or the directory."""
    assert main(["mcp", str(root / "nowhere")]) == 2
    assert "is not a directory" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "mcp.server.mcpserver", None)
    with pytest.raises(MemGuardError, match=r"torch-memguard\[mcp\]"):
        make_server(root)
