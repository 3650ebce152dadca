from __future__ import annotations

from pathlib import Path

import pytest
import torch

import memguard
from memguard.recording.reader import Recording, find_recordings
from memguard.report.html import write_html
from memguard.text.units import format_bytes
from tests.browser.chromium import Visit, ink, needs_chromium
from tests.report.planted_faults import Layout, make_run

pytestmark = [pytest.mark.browser, needs_chromium]


def written(demo: Path, run: str, folder: Path) -> tuple[Path, Recording]:
    recordings = [Recording.open(path) for path in find_recordings(demo / run)]
    write_html(recordings, folder / "report.html")
    return folder / "report.html", recordings[0]


def test_report_opens_from_disk_with_the_same_numbers(visit: Visit, demo: Path, tmp_path: Path) -> None:
    """The file alone shows the recording's numbers in every view, without error or violation."""
    path, recording = written(demo, "leak", tmp_path)
    page = visit.file(path)
    peak = int(recording.rows["allocated_peak_bytes"].max())
    assert page.inner_text("#tile-peak") == format_bytes(peak)
    assert page.inner_text("#peak-bytes") == format_bytes(peak)
    assert page.inner_text("#tile-batches") == f"{len(recording):,}"
    assert int(page.get_attribute(".panel.chart", "data-rows")) == len(recording)
    assert ink(page, ".plot canvas") > 20
    for number in (0, 500, 1200):
        page.evaluate("batch => document.querySelector('.plot').focus()", number)
    for view in ("findings", "oom", "timeline"):
        page.click(f"[data-view={view}]")
        page.wait_for_selector(f"body[data-ready={view}]")
    assert page.query_selector("[data-view=overview]") is None


def test_every_value_survives_the_packing(visit: Visit, demo: Path, tmp_path: Path) -> None:
    """Legend and readout step through batches and show the file's values, unknown ones included."""
    path, recording = written(demo, "leak", tmp_path)
    page = visit.file(path)
    page.focus(".plot")
    for _ in range(5):
        page.keyboard.press("[")
    last = len(recording) - 1
    page.wait_for_function(f"document.querySelector('.readout').dataset.batch === '{last - 5}'")
    record = recording.record(last - 5)
    for name in ("allocated_start_bytes", "allocated_peak_bytes", "allocated_end_bytes", "reserved_peak_bytes"):
        assert format_bytes(getattr(record, name)) in page.inner_text(f".key[data-column={name}]")


def test_report_of_a_long_run_zooms(visit: Visit, demo: Path, tmp_path: Path) -> None:
    """All 60,000 batches are inside: zooming shows them all."""
    path, _ = written(demo, "long", tmp_path)
    page = visit.file(path)
    page.focus(".plot")
    for _ in range(6):
        page.keyboard.press("+")
    page.wait_for_function("Number(document.querySelector('.panel.chart').dataset.total) < 1000")
    assert page.get_attribute(".panel.chart", "data-rows") == page.get_attribute(".panel.chart", "data-total")


def test_report_of_several_ranks_has_them_all(visit: Visit, demo: Path, tmp_path: Path) -> None:
    """Ranks can be chosen, also all of them at once."""
    path, _ = written(demo, "four-ranks", tmp_path)
    page = visit.file(path)
    assert page.input_value("#rank") == "2"
    page.select_option("#rank", "all")
    page.wait_for_selector(".readout[data-worst='2']")
    assert "Rank 2 has the highest peak" in page.inner_text("#worst-rank")


def test_phases_have_a_row_and_a_band_each(visit: Visit, tmp_path: Path) -> None:
    """What the program names of its loop: a table, and lanes below the chart; a run without phases has neither."""
    with memguard.watch(device="virtual:64MiB", logdir=tmp_path, quiet=True) as guard:
        for _ in guard.batches(range(6)):
            with memguard.phase("rollout"):
                torch.empty(3 * 2**20, dtype=torch.uint8)
            with memguard.phase("update"), memguard.phase("log-probs"):
                torch.empty(2**20, dtype=torch.uint8)
    write_html([Recording.open(path) for path in find_recordings(tmp_path)], tmp_path / "report.html")
    page = visit.file(tmp_path / "report.html")
    names = [cell.strip() for cell in page.locator("#phases tbody tr td:first-child").all_inner_texts()]
    assert names == ["rollout", "update", "update > log-probs"]
    assert "3.00 MiB" in page.inner_text("#phases")
    assert ink(page, "canvas[aria-label^='Phases over batches']") > 20


def test_without_phases_the_page_says_nothing_of_them(visit: Visit, demo: Path, tmp_path: Path) -> None:
    """No empty table, no empty lanes."""
    path, _ = written(demo, "long", tmp_path)
    assert visit.file(path).query_selector("#phases") is None


def test_a_report_of_many_ranks_has_the_map(visit: Visit, tmp_path: Path) -> None:
    """The file alone shows all ranks, rank by time, and stays small."""
    make_run(tmp_path / "fleet", "first stage", layout=Layout(ranks=64), batches=80)
    write_html((Recording.open(path) for path in find_recordings(tmp_path / "fleet")), tmp_path / "report.html")
    assert (tmp_path / "report.html").stat().st_size < 1_500_000
    page = visit.file(tmp_path / "report.html")
    page.select_option("#rank", "all")
    page.wait_for_selector("#heat[data-axis=pp][data-rows='64']")
    assert ink(page, "#heat") > 10
