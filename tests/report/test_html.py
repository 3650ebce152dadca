from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from memguard.errors import RecordingError
from memguard.recording.reader import Recording, find_recordings
from memguard.recording.writer import RecordingWriter
from memguard.report.html import write_html
from tests.report.many_ranks import make_many
from tests.tensorboard_plugin.make_logdir import make_leak, make_long, make_ranks, session


def opened(logdir: Path) -> list[Recording]:
    return [Recording.open(path) for path in find_recordings(logdir)]


def embedded(path: Path) -> dict[str, object]:
    found = re.search(r'<script type="application/json" id="recording">(.*?)</script>', path.read_text(), re.DOTALL)
    assert found is not None
    return json.loads(found[1])


def test_the_file_needs_nothing_else(tmp_path: Path) -> None:
    """No address, no import, no file beside it; its own rules forbid all loading."""
    make_leak(tmp_path / "leak").close()
    write_html(opened(tmp_path / "leak"), tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text()
    assert "default-src 'none'" in text
    assert not re.search(r"<(link|img|iframe)|src=[\"']|^import |^export ", text, re.MULTILINE)
    assert "uPlot (v1.6.32)" in text


def test_a_hundred_thousand_batches_stay_under_one_and_a_half_megabytes(tmp_path: Path) -> None:
    """A long run with noise in every batch fits, all spikes among its rows."""
    make_long(tmp_path / "long", 100_000, 50)
    write_html(opened(tmp_path / "long"), tmp_path / "report.html")
    assert (tmp_path / "report.html").stat().st_size < 1_500_000
    assert embedded(tmp_path / "report.html")["told"]["0"]["rows"] == 100_000


def test_rows_beyond_the_budget_are_thinned_without_losing_the_peak(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where not all rows fit, the file says how many there were and keeps the highest."""
    monkeypatch.setattr("memguard.report.html._BUDGET", 60_000)
    make_long(tmp_path / "long", 100_000, 5)
    write_html(opened(tmp_path / "long"), tmp_path / "report.html")
    told = embedded(tmp_path / "report.html")["told"]["0"]
    assert told["total"] == 100_000
    assert 200 < told["rows"] < 20_000
    assert len(told["data"]) <= 60_000


def test_several_ranks_share_one_file(tmp_path: Path) -> None:
    """All ranks of a run are inside, with the band over them."""
    make_ranks(tmp_path / "ranks", 3)
    write_html(opened(tmp_path / "ranks"), tmp_path / "report.html")
    data = embedded(tmp_path / "report.html")
    assert list(data["told"]) == ["0", "1", "2"]
    assert set(data["band"]["worst"][600:]) == {2}


def test_of_very_many_ranks_those_that_matter_are_embedded(tmp_path: Path) -> None:
    """The file stays small and holds the highest, the lowest and the first; band and causes are those of all."""
    make_many(tmp_path / "many", ranks=40, batches=300, heavy=29)
    write_html(opened(tmp_path / "many"), tmp_path / "report.html")
    data = embedded(tmp_path / "report.html")
    assert (len(data["run"]["ranks"]), data["run"]["others"]) == (11, 29)  # the first is the lowest
    assert {"0", "29"} <= set(data["told"]) == {str(rank["rank"]) for rank in data["run"]["ranks"]}
    assert set(data["band"]["worst"]) == {29}
    assert data["worst"]["rank"] == 29 and "its inputs are 2.0 times as large" in data["worst"]["why"][0]
    assert (tmp_path / "report.html").stat().st_size < 1_500_000


def test_hostile_texts_stay_data(tmp_path: Path) -> None:
    """A finding, a run name or a post-mortem with markup cannot leave its place in the file."""
    name = "</script><script>alert(1)</script>"
    writer = RecordingWriter(tmp_path / "run", session())
    writer.line("oom", {"id": "x", "batch": 1, "message": name, "text": f"# {name}"})
    writer.close()
    write_html(opened(tmp_path / "run"), tmp_path / "report.html", name=name)
    text = (tmp_path / "report.html").read_text()
    assert "<script>alert" not in text
    assert text.count("</script>") == 2
    assert embedded(tmp_path / "report.html")["run"]["name"] == name


def test_an_empty_recording_still_makes_a_page(tmp_path: Path) -> None:
    """A run that was killed before its first batch gives a page that says so."""
    RecordingWriter(tmp_path / "run", session()).close()
    write_html(opened(tmp_path / "run"), tmp_path / "report.html")
    assert embedded(tmp_path / "report.html")["told"]["0"]["total"] == 0


def test_no_recording_is_an_error(tmp_path: Path) -> None:
    """Nothing to show is said in words."""
    with pytest.raises(RecordingError, match="no recording"):
        write_html([], tmp_path / "report.html")
