import base64
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from memguard.recording.reader import Recording, find_recordings
from memguard.report import heat_map as room
from memguard.report.heat_map import heat_map
from memguard.report.html_rows import normalise
from memguard.text.units import GIB
from tests.report.planted_faults import Layout, make_run
from tests.tensorboard_plugin.serving import Server


def of_run(logdir: Path) -> dict[str, Any]:
    recordings = [Recording.open(path) for path in find_recordings(logdir)]
    sessions = {each.session["rank"]: each.session for each in recordings}
    return heat_map({each.session["rank"]: normalise(each.rows) for each in recordings}, sessions)


def cells_of(told: dict[str, Any]) -> np.ndarray[Any, Any]:
    return np.frombuffer(base64.b64decode(told["cells"]), np.uint8).reshape(len(told["ranks"]), len(told["batch"]))


def test_the_map_has_a_row_for_each_rank_with_its_place(tmp_path: Path) -> None:
    """Ranks of the heavy stage are darker than the others, in every column that knows them."""
    make_run(tmp_path, "first stage", layout=Layout(ranks=64), batches=80)
    told = of_run(tmp_path)
    assert told["ranks"] == list(range(64)) and told["together"] == 1
    assert told["places"]["pp"] == [rank // 16 for rank in range(64)]
    assert list(told["places"]) == ["pp", "ep", "tp", "dp", "node"]
    cells = cells_of(told)
    assert np.median(cells[:16]) > np.median(cells[16:]) + 80
    assert cells.max() == 255 and told["high"] > told["low"] > 30 * GIB
    assert told["batch"] == sorted(told["batch"])


def test_a_rank_that_ended_early_has_no_cells_after_it(tmp_path: Path) -> None:
    """Unknown is 0, never low."""
    make_run(tmp_path, None, layout=Layout(ranks=16), batches=40)
    (path,) = (tmp_path / "memguard").glob("rank00003-*.bin")
    with open(path, "r+b") as file:
        file.truncate(4096 + 20 * 128)
    cells = cells_of(of_run(tmp_path))
    assert (cells[3, -10:] == 0).all() and (cells[2] > 0).all()


def test_very_many_ranks_share_rows_that_show_the_highest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No peak is lost where a row is of several ranks."""
    make_run(tmp_path, "a longer batch", layout=Layout(ranks=64), batches=40)
    monkeypatch.setattr(room, "_MOST_ROWS", 20)
    told = of_run(tmp_path)
    assert (told["together"], len(told["ranks"])) == (4, 16)
    usual = np.median(cells_of(told), axis=1)
    assert told["ranks"][int(usual.argmax())] == 36, "the row of ranks 36 to 39, rank 37 among them"


def test_the_tab_serves_map_and_verdicts(tmp_path: Path) -> None:
    """Both routes of the comparison have what the page shows."""
    make_run(tmp_path / "run", "last stage", layout=Layout(ranks=32), batches=80)
    server = Server(tmp_path)
    while server.json("/runs")["pending"]:
        pass
    heat = server.json("/heat", run="run")
    assert len(heat["ranks"]) == 32 and set(heat["places"]) >= {"pp", "tp"}
    (verdict,) = server.json("/worst", run="run")["worst"]["verdicts"]
    assert verdict["axes"] == {"pp": 3} and verdict["line"] == 88
