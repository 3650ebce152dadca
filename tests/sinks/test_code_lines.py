from __future__ import annotations

import linecache
import threading
from pathlib import Path
from typing import Any

import pytest
import torch

import memguard
from memguard.recording.reader import Recording, find_recordings
from memguard.records.stats import Run
from memguard.sinks.code_lines import LONGEST_LINE, MOST_PLACES, CodeLines, code_around
from tests.fakes import finding


def written(folder: Path, **options: Any) -> Recording:
    """A loop that keeps its graphs, recorded."""
    model, losses = torch.nn.Linear(64, 64), []
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with memguard.watch(model, optimizer, device="virtual:64MiB", logdir=folder, quiet=True, **options) as guard:
        for _ in guard.batches(range(40)):
            loss = model(torch.ones(128, 64)).relu().exp().sum()
            losses.append(loss)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return Recording.open(find_recordings(folder)[0])


def test_a_recording_keeps_the_code_around_each_finding(tmp_path: Path) -> None:
    """Five lines of the file as it is, the finding's own in the middle."""
    recording = written(tmp_path)
    found = next(each for each in recording.findings if each.code == "MG101")
    code = next(line for line in recording.of_kind("code") if line["line"] == found.line)
    assert (code["file"], code["first"], len(code["lines"])) == (__file__, found.line - 2, 5)
    assert code["lines"] == [line.rstrip() for line in Path(__file__).read_text().splitlines()[found.line - 3 :][:5]]
    assert "losses.append(loss)" in code["lines"][2]


def test_source_false_keeps_no_code(tmp_path: Path) -> None:
    """The finding is there, its code is not."""
    recording = written(tmp_path, source=False)
    assert any(each.code == "MG101" for each in recording.findings)
    assert recording.of_kind("code") == []
    assert "losses.append" not in "".join(map(str, recording.of_kind("code")))


@pytest.mark.parametrize(
    ("count", "line", "first", "shown"),
    [(9, 5, 3, 5), (9, 1, 1, 5), (9, 9, 5, 5), (3, 2, 1, 3), (9, 10, None, 0), (9, 0, None, 0)],
)
def test_the_lines_are_those_around(tmp_path: Path, count: int, line: int, first: int | None, shown: int) -> None:
    """At the edges of a file there are still five, of a shorter file all; of a line that is not there none."""
    file = tmp_path / "program.py"
    file.write_text("".join(f"line_{number}\n" for number in range(1, count + 1)))
    code = code_around(str(file), line)
    if first is None:
        assert code is None
    else:
        assert code is not None and code["first"] == first
        assert code["lines"] == [f"line_{number}" for number in range(first, first + shown)]


def test_a_cell_of_a_notebook_has_code_and_a_missing_file_none() -> None:
    """What linecache knows counts, whether or not it lies on a disk."""
    name = "<ipython-input-7-abc>"
    linecache.cache[name] = (10, None, ["a = 1\n", "b = 2\n"], name)
    try:
        assert code_around(name, 2) == {"file": name, "line": 2, "first": 1, "lines": ["a = 1", "b = 2"]}
    finally:
        del linecache.cache[name]
    assert code_around("/nowhere/at/all.py", 3) is None


def test_the_loop_reads_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Told and recorded on the loop's thread, the file is read by the one that calls `read`."""
    file, readers = tmp_path / "program.py", []
    file.write_text("x = 1\n" * 5)
    getlines = linecache.getlines

    def watched(*args: Any) -> list[str]:
        readers.append(threading.current_thread().name)
        return getlines(*args)

    monkeypatch.setattr(linecache, "getlines", watched)
    told: list[tuple[str, dict[str, Any]]] = []
    sink = CodeLines(lambda kind, data: told.append((kind, data)))
    sink.finding(finding(file=str(file), line=3))
    sink.records([], Run(device="cpu"))
    assert (told, readers) == ([], [])
    lane = threading.Thread(target=sink.read, name="lane")
    lane.start()
    lane.join()
    sink.records([], Run(device="cpu"))
    assert readers == ["lane"]
    assert [(kind, data["line"]) for kind, data in told] == [("code", 3)]


def test_what_is_kept_is_bounded(tmp_path: Path) -> None:
    """A thousand places of long lines come to less than 64 KiB; each place is written once."""
    file = tmp_path / "program.py"
    file.write_text(("x" * 5000 + "\n") * 1000)
    told: list[dict[str, Any]] = []
    sink = CodeLines(lambda kind, data: told.append(data))
    findings = [finding(file=str(file), line=line, holder=str(line)) for line in range(1, 1001)]
    for each in [*findings, *findings]:
        sink.finding(each)
    sink.conclude(findings)
    assert len({data["line"] for data in told}) == len(told) == MOST_PLACES
    assert all(len(line) == LONGEST_LINE for data in told for line in data["lines"])
    assert sum(len(line) for data in told for line in data["lines"]) < 64 << 10
