from __future__ import annotations

import json
import pickle
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from memguard.cli import main
from tests.allocator.recorded import committed_bytes
from tests.allocator.test_snapshot_reader import HOSTILE, PLAIN, Runs


@pytest.fixture
def leak(tmp_path: Path) -> str:
    (tmp_path / "leak.pickle").write_bytes(committed_bytes("leak"))
    return str(tmp_path / "leak.pickle")


@pytest.fixture
def streams(tmp_path: Path) -> str:
    (tmp_path / "streams.pickle").write_bytes(committed_bytes("streams"))
    return str(tmp_path / "streams.pickle")


def read_json(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert main(["snapshot", *arguments, "--json"]) == 0
    return dict(json.loads(capsys.readouterr().out))


def test_it_says_what_a_person_would_ask(leak: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Capacity by state, the peak with its lines, growth between steps, and what to do."""
    assert main(["snapshot", leak, "--top", "3"]) == 0
    text = capsys.readouterr().out
    for part in ("Reserved: 56.0 MiB", "active_allocated", "Largest free block", "At the peak", "At the end"):
        assert part in text
    assert "11 repeating steps" in text
    assert "+1.50 MiB a step" in text
    assert "train.py" in text
    assert "What to do:" in text


def test_json_has_the_same_under_stable_keys(leak: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The JSON form names devices, space, lines, trace and advice."""
    data = read_json(capsys, leak, "--top", "2")
    (device,) = data["devices"]
    assert data["version"] == 1
    assert device["space"]["reserved_bytes"] == 56 << 20
    assert device["trace"]["actions"]["alloc"] == 292
    assert len(device["trace"]["lines"]) == 2
    assert device["trace"]["steps"]["growth"][0]["bytes_per_step"] == 3 << 19
    assert "replay" not in data


def test_replay_adds_its_figures(streams: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The keys of the contract, and nothing hypothetical unless asked."""
    result = read_json(capsys, streams, "--replay")["replay"]
    assert result["exact"] is True
    assert (result["address_mismatches"], result["segment_mismatches"]) == (0, 0)
    assert result["events"] == 762
    assert result["reserved_bytes"] == result["recorded_reserved_bytes"] <= result["reserved_peak_bytes"]
    assert result["num_ooms"] == 8
    assert "what_if" not in result


def test_another_configuration_and_card_are_compared(streams: str, capsys: pytest.CaptureFixture[str]) -> None:
    """``--alloc-conf`` and ``--capacity`` say what would have happened, in JSON and in words."""
    options = ["--replay", "--alloc-conf", "expandable_segments:True", "--capacity", "64GiB"]
    other = read_json(capsys, streams, *options)["replay"]["what_if"]
    assert (other["num_ooms"], other["capacity_bytes"]) == (0, 64 << 30)
    assert main(["snapshot", streams, *options]) == 0
    text = capsys.readouterr().out
    assert "With expandable_segments:True on a card with 64.0 GiB" in text
    assert "the allocations that failed would have fitted" in text


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--top", "0"], "--top"),
        (["--alloc-conf", "expandable:True"], "expandable"),
        (["--capacity", "many"], "many"),
    ],
)
def test_wrong_options_are_named(
    leak: str, arguments: list[str], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line on stderr with the value, and exit code 2."""
    assert main(["snapshot", leak, *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert named in captured.err
    assert captured.err.count("\n") == 1


def test_a_file_without_history_cannot_be_replayed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It says how to record one."""
    path = tmp_path / "bare.pickle"
    path.write_bytes(pickle.dumps({"segments": PLAIN["segments"]}))
    assert main(["snapshot", str(path)]) == 0
    assert "_record_memory_history" in capsys.readouterr().out
    assert main(["snapshot", str(path), "--replay"]) == 2
    assert "_record_memory_history" in capsys.readouterr().err


def test_an_empty_snapshot_is_no_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A process that never touched the device."""
    path = tmp_path / "empty.pickle"
    path.write_bytes(pickle.dumps({"segments": [], "device_traces": []}))
    assert main(["snapshot", str(path)]) == 0
    assert "no memory and no history" in capsys.readouterr().out


def test_hostile_files_cost_one_line_and_little_memory(tmp_path: Path) -> None:
    """Refused with exit code 2 in a process with 1 GiB of address space; nothing was run."""
    mark = tmp_path / "mark"
    files = {**HOSTILE, "system": pickle.dumps(Runs(exec, f"open({str(mark)!r}, 'w')"))}
    for number, data in enumerate(files.values()):
        (tmp_path / f"{number}.pickle").write_bytes(data)
    code = (
        "import sys\nfrom memguard.cli import main\n"
        "for path in sys.argv[1:]:\n    assert main(['snapshot', path]) == 2, path\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *(str(tmp_path / f"{number}.pickle") for number in range(len(files)))],
        capture_output=True,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30)),
    )
    assert done.returncode == 0, done.stderr
    lines = done.stderr.splitlines()
    assert len(lines) == len(files)
    assert all(line.startswith("memguard: ") for line in lines)
    assert not mark.exists()
