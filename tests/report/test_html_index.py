from __future__ import annotations

from pathlib import Path

import numpy as np

from memguard.recording.format import HEADER_BYTES, RECORD_BYTES
from memguard.recording.reader import Recording
from memguard.report.html_index import RowIndex
from memguard.report.html_rows import ROW, decimate
from memguard.text.units import GIB
from tests.report.reading import reader
from tests.tensorboard_plugin.make_logdir import make_long, spikes


def index_of(path: Path) -> RowIndex:
    index = RowIndex(reader(path), path.name)
    index.refresh(path.stat().st_size)
    return index


def test_window_of_a_long_run_keeps_every_spike(tmp_path: Path) -> None:
    """All 50 one-batch spikes in 200,000 batches are among the rows of the first zoom level."""
    index = index_of(make_long(tmp_path, 200_000, 50))
    rows, total = index.window(None, None, 1000)
    high = rows["batch"][rows["allocated_peak_bytes"] == 17 * GIB]
    assert total == 200_000
    assert high.tolist() == spikes(50, 200_000)
    assert len(rows) < 6000


def test_zooming_in_reaches_full_resolution(tmp_path: Path) -> None:
    """A window with few rows is drawn in full, equal to the recording."""
    path = make_long(tmp_path, 50_000, 5)
    rows, total = index_of(path).window(30_000, 30_700, 1000)
    expected = Recording.open(path).rows[30_000:30_701]
    assert total == 701
    assert rows.tobytes() == expected.tobytes()


def test_window_bounds_follow_batch_numbers_not_positions(tmp_path: Path) -> None:
    """Where batch numbers have gaps, a window still means batch numbers."""
    rows = np.zeros(1000, dtype=ROW)
    rows["batch"] = np.arange(1000) * 10
    path = _written(tmp_path, rows)
    window, total = index_of(path).window(95, 200, 500)
    assert window["batch"].tolist() == list(range(100, 201, 10))
    assert total == 11


def test_index_grows_with_the_file_and_ignores_a_torn_record(tmp_path: Path) -> None:
    """Appended records are taken up; half a record waits for its other half."""
    path = make_long(tmp_path, 1000, 1)
    data = path.read_bytes()
    cut = HEADER_BYTES + 700 * RECORD_BYTES + 50
    path.write_bytes(data[:cut])
    index = index_of(path)
    assert index.count == 700
    path.write_bytes(data)
    assert index.refresh(path.stat().st_size)
    assert index.count == 1000
    assert index.window(None, None, 2000)[0].tobytes() == data[HEADER_BYTES:]


def test_index_holds_a_small_part_of_the_rows(tmp_path: Path) -> None:
    """What is kept of a long recording is a tenth of it at most; no view keeps the rest alive."""
    import tracemalloc

    path = make_long(tmp_path, 300_000, 5)
    tracemalloc.start()
    index = index_of(path)
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert index.count == 300_000
    assert held < 300_000 * RECORD_BYTES / 10


def test_bands_say_where_each_stage_ran(tmp_path: Path) -> None:
    """Stretches of one stage come with their first and last batch."""
    index = index_of(make_long(tmp_path, 11_000, 1))
    names = [(first, last, index.stages[code]) for first, last, code in index.bands()]
    assert names[:3] == [(0, 4799, "train"), (4800, 4999, "validation"), (5000, 9799, "train")]
    assert names[-1] == (10_000, 10_999, "train")


def test_decimation_keeps_whole_rows_in_order(tmp_path: Path) -> None:
    """Kept rows are rows of the file, ascending, the highest peak and the last row among them."""
    path = make_long(tmp_path, 30_000, 3)
    rows = Recording.open(path).rows
    kept = decimate(np.asarray(rows), 300)
    assert kept.tobytes() == np.asarray(rows)[kept["batch"]].tobytes()
    assert (np.diff(kept["batch"]) > 0).all()
    assert kept["allocated_peak_bytes"].max() == rows["allocated_peak_bytes"].max()
    assert kept["batch"][-1] == 29_999


def test_older_recordings_lack_columns_and_newer_ones_have_more(tmp_path: Path) -> None:
    """A missing column is unknown, an unknown one is left out."""
    from memguard.report.html_rows import normalise

    foreign = np.zeros(3, dtype=[("allocated_peak_bytes", "<i8"), ("of_the_future", "<f8")])
    foreign["allocated_peak_bytes"] = [5, 6, 7]
    rows = normalise(foreign)
    assert rows["allocated_peak_bytes"].tolist() == [5, 6, 7]
    assert rows["batch"].tolist() == [0, 1, 2]
    assert rows["reserved_bytes"].tolist() == [np.iinfo("<i8").min] * 3


def _written(folder: Path, rows: np.ndarray) -> Path:
    path = make_long(folder, 200, 1)
    path.write_bytes(path.read_bytes()[:HEADER_BYTES] + rows.tobytes())
    return path
