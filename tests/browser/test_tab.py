from __future__ import annotations

import csv
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from memguard.recording.reader import Recording, find_recordings
from memguard.recording.writer import RecordingWriter
from memguard.records.findings import Severity
from memguard.records.stats import BatchRecord, Stage
from memguard.report.html import write_html
from memguard.report.html_snapshot import snapshot_map
from memguard.rules.explanation import differences
from memguard.text.units import GIB, MIB, format_bytes
from tests.allocator.recorded import committed_bytes
from tests.browser.chromium import Visit, ink, needs_chromium
from tests.report.planted_faults import Layout, make_run
from tests.tensorboard_plugin.make_logdir import SCRIPT, eval_finding, leak_finding, session
from tests.tensorboard_plugin.serving import serve

pytestmark = [pytest.mark.browser, needs_chromium]


def go(frame: Any, view: str) -> None:
    frame.click(f"[data-view={view}]")
    frame.wait_for_selector(f"body[data-ready={view}]")


def open_run(frame: Any, run: str) -> None:
    frame.select_option("#run", run)
    frame.wait_for_selector("body[data-ready=timeline]")
    frame.wait_for_selector("#peak-bytes")


def test_overview_tells_the_recordings_numbers(visit: Visit, url: str, demo: Path) -> None:
    """Peak, capacity and batches of each run are the recording's, to the unit shown."""
    frame = visit.tab(url)
    for run in ("leak", "long", "four-ranks"):
        recordings = [Recording.open(path) for path in find_recordings(demo / run)]
        peak = max(int(each.rows["allocated_peak_bytes"].max()) for each in recordings)
        text = frame.inner_text(f"tr[data-run='{run}']")
        assert format_bytes(peak) in text
        assert format_bytes(recordings[0].session["device_total_bytes"]) in text
        assert f"{len(recordings[0]):,}" in text
    assert ink(frame, ".panel canvas") > 5


def test_newcomer_sees_line_and_beginning_first(visit: Visit, url: str) -> None:
    """The first words of the leaking run are the line, what holds it, and the batch where it began."""
    frame = visit.alone(url)
    open_run(frame, "leak")
    headline = frame.inner_text(".headline h1")
    assert "train.py:41" in headline
    assert "losses" in headline
    assert "began in batch 620, detected in batch 632" in headline
    assert "train.py:41" in frame.inner_text(".chips")


def test_growth_that_fills_the_peak_comes_before_a_mere_warning(visit: Visit, tmp_path: Path) -> None:
    """The headline and the explained peak name what grew, by the run's own numbers, not a warning about bytes."""
    writer = RecordingWriter(tmp_path, session())
    for batch in range(120):
        size = GIB + batch * 20 * MIB
        record = {"allocated_start_bytes": size, "allocated_peak_bytes": size + 8 * MIB}
        writer.record(BatchRecord(batch=batch, stage=Stage.TRAIN, time=1.0, seconds=0.1, **record))
    small = leak_finding(10, 32).to_json()
    writer.line("finding", {**small, "severity": "warning", "bytes": 32, "bytes_per_batch": 4.0})
    grown = {"code": "MG301", "name": "outputs-accumulate", "severity": "info", "file": "/a/other.py", "line": 9}
    writer.line("finding", {**small, **grown, "holder": "samples", "bytes_per_batch": 20.0 * MIB})
    writer.close()
    with serve(tmp_path) as url:
        frame = visit.alone(url)
        assert "other.py:9" in frame.inner_text(".headline h1")
        assert "See MG301 in other.py:9" in frame.inner_text("#peak-lead")
        assert frame.eval_on_selector_all(".chip:not([hidden])", "all => all.length") == 2
        visit.page.goto("about:blank")


def test_a_device_that_tells_nothing_is_shown_as_unknown(visit: Visit, tmp_path: Path) -> None:
    """Unknown is never 0: a run on the CPU shows its host memory, and no allocated bytes."""
    writer = RecordingWriter(tmp_path, {"rank": 0, "device": "cpu"})
    for batch in range(20):
        writer.record(BatchRecord(batch=batch, stage=Stage.TRAIN, time=1.0, seconds=0.1, host_rss_bytes=GIB + batch))
    writer.close()
    with serve(tmp_path) as url:
        frame = visit.alone(url)
        assert frame.inner_text("#tile-peak") == "unknown"
        assert frame.inner_text("#tile-capacity") == "unknown"
        assert "does not tell" in frame.inner_text("#peak-lead")
        page = frame.inner_text("main")
        assert "in batch 19" not in page and "highest" not in page
        assert frame.eval_on_selector(".plot canvas", "canvas => canvas.clientHeight") < 120
        assert ink(frame, ".host canvas") > 5
        go(frame, "overview")
        assert "unknown" in frame.inner_text("tr[data-run='.']")
        visit.page.goto("about:blank")


def test_a_reading_of_the_device_from_before_is_left_out(visit: Visit, tmp_path: Path) -> None:
    """It is taken once a second: below what this process has reserved since, it tells nothing of the batch."""
    writer = RecordingWriter(tmp_path, session())
    for batch in range(20):
        sizes = {"reserved_peak_bytes": (1 + batch) * GIB, "allocated_peak_bytes": GIB, "device_used_bytes": 3 * GIB}
        writer.record(BatchRecord(batch=batch, stage=Stage.TRAIN, time=1.0, seconds=0.1, **sizes))
    writer.close()
    with serve(tmp_path) as url:
        frame = visit.alone(url)
        frame.focus(".plot")
        told = []
        for _ in range(3):
            told.append(frame.inner_text(".key[data-column=device_used_bytes]").split("\n")[-1])
            visit.page.keyboard.press("]")
            frame.wait_for_function(f"document.querySelector('.readout').dataset.batch === '{len(told)}'")
        told.append(frame.inner_text(".key[data-column=device_used_bytes]").split("\n")[-1])
        assert told == ["3.00 GiB", "3.00 GiB", "3.00 GiB", "unknown"]
        visit.page.goto("about:blank")


@pytest.mark.parametrize(("ended", "says"), [(False, "still to come"), (True, "it had no batch")])
def test_a_run_without_batches_says_if_one_is_to_come(visit: Visit, tmp_path: Path, ended: bool, says: str) -> None:
    """One that has ended waits for nothing."""
    writer = RecordingWriter(tmp_path, session())
    if ended:
        writer.line("end", {"reason": "closed"})
    writer.close()
    with serve(tmp_path) as url:
        page = visit.alone(url).inner_text("main")
        assert says in page and ("ended without a batch" in page) is ended
        visit.page.goto("about:blank")


def test_timeline_tells_the_recordings_numbers(visit: Visit, url: str, demo: Path) -> None:
    """Tiles, legend and the batch under the cursor show the recording's values."""
    recording = Recording.open(find_recordings(demo / "leak")[0])
    frame = visit.alone(url)
    open_run(frame, "leak")
    rows = recording.rows
    highest = recording.record(int(rows["allocated_peak_bytes"].argmax()))
    assert frame.inner_text("#tile-peak") == format_bytes(highest.allocated_peak_bytes)
    assert frame.inner_text("#tile-capacity") == format_bytes(24 * GIB)
    assert frame.inner_text("#tile-batches") == f"{len(rows):,}"
    assert frame.inner_text("#peak-bytes") == format_bytes(highest.allocated_peak_bytes)
    assert int(frame.get_attribute(".panel.chart", "data-rows")) == len(rows)
    box = frame.query_selector(".plot .u-over").bounding_box()
    visit.page.mouse.move(box["x"] + box["width"] * 0.4, box["y"] + 80)
    frame.wait_for_function("document.querySelector('.readout').dataset.batch < 700")
    batch = int(float(frame.get_attribute(".readout", "data-batch")))
    record = recording.record(batch)
    for name in ("allocated_start_bytes", "allocated_peak_bytes", "reserved_peak_bytes", "device_used_bytes"):
        assert format_bytes(getattr(record, name)) in frame.inner_text(f".key[data-column={name}]")
    readout = frame.inner_text(".readout")
    assert record.stage.value in readout
    assert f"epoch {record.epoch}" in readout
    assert f"[8, {recording.shapes(record.shapes)[0][1][1]}]" in readout
    assert ink(frame, ".plot canvas") > 20


def test_dragging_zooms_to_full_resolution(visit: Visit, url: str) -> None:
    """A drag over the chart fetches the window; when it is small, all of its batches are drawn."""
    frame = visit.alone(url)
    open_run(frame, "long")
    before = int(frame.get_attribute(".panel.chart", "data-total"))
    assert before == 60_000
    box = frame.query_selector(".plot .u-over").bounding_box()
    visit.page.mouse.move(box["x"] + 200, box["y"] + 60)
    visit.page.mouse.down()
    visit.page.mouse.move(box["x"] + 222, box["y"] + 60, steps=4)
    visit.page.mouse.up()
    frame.wait_for_function("Number(document.querySelector('.panel.chart').dataset.total) < 2000")
    assert frame.get_attribute(".panel.chart", "data-rows") == frame.get_attribute(".panel.chart", "data-total")
    frame.click("text=Whole run")
    frame.wait_for_function("document.querySelector('.panel.chart').dataset.total === '60000'")


def test_charts_share_cursor_and_strip(visit: Visit, url: str) -> None:
    """The cursor stands at one batch in both charts; dragging the strip below narrows the window and moves it."""
    frame = visit.alone(url)
    open_run(frame, "long")
    box = frame.query_selector(".plot .u-over").bounding_box()
    visit.page.mouse.move(box["x"] + 300, box["y"] + 60)
    moved = "selector => getComputedStyle(document.querySelector(selector)).transform"
    assert frame.evaluate(moved, ".plot .u-cursor-x") == frame.evaluate(moved, ".host .u-cursor-x") != "none"
    strip = frame.query_selector(".strip canvas")
    strip.scroll_into_view_if_needed()
    box = strip.bounding_box()
    x, y = box["x"] + 76, box["y"] + 20
    width = (box["width"] - 86) / 10

    def drag(begin: float, end: float) -> None:
        visit.page.mouse.move(x + begin * width, y)
        visit.page.mouse.down()
        visit.page.mouse.move(x + end * width, y, steps=5)
        visit.page.mouse.up()

    total = "Number(document.querySelector('.panel.chart').dataset.total)"
    drag(2, 4)
    frame.wait_for_function(f"Math.abs({total} - 12000) < 300")
    drag(3, 8)
    frame.wait_for_function(f"Math.abs({total} - 12000) < 300")
    frame.wait_for_function("Number(document.querySelector('.readout').dataset.batch) > 40000")


def test_keyboard_alone_suffices(visit: Visit, url: str) -> None:
    """Tabs, zoom, pan, the explained batch and the whole run are reached without a mouse."""
    frame = visit.alone(url)
    open_run(frame, "long")
    frame.focus(".plot")
    for key in ("+", "+", "+", "ArrowRight"):
        visit.page.keyboard.press(key)
    frame.wait_for_function("Number(document.querySelector('.panel.chart').dataset.total) < 9000")
    visit.page.keyboard.press("Enter")
    frame.wait_for_function("document.querySelector('section[aria-label=\"Explain the peak\"]').dataset.batch > 0")
    visit.page.keyboard.press("Home")
    frame.wait_for_function("document.querySelector('.panel.chart').dataset.total === '60000'")
    frame.focus("[data-view=timeline]")
    visit.page.keyboard.press("ArrowRight")
    visit.page.keyboard.press("Enter")
    frame.wait_for_selector("body[data-ready=findings]")


def test_clicking_a_batch_explains_it(visit: Visit, url: str, demo: Path) -> None:
    """A click shows that batch's peak, its owners, and what differed from the median batch."""
    frame = visit.alone(url)
    open_run(frame, "leak")
    box = frame.query_selector(".plot .u-over").bounding_box()
    panel = "section[aria-label='Explain the peak']"
    visit.page.mouse.click(box["x"] + box["width"] * 0.6, box["y"] + 120)
    frame.wait_for_function(
        "Number(document.querySelector(\"section[aria-label='Explain the peak']\").dataset.batch) < 900"
    )
    batch = int(float(frame.get_attribute(panel, "data-batch")))
    record = Recording.open(find_recordings(demo / "leak")[0]).record(batch)
    assert frame.inner_text("#peak-bytes") == format_bytes(record.allocated_peak_bytes)
    text = frame.inner_text(panel)
    assert format_bytes(record.allocated_start_bytes) in text
    assert "Parameters" in text
    assert "What differed from the median" in text


def test_long_shapes_leave_room_for_what_their_table_is_about(visit: Visit, tmp_path: Path) -> None:
    """At the width of a small screen each number of a batch and its name are in one line."""
    writer = RecordingWriter(tmp_path, session())
    shapes = [[f"input {number}", [8192, 256], "torch.float32"] for number in range(3)]
    writer.line("shapes", {"id": 0, "shapes": shapes})
    for batch in range(4):
        sizes = {"allocated_start_bytes": GIB, "allocated_peak_bytes": 2 * GIB}
        writer.record(BatchRecord(batch=batch, stage=Stage.TRAIN, time=1.0, seconds=0.1, shapes=0, **sizes))
    owners = {"parameters_bytes": GIB, "other_bytes": GIB}
    writer.line("owners", {"batch": 3, **owners})
    writer.close()
    visit.page.set_viewport_size({"width": 1200, "height": 900})
    with serve(tmp_path) as url:
        frame = visit.alone(url)
        frame.wait_for_selector(".differences")
        rows = frame.eval_on_selector_all(
            ".differences tbody tr", "all => all.map(row => [row.cells[0].innerText, row.offsetHeight])"
        )
        assert {name: height for name, height in rows if name != "Input" and height > 35} == {}
        visit.page.goto("about:blank")


def test_a_finding_zooms_the_timeline(visit: Visit, url: str) -> None:
    """Show on the timeline narrows the chart to the finding's batches and explains where it began."""
    frame = visit.alone(url)
    open_run(frame, "leak")
    go(frame, "findings")
    assert frame.eval_on_selector_all(".finding", "all => all.map(each => each.dataset.code)") == [
        "MG101",
        "MG201",
        "MG504",
    ]
    assert f"{SCRIPT}:41" in frame.inner_text("[data-code=MG101]")
    frame.click("[data-code=MG101] >> text=Show on the timeline")
    frame.wait_for_selector("body[data-ready=timeline]")
    assert int(frame.get_attribute(".panel.chart", "data-total")) < 900
    assert frame.get_attribute("section[aria-label='Explain the peak']", "data-batch") == "620"


def test_post_mortem_and_snapshot(visit: Visit, url: str, demo: Path) -> None:
    """The post-mortem shows cause, gain, replay and a download; its snapshot opens as a map with blocks."""
    frame = visit.alone(url)
    open_run(frame, "leak")
    go(frame, "oom")
    text = frame.inner_text("main")
    assert "a leak: the graphs of earlier batches" in text
    assert "expandable_segments:True" in text
    assert "Tried to allocate 512.00 MiB" in text
    with visit.page.expect_download() as download:
        frame.click("text=Download the snapshot")
    stored = next((demo / "leak").rglob("snapshot.pickle"))
    assert Path(download.value.path()).read_bytes() == stored.read_bytes()
    go(frame, "snapshot")
    frame.wait_for_selector(".map canvas")
    frame.wait_for_function("document.querySelector('.map canvas').height > 100")
    assert ink(frame, ".map canvas") > 4
    frame.hover(".map canvas", position={"x": 100, "y": 60})
    frame.wait_for_selector(".readout[data-size]")
    assert format_bytes(int(frame.get_attribute(".readout[data-size]", "data-size"))) in frame.inner_text(
        ".readout[data-size]"
    )


def test_a_dropped_snapshot_is_shown_and_a_bad_one_refused(visit: Visit, url: str, demo: Path, tmp_path: Path) -> None:
    """A chosen file becomes a map; a pickle that runs code is refused with words."""
    frame = visit.alone(url)
    go(frame, "snapshot")
    frame.set_input_files("#snapshot-file", str(next(demo.rglob("snapshot.pickle"))))
    frame.wait_for_selector("text=Lines that hold the most")
    bad = tmp_path / "bad.pickle"
    bad.write_bytes(b"cos\nsystem\n(S'true'\ntR.")
    frame.set_input_files("#snapshot-file", str(bad))
    frame.wait_for_selector("text=could run code")
    visit.complaints = [each for each in visit.complaints if "400" not in each]


def test_a_snapshot_tells_what_grows_with_each_step(visit: Visit, url: str, tmp_path: Path) -> None:
    """The lines that grow, by how much, and the largest blocks, as the file has them."""
    (tmp_path / "leak.pickle").write_bytes(committed_bytes("leak"))
    drawn = snapshot_map(committed_bytes("leak"))
    frame = visit.alone(url)
    go(frame, "snapshot")
    frame.set_input_files("#snapshot-file", str(tmp_path / "leak.pickle"))
    frame.wait_for_selector("#steps")
    file, line, function, each, grown = drawn["steps"]["growth"][0]
    text = " ".join(frame.inner_text("#steps").split())
    assert f"{drawn['steps']['count']} steps repeat" in text
    place = f"{Path(file).name}:{line} {function}()" if file else function
    assert f"{place} {format_bytes(each)} {format_bytes(grown)}" in text
    (tmp_path / "max-split.pickle").write_bytes(committed_bytes("max-split"))
    frame.set_input_files("#snapshot-file", str(tmp_path / "max-split.pickle"))
    panel = frame.locator(".panel", has_text="Largest blocks in use")
    panel.wait_for()
    drawn = snapshot_map(committed_bytes("max-split"))
    assert all(format_bytes(nbytes) in frame.inner_text("#steps") for _, nbytes in drawn["replays"])
    blocks = [segment["blocks"] for segment in drawn["segments"]]
    largest = max(size for flat in blocks for size, state in zip(flat[::4], flat[1::4], strict=True) if state != 2)
    assert panel.locator("tbody tr").first.inner_text().startswith(format_bytes(largest))


def test_all_ranks_show_the_worst(visit: Visit, url: str) -> None:
    """The band over ranks names the worst rank; a run with a finding opens at its rank."""
    frame = visit.alone(url)
    open_run(frame, "four-ranks")
    assert frame.input_value("#rank") == "2"
    assert "Rank imbalance" in frame.inner_text(".headline")
    frame.select_option("#rank", "all")
    frame.wait_for_selector(".readout[data-worst='2']")
    assert ink(frame, ".plot canvas") > 10
    assert "Rank 2 has the highest peak" in frame.inner_text("#worst-rank[data-rank='2']")
    rows = frame.eval_on_selector_all(".ranks tbody tr", "rows => rows.map(row => row.innerText)")
    assert len(rows) == 4 and rows[0].startswith("rank 2, highest")
    frame.click(".ranks tbody tr:nth-child(3) button")
    frame.wait_for_selector("#rank-note")
    assert "The highest peak of all ranks is that of rank 2" in frame.inner_text("#rank-note")


def test_runs_are_chosen_by_a_regular_expression(visit: Visit, url: str) -> None:
    """The filter narrows list and comparison; half-typed expressions disturb nothing."""
    frame = visit.alone(url)
    go(frame, "overview")
    frame.fill("#filter", "^l")
    frame.wait_for_function("document.querySelectorAll('tr[data-run]').length === 2")
    frame.wait_for_selector("section[data-runs='2']")
    frame.fill("#filter", "(")
    frame.wait_for_selector("#filter.wrong")
    frame.fill("#filter", "")
    frame.wait_for_function("document.querySelectorAll('tr[data-run]').length === 3")


def test_a_page_left_is_not_ready(visit: Visit, url: str) -> None:
    """From the click on, until the server has answered and the next view stands, the page says it is not ready."""
    frame = visit.alone(url)
    go(frame, "overview")
    held: list[Any] = []
    visit.page.route("**/details?**", lambda route: held.append(route))
    with visit.page.expect_request("**/details?**"):
        frame.click("[data-view=overview]")
    assert frame.get_attribute("body", "data-ready") == ""
    for route in held:
        route.continue_()
    visit.page.unroute("**/details?**")
    frame.wait_for_selector("body[data-ready=overview]")


def test_the_view_asked_for_last_is_the_one_that_follows(visit: Visit, tmp_path: Path) -> None:
    """A view whose numbers come late, after another was asked for, does not take new batches in that one's place."""
    writer = RecordingWriter(tmp_path / "live", session())
    record = BatchRecord(batch=0, stage=Stage.TRAIN, time=1.0, seconds=0.1, allocated_peak_bytes=GIB)
    writer.record(record)
    with serve(tmp_path) as url:
        frame = visit.alone(url)
        go(frame, "findings")
        held: list[Any] = []
        visit.page.route("**/series?**", lambda route: held.append(route))
        with visit.page.expect_request("**/series?**"):
            frame.click("[data-view=timeline]")
        go(frame, "overview")
        with visit.page.expect_response("**/series?**"):
            for route in held:
                route.continue_()
        visit.page.unroute("**/series?**")
        writer.record(replace(record, batch=1, allocated_peak_bytes=40 * GIB))
        frame.evaluate("setInterval(() => dispatchEvent(new Event('focus')), 200)")  # it looks again when focused
        frame.wait_for_selector("tr[data-run=live] >> text=40.0 GiB")
        visit.page.goto("about:blank")  # before its server goes
        writer.close()


def test_dark_mode_follows_tensorboard(visit: Visit, url: str) -> None:
    """Switching TensorBoard to dark redraws page and chart in the dark theme."""
    frame = visit.tab(url)
    open_run(frame, "leak")
    light = frame.evaluate("getComputedStyle(document.body).backgroundColor")
    visit.page.evaluate("document.body.classList.add('dark-mode')")
    frame.wait_for_selector("html[data-theme=dark]")
    frame.wait_for_selector("body[data-ready=timeline]")
    assert frame.evaluate("getComputedStyle(document.body).backgroundColor") != light
    assert ink(frame, ".plot canvas") > 20


def test_hostile_recordings_stay_text(visit: Visit, tmp_path: Path) -> None:
    """Markup in run names, findings, shapes and reports is shown, never run; a torn recording shows what it has."""
    evil = "<img src=x onerror=document.title='owned'><script>document.title='owned'</script>"
    writer = RecordingWriter(tmp_path / "<b>run" / "a&b=c#d?e", {**session(), "device_name": evil})
    writer.line("shapes", {"id": 0, "shapes": [[evil, [1], evil]]})
    for batch in range(50):
        writer.record(
            BatchRecord(batch=batch, stage=Stage.TRAIN, time=1.0, seconds=0.1, shapes=0, allocated_peak_bytes=GIB)
        )
    finding = {**leak_finding(7, GIB).to_json(), "holder": evil, "message": evil * 50, "file": f"/{evil}.py"}
    writer.line("finding", finding)
    writer.line(
        "oom", {"id": evil, "batch": 9, "text": f"# {evil}\n| {evil} |\n- {evil}", "replay": [7, None], "lines": 3}
    )
    writer.close()
    with open(writer.path, "ab") as file:
        file.write(b"torn")
    with serve(tmp_path) as url:
        frame = visit.alone(url)
        for view in ("findings", "oom", "snapshot", "overview", "timeline"):
            go(frame, view)
            assert frame.query_selector("img") is None
        assert "<img src=x" in frame.inner_text("main")
        assert "owned" not in (visit.page.title(), frame.title())
        assert frame.inner_text("#tile-batches") == "50"


def test_a_live_run_grows_without_a_reload(visit: Visit, tmp_path: Path) -> None:
    """The empty page fills when a run begins, and follows its batches; two tabs look at different runs."""
    with serve(tmp_path) as url:
        frame = visit.alone(url)
        assert "No recording here yet" in frame.inner_text("main")
        writer = RecordingWriter(tmp_path / "live", session())
        for batch in range(30):
            writer.record(
                BatchRecord(
                    batch=batch, stage=Stage.TRAIN, time=1.0, seconds=0.1, allocated_peak_bytes=GIB * (1 + batch)
                )
            )
        frame.evaluate("setInterval(() => dispatchEvent(new Event('focus')), 200)")  # it looks again when focused
        frame.wait_for_selector("#tile-batches >> text=30")
        writer.record(BatchRecord(batch=30, stage=Stage.TRAIN, time=1.0, seconds=0.1, allocated_peak_bytes=40 * GIB))
        frame.wait_for_selector("#tile-batches >> text=31")
        assert frame.inner_text("#tile-peak") == "40.0 GiB"
        visit.page.goto("about:blank")  # before its server goes
        writer.close()


def test_two_tabs_do_not_disturb_each_other(visit: Visit, url: str) -> None:
    """Each browser tab keeps its own run and view, also over a reload."""
    first = visit.alone(url)
    open_run(first, "leak")
    other = Visit(visit.page.context.new_page())
    second = other.alone(url)
    open_run(second, "long")
    visit.page.reload()
    first.wait_for_selector("body[data-ready=timeline]")
    assert first.input_value("#run") == "leak"
    assert second.input_value("#run") == "long"
    assert other.complaints == []


def test_the_tab_works_behind_a_path_prefix(visit: Visit, demo: Path) -> None:
    """No address in the page is absolute."""
    with serve(demo, prefix="/deep/er") as url:
        frame = visit.tab(url)
        open_run(frame, "leak")
        assert frame.inner_text("#tile-peak").endswith("GiB")


def test_the_devices_of_one_process_can_be_chosen(visit: Visit, tmp_path: Path) -> None:
    """A model on two devices: each device's own peak, under its name."""
    for lane, peak in ((0, GIB), (1, 3 * GIB)):
        told = {"rank": 0, "device": f"cuda:{lane}", "device_total_bytes": 24 * GIB, "lane": lane}
        writer = RecordingWriter(tmp_path, told)
        for batch in range(20):
            record = {"allocated_start_bytes": GIB, "allocated_peak_bytes": peak}
            writer.record(BatchRecord(batch=batch, stage=Stage.TRAIN, time=1.0, seconds=0.1, **record))
        writer.close()
    with serve(tmp_path) as url:
        frame = visit.alone(url)
        assert frame.inner_text("#tile-peak") == format_bytes(GIB)
        frame.select_option("#device", "1")
        frame.wait_for_function("document.querySelector('#tile-peak')?.innerText.startsWith('3.00')")
        visit.page.goto("about:blank")


def test_ranks_are_a_map_grouped_by_an_axis(visit: Visit, tmp_path: Path) -> None:
    """All ranks of a run as rank by time; the verdict above it; another axis regroups, and a click opens the rank."""
    make_run(tmp_path / "fleet", "last stage", layout=Layout(ranks=32), batches=80)
    with serve(tmp_path) as address:
        frame = visit.alone(address)
        frame.select_option("#rank", "all")
        frame.wait_for_selector("#heat[data-axis=pp][data-rows='32']")
        assert ink(frame, "#heat") > 10
        told = frame.inner_text("#verdicts li[data-where='pp=3 (the last stage)']")
        assert told.startswith("Only pp=3 (the last stage; ranks 24-31) grows, ") and "schedule.py:88" in told
        frame.select_option("#axis", "tp")
        frame.wait_for_selector("#heat[data-axis=tp]")
        frame.hover("#heat", position={"x": 400, "y": 5})
        assert "rank 0 (pp=0" in frame.inner_text("#heat-readout")
        frame.click("#heat", position={"x": 400, "y": 5})
        frame.wait_for_function("document.querySelector('#rank').value === '0'")
        frame.wait_for_selector("#peak-bytes")
        visit.page.goto("about:blank")  # before its server goes


def test_what_filled_the_peak_is_an_icicle_and_a_table(visit: Visit, url: str, demo: Path) -> None:
    """The parts make up the recorded peak; going into one narrows the table, which sorts; hovering tells the tensor."""
    frame = visit.alone(url)
    open_run(frame, "leak")
    frame.wait_for_selector("#contents")
    recording = Recording.open(find_recordings(demo / "leak")[0])
    told = recording.of_kind("contents")[-1]
    peak = int(recording.rows["allocated_peak_bytes"].max())
    assert int(frame.get_attribute("#contents", "data-sum")) == told["allocated_peak_bytes"] == peak
    level = frame.eval_on_selector_all(
        ".part[data-level='1']", "all => all.map(each => [each.dataset.name, Number(each.dataset.bytes)])"
    )
    kept = sum(row[6] for row in told["rows"] if row[0] == "kept")
    assert dict(level)["Kept from before the batch"] == kept
    assert abs(sum(nbytes for _, nbytes in level) - peak) < 0.02 * peak
    frame.click(".part[data-name='Saved activations']")
    assert frame.inner_text("#contents-readout").startswith("Saved activations")
    assert "losses" not in frame.inner_text("#contents table")
    frame.click("#contents th >> text=Module")
    assert frame.get_attribute("#contents th[aria-sort=ascending]", "scope") == "col"
    assert "model.layers.0.attention" in frame.inner_text("#contents tbody tr:first-child")
    frame.hover(".part[data-name^='GeluBackward0'] >> nth=0")
    assert "[8, 512, 3072] float32" in frame.inner_text("#contents-readout").replace("\n", " ")
    assert "model.py:88" in frame.inner_text("#contents-readout")


def test_an_address_leads_back_to_what_was_shown(visit: Visit, url: str) -> None:
    """Run, view, zoom and batch are in TensorBoard's own address: a reload keeps them, Back undoes them, links open."""
    frame = visit.tab(url)
    open_run(frame, "leak")
    visit.page.wait_for_timeout(900)  # what comes sooner is the same step
    go(frame, "findings")
    frame.click("[data-code=MG101] >> text=Show on the timeline")
    frame.wait_for_selector("body[data-ready=timeline]")
    address = visit.page.url
    assert address.startswith(f"{url}/") and "#memguard&" in address
    assert "p.memguard.run=leak" in address and "p.memguard.pinned=620" in address and "p.memguard.x0=" in address
    visit.page.go_back()
    frame.wait_for_selector("body[data-ready=timeline]")
    frame.wait_for_function("document.querySelector('.panel.chart')?.dataset.total === '1233'")
    visit.page.go_forward()
    frame.wait_for_function("Number(document.querySelector('.panel.chart')?.dataset.total) < 900")
    other = Visit(visit.page.context.new_page())
    other.page.goto(address)
    other.page.wait_for_selector("iframe", state="attached")
    second = other.page.frame_locator("iframe[src*=memguard], iframe")
    second.locator("section[data-batch='620']").wait_for()
    assert int(second.locator(".panel.chart").get_attribute("data-total")) < 900
    other.page.close()


def test_the_findings_page_shows_the_code_around_the_line(visit: Visit, url: str, demo: Path, tmp_path: Path) -> None:
    """In the tab and in the file: the recording's lines as text, numbered, the finding's own marked; else none."""
    recording = Recording.open(find_recordings(demo / "leak")[0])
    (code,) = recording.of_kind("code")
    write_html([recording], tmp_path / "report.html")
    for frame in (visit.alone(url), visit.file(tmp_path / "report.html")):
        if frame.query_selector("#run"):
            open_run(frame, "leak")
        go(frame, "findings")
        assert [line.rstrip("\n") for line in frame.locator(".code li").all_text_contents()] == [
            line or " " for line in code["lines"]
        ]
        assert frame.get_attribute(".code li", "data-line") == str(code["first"])
        assert frame.get_attribute(".code li.marked", "data-line") == str(code["line"])
        assert frame.locator("[data-code=MG201] .code").count() == 0


def test_began_and_detected_are_two_marks(visit: Visit, url: str, demo: Path) -> None:
    """A dashed line where the memory began to come, a solid one where it was detected; the legend names both."""
    frame = visit.alone(url)
    open_run(frame, "leak")
    told = Recording.open(find_recordings(demo / "leak")[0]).of_kind("finding")
    began, detected = next((each["since"], each["batch"]) for each in told if each["code"] == "MG101")
    drawn = """batch => {
        const canvas = document.querySelector('.plot canvas');
        const inner = document.querySelector('.plot .u-over').getBoundingClientRect();
        const left = inner.left - canvas.getBoundingClientRect().left;
        const at = Math.round((left + batch / 1232 * inner.width) * devicePixelRatio);
        const share = left => {
            const { data } = canvas.getContext('2d').getImageData(left, 40, 1, 200);
            let red = 0;
            for (let row = 0; row < 200; row += 1) red += data[4 * row] > data[4 * row + 1] + 60 ? 1 : 0;
            return red / 200;
        };
        return Math.max(share(at - 1), share(at), share(at + 1));
    }"""
    assert frame.evaluate(drawn, detected) > 0.95
    assert 0.3 < frame.evaluate(drawn, began) < 0.8
    assert frame.evaluate(drawn, (began + detected) // 2) < 0.1
    assert frame.locator(".signs [data-mark]").all_inner_texts() == ["detected", "began"]
    go(frame, "findings")
    text = frame.inner_text("[data-code=MG101]").replace("\n", " ")
    assert f"Began batch {began} Detected batch {detected}" in text
    assert "Began" not in frame.inner_text("[data-code=MG201]")


def test_findings_are_grouped_by_cause(visit: Visit, tmp_path: Path) -> None:
    """A line or a holder is one group, the worst first: its rules' examples, words to silence them, editor links."""
    writer = RecordingWriter(tmp_path / "run", session())
    for batch in range(30):
        record = {"allocated_start_bytes": GIB, "allocated_peak_bytes": 2 * GIB}
        writer.record(BatchRecord(batch=batch, stage=Stage.TRAIN, time=1.0, seconds=0.1, **record))
    first = leak_finding(10, GIB)
    cell = replace(first, file="<ipython-input-3-ab>", line=2, holder="outputs", severity=Severity.WARNING)
    nowhere = {"file": None, "line": None, "holder": None, "severity": Severity.INFO}
    for each in (
        first,
        eval_finding(12),
        cell,
        replace(first, file="/a b/c#d.py", line=5, holder="x", bytes=MIB),
        replace(first, code="MG303", name="previous-batch-alive", line=77, severity=Severity.WARNING),  # the holder
        replace(first, code="MG301", name="outputs-accumulate", holder="others", severity=Severity.INFO),  # the line
        *(replace(first, **nowhere, code=code, name=name) for code, name in (("MG501", "growth"), ("MG504", "room"))),
    ):
        writer.line("finding", each.to_json())
    writer.line("finding", {**first.to_json(), "code": "MG999", "name": "unheard-of", "severity": "info"})
    writer.close()
    with serve(tmp_path) as address:
        frame = visit.alone(address)
        go(frame, "findings")
        groups = "all => all.map(each => [each.dataset.cause, each.querySelectorAll('.finding').length])"
        assert frame.eval_on_selector_all(".cause", groups) == [
            ["MG101 MG303 MG301 MG999", 4],
            ["MG101", 1],
            ["MG101", 1],
            ["MG201", 1],
            ["MG501", 1],
            ["MG504", 1],
        ]
        group = frame.locator(".cause[data-cause^='MG101 ']")
        assert "4 findings of one cause" in group.inner_text()
        assert group.locator(".finding .badge").all_inner_texts() == ["MG303", "MG301", "MG999"]
        group.locator("summary").first.click()
        shown = group.locator(".example").first.locator(".line").all_text_contents()
        assert [line.rstrip() for line in shown] == differences(["MG101"])["MG101"].splitlines()
        assert group.locator(".example").count() == 3  # of a rule that nobody knows there is none
        assert 'with memguard.allow("MG101"):' in group.inner_text() and 'ignore=["MG101"]' in group.inner_text()
        assert frame.eval_on_selector_all(".finding a", "all => all.map(each => each.getAttribute('href'))") == [
            *(f"vscode://file/{SCRIPT.lstrip('/')}:{line}" for line in (41, 77, 41, 41)),
            "vscode://file/a%20b/c%23d.py:5",
            f"vscode://file/{SCRIPT.lstrip('/')}:63",
        ]
        visit.page.goto("about:blank")  # before its server goes


def test_rows_charts_and_findings_can_be_taken_away(visit: Visit, url: str, demo: Path) -> None:
    """The CSV has the recording's rows in view, the pictures open, a finding is copied as Markdown."""
    visit.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    frame = visit.alone(url)
    open_run(frame, "leak")
    saved = {}
    for kind in ("CSV", "PNG", "SVG"):
        with visit.page.expect_download() as download:
            frame.click(f"button.tool >> text={kind}")
        assert download.value.suggested_filename == f"memory-leak-rank0.{kind.lower()}"
        saved[kind] = Path(download.value.path()).read_bytes()
    rows = list(csv.DictReader(saved["CSV"].decode().splitlines()))
    recording = Recording.open(find_recordings(demo / "leak")[0])
    assert len(rows) == len(recording)
    assert [int(row["allocated_peak_bytes"]) for row in rows] == recording.rows["allocated_peak_bytes"].tolist()
    assert rows[0]["stage"] == "train"
    assert saved["PNG"].startswith(b"\x89PNG") and len(saved["PNG"]) > 10_000
    picture = ElementTree.fromstring(saved["SVG"])
    assert len(picture.findall("{http://www.w3.org/2000/svg}polyline")) == 4
    lines = [each for each in picture.iter("{http://www.w3.org/2000/svg}line") if each.get("data-batch")]
    assert [(each.get("class"), each.get("data-batch")) for each in lines] == [
        ("began", "620"),
        ("detected", "632"),
        ("detected", "405"),
    ]
    assert lines[0].get("stroke-dasharray") and not lines[1].get("stroke-dasharray")
    assert "capacity 24.0 GiB" in [each.text for each in picture.iter("{http://www.w3.org/2000/svg}text")]
    go(frame, "findings")
    frame.click("[data-code=MG101] >> text=Copy as Markdown")
    frame.wait_for_selector("text=Copied")
    text = frame.evaluate("navigator.clipboard.readText()")
    assert text.startswith("### MG101 retained-graph (critical)") and f"`{SCRIPT}:41`" in text


def test_two_runs_are_compared(visit: Visit, url: str, demo: Path) -> None:
    """The difference of the peaks first, then owners, findings and settings that differ; the address keeps the pair."""
    frame = visit.alone(url)
    open_run(frame, "leak")
    go(frame, "compare")
    frame.select_option("#other", "four-ranks")
    frame.wait_for_selector("body[data-ready=compare]")
    peaks = {
        run: max(int(Recording.open(path).rows["allocated_peak_bytes"].max()) for path in find_recordings(demo / run))
        for run in ("leak", "four-ranks")
    }
    assert int(frame.get_attribute("#difference", "data-bytes")) == peaks["leak"] - peaks["four-ranks"]
    text = frame.inner_text("main")
    assert format_bytes(peaks["leak"]) in frame.inner_text("#differences") and "peak allocated in train" in text
    assert frame.query_selector("li[data-code=MG101]") and "gone: " in frame.inner_text("li[data-code=MG603]")
    assert "world_size" in text
    visit.page.reload()
    frame.wait_for_selector("body[data-ready=compare]")
    assert frame.input_value("#other") == "four-ranks"


def test_a_snapshots_history_is_stacked_and_a_moment_shows_its_map(visit: Visit, url: str, demo: Path) -> None:
    """The history's peak is the trace's own; the map after an event has what was allocated then."""
    frame = visit.alone(url)
    open_run(frame, "leak")
    go(frame, "snapshot")
    frame.wait_for_selector("#history canvas")
    data = next((demo / "leak").rglob("snapshot.pickle")).read_bytes()
    history = snapshot_map(data)["history"]
    assert int(frame.get_attribute("#history", "data-peak")) == max(history["totals"])
    assert ink(frame, "#history canvas") > 6
    frame.select_option("#history-by", "kinds")
    frame.wait_for_selector("#history .legend >> text=forward and other lines")
    box = frame.query_selector("#history .u-over").bounding_box()
    visit.page.mouse.click(box["x"] + box["width"] * 0.4, box["y"] + 60)
    frame.wait_for_selector("#moment >> text=The map after event")
    event = int(frame.inner_text("#moment").partition("event ")[2].partition(", with")[0].replace(",", ""))
    at = min(range(len(history["events"])), key=lambda at: abs(history["events"][at] - event))
    assert frame.inner_text("#map-allocated") == format_bytes(history["totals"][at])


def test_the_list_of_runs_sorts_and_says_when_nothing_matches(visit: Visit, url: str) -> None:
    """A click on a heading sorts; an empty result and a bad expression are explained in words, with a way back."""
    frame = visit.alone(url)
    go(frame, "overview")
    names = "all => all.map(row => row.dataset.run)"
    frame.click("th >> text=Peak >> nth=1")
    assert frame.eval_on_selector_all("tr[data-run]", names) == ["four-ranks", "leak", "long"]
    frame.click("th >> text=Batches")
    assert frame.eval_on_selector_all("tr[data-run]", names) == ["long", "leak", "four-ranks"]
    frame.fill("#filter", "(")
    frame.wait_for_selector("text=This is no regular expression yet")
    frame.fill("#filter", "nothing like it")
    frame.wait_for_selector("text=No run has a name that matches")
    frame.click("text=Show all runs")
    frame.wait_for_selector("tr[data-run=leak]")


def test_wheel_and_axis(visit: Visit, url: str) -> None:
    """Ctrl and the wheel zoom about the pointer, as the hint says; the axis can tell steps or the time."""
    frame = visit.alone(url)
    open_run(frame, "leak")
    assert "Ctrl and the wheel" in frame.inner_text(".hint")
    frame.select_option("#axis", "optimizer_steps")
    frame.select_option("#axis", "time")
    frame.hover(".plot .u-over", position={"x": 300, "y": 100})
    visit.page.keyboard.down("Control")
    visit.page.mouse.wheel(0, -200)
    visit.page.keyboard.up("Control")
    frame.wait_for_function("Number(document.querySelector('.panel.chart').dataset.total) < 1100")


@pytest.mark.parametrize("width", [400, 900, 1440])
def test_a_screen_of_any_width_shows_the_whole_page(visit: Visit, url: str, width: int) -> None:
    """No view is wider than the screen; the header takes two lines at most, with the shown view's tab in sight."""
    visit.page.set_viewport_size({"width": width, "height": 900})
    frame = visit.alone(url)
    open_run(frame, "leak")
    for view in ("timeline", "findings", "oom", "snapshot", "compare", "overview"):
        go(frame, view)
        assert frame.evaluate("document.documentElement.scrollWidth") <= width, view
        tab, strip = (frame.locator(where).bounding_box() for where in (f"[data-view={view}]", ".bar nav"))
        assert strip["x"] - 1 <= tab["x"] and tab["x"] + tab["width"] <= strip["x"] + strip["width"] + 1, view
        assert frame.locator(".bar").bounding_box()["height"] <= 2 * 50
        assert strip["height"] <= 50


def test_a_snapshot_without_a_history_fits_a_narrow_screen(visit: Visit, demo: Path, tmp_path: Path) -> None:
    """What to call for one, in long words, is broken into lines; and it is said once."""
    with serve(tmp_path) as url:
        visit.page.set_viewport_size({"width": 400, "height": 900})
        frame = visit.alone(url)
        go(frame, "snapshot")
        bare = pickle.loads(next(demo.rglob("snapshot.pickle")).read_bytes())
        bare["device_traces"] = []
        for block in (block for segment in bare["segments"] for block in segment["blocks"]):
            block["frames"] = []
        frame.set_input_files("#snapshot-file", {"name": "bare.pickle", "mimeType": "", "buffer": pickle.dumps(bare)})
        frame.wait_for_selector(".advice-list")
        assert frame.inner_text(".advice-list").count("_record_memory_history") == 1
        assert frame.evaluate("document.documentElement.scrollWidth") <= 400
        visit.page.goto("about:blank")  # before its server goes


@pytest.mark.parametrize("width", [400, 1440])
def test_flags_stand_on_their_lines(visit: Visit, url: str, demo: Path, width: int) -> None:
    """Each begins or ends where its finding was detected, however narrow the chart is."""
    visit.page.set_viewport_size({"width": width, "height": 900})
    frame = visit.alone(url)
    open_run(frame, "leak")
    recording = Recording.open(find_recordings(demo / "leak")[0])
    plot = frame.locator(".plot .u-over").bounding_box()
    for code in ("MG101", "MG201"):
        batch = min(each["batch"] for each in recording.of_kind("finding") if each["code"] == code)
        at = plot["x"] + batch / (len(recording) - 1) * plot["width"]
        flag = frame.locator(f".chip >> text={code}").bounding_box()
        assert min(abs(flag["x"] - at), abs(flag["x"] + flag["width"] - at)) < 2


def test_a_snapshot_needs_no_recording(visit: Visit, demo: Path, tmp_path: Path) -> None:
    """Where nothing was recorded yet, a file can be dropped all the same."""
    with serve(tmp_path) as url:
        frame = visit.alone(url)
        go(frame, "snapshot")
        frame.set_input_files("#snapshot-file", str(next(demo.rglob("snapshot.pickle"))))
        frame.wait_for_selector("#history canvas")
        visit.page.goto("about:blank")  # before its server goes


def test_sizes_are_the_same_text_as_in_the_terminal(visit: Visit, url: str) -> None:
    """Halves too, which Python gives to the even digit: 146.5 KiB, 12.25 MiB."""
    sizes = [0, 1023, 1536, 150_016, 151_040, 12 * MIB + MIB // 4, MIB + MIB // 8, 99 * MIB, 24 * GIB - 1, 3**30]
    frame = visit.alone(url)
    script = "async (sizes) => sizes.map((await import('/data/plugin/memguard/static/format.js')).formatBytes)"
    texts = frame.evaluate(script, sizes)
    assert texts == [format_bytes(size) for size in sizes]
