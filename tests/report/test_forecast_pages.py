"""A forecast as text, as a page and as a drawing says the same, and says when the verdict hangs on the unknown."""

from xml.etree import ElementTree

import pytest

from memguard.forecast.result import Forecast, LargestBatch, Line, Measurement, PlotPoint, Share, Suggestion, TableRow
from memguard.forecast.simulate import StepMemory
from memguard.report.forecast_html import forecast_html
from memguard.report.forecast_svg import forecast_image, forecast_svg
from memguard.report.forecast_text import forecast_text, matrix

GIB = 2**30


def told(**changes):
    step = StepMemory(
        allocated_start_bytes=GIB,
        allocated_peak_bytes=8 * GIB,
        allocated_end_bytes=2 * GIB,
        reserved_peak_bytes=9 * GIB,
    )
    line = Line(
        file="/home/u/train.py", line=7, function="step", source="x < y & z", module="head", phase="backward", bytes=GIB
    )
    phases = ["forward"] * 40 + ["backward"] * 50 + ["optimizer"] * 10
    plot = tuple(
        PlotPoint(event=i, phase=phase, owners={"parameters": GIB, "activations": min(i, 100 - i) * GIB // 10})
        for i, phase in enumerate(phases)
    )
    given = {
        "device": "A10G",
        "device_total_bytes": 10 * GIB,
        "context_bytes": GIB // 2,
        "reserved_by_others_bytes": 0,
        "torch_version": "2.15",
        "alloc_conf": "",
        "steps": (step, step),
        "allocated_peak_bytes": 8 * GIB,
        "reserved_peak_bytes": 9 * GIB,
        "allocated_peak_bytes_range": (7 * GIB, 8 * GIB),
        "reserved_peak_bytes_range": (8 * GIB, 9 * GIB),
        "range_sources": ("cuDNN chooses",),
        "verdict": "fits",
        "num_alloc_retries": 0,
        "out_of_memory": None,
        "peak_step": 1,
        "peak_phase": "backward",
        "peak_line": line,
        "owners": (Share(name="parameters", bytes=GIB), Share(name="activations", bytes=7 * GIB)),
        "modules": (Share(name="head", bytes=GIB),),
        "lines": (line,),
        "plot": plot,
        "notes": ("loss.item() gives 0",),
    }
    return Forecast(**{**given, **changes})


@pytest.mark.parametrize(
    ("verdict", "reserved", "said"),
    [
        ("fits", (8 * GIB, 11 * GIB), "at the upper end of the range it would need 1.50 GiB more"),
        ("does not fit", (9 * GIB, 12 * GIB), "at the lower end of the range it would fit, with 512 MiB left"),
    ],
)
def test_a_verdict_that_hangs_on_the_unknown_says_so(verdict, reserved, said):
    """In the text and on the page, with the bytes that decide."""
    found = told(verdict=verdict, reserved_peak_bytes_range=reserved)
    assert said in forecast_text(found)
    assert said in forecast_html(found)


def test_a_verdict_that_the_range_does_not_touch_says_nothing_of_it():
    """Both ends of the range lie on the same side."""
    assert "It is close" not in forecast_text(told())


def test_the_page_holds_all_that_the_text_says():
    """Escaped, with the tables that were asked for."""
    suggestion = Suggestion(
        name="fused optimizer",
        change="fused=True",
        cost="nothing",
        allocated_peak_bytes=GIB,
        reserved_peak_bytes=GIB,
        verdict="fits",
    )
    row = TableRow(batch=32, card="A10G", allocated_peak_bytes=GIB, reserved_peak_bytes=GIB, verdict="does not fit")
    page = forecast_html(told(suggestions=(suggestion,), table=(row,), largest_batch=0))
    for text in ("fused=True", "x &lt; y &amp; z", "cuDNN chooses", "loss.item() gives 0", "one sample is too much"):
        assert text in page
    assert "<script" not in page and "http" not in page


@pytest.mark.parametrize(("verdict", "enough"), [("does not fit", False), ("fits", True)])
def test_suggestions_say_whether_one_is_enough(verdict, enough):
    """Above them, in the text and on the page; each with its cost."""
    suggestion = Suggestion(
        name="expandable segments",
        change="expandable_segments:True",
        cost="nothing",
        allocated_peak_bytes=GIB,
        reserved_peak_bytes=GIB,
        verdict=verdict,
    )
    found = told(verdict="does not fit", suggestions=(suggestion,))
    for text in (forecast_text(found), forecast_html(found)):
        assert ("none of it alone makes the step fit" in text) is not enough
    assert "(expandable_segments:True; cost: nothing)" in forecast_text(found)


def test_a_step_that_does_not_fit_says_how_to_learn_what_batch_does():
    """Unless that was asked for."""
    assert "--batch 32" in forecast_text(told(verdict="does not fit"))
    assert "--batch 32" not in forecast_text(told(verdict="does not fit", batch=8, largest_batch=4))
    assert "--batch 32" not in forecast_text(told())


def test_without_a_gpu_both_ways_to_name_one_are_told():
    """The text is read after a call and after a command."""
    text = forecast_text(told(verdict=None, device_total_bytes=None))
    assert 'device="24GiB"' in text and "--device 24GiB" in text


def test_a_table_of_cards_has_no_batch_sizes():
    """Neither as text nor as a page; a card that cannot run the step says why."""
    fits = TableRow(batch=None, card="L4", allocated_peak_bytes=GIB, reserved_peak_bytes=GIB, verdict="fits")
    cannot = TableRow(
        batch=None, card="T4", allocated_peak_bytes=None, reserved_peak_bytes=None, verdict=None, reason="no kernel"
    )
    found = told(table=(fits, cannot))
    lines = forecast_text(found).splitlines()
    begin = next(index for index, line in enumerate(lines) if line.startswith("Reserved by card ("))
    rows = [" ".join(row.split()) for row in lines[begin + 1 : begin + 5]]
    assert rows == ["card reserved", "L4 1.00 GiB", "T4 -", "- cannot be forecast: no kernel"]
    page = forecast_html(found)
    assert "<h2>Reserved by card</h2>" in page and "cannot be forecast: no kernel" in page and ">batch" not in page


def test_cards_and_batch_sizes_are_one_matrix():
    """One row for each card, marked where it does not fit, with the largest batch at its end."""
    rows = [
        TableRow(batch=batch, card=card, allocated_peak_bytes=GIB, reserved_peak_bytes=batch * GIB, verdict=verdict)
        for card, batch, verdict in (
            ("T4", 8, "fits"),
            ("T4", 16, "does not fit"),
            ("L4", 8, "fits"),
            ("L4", 16, "fits only with retries"),
        )
    ]
    largest = (LargestBatch(card="T4", batch=9, batch_without_retries=9),)
    assert matrix(told(table=tuple(rows), largest_batches=largest)) == (
        ["card", "batch 8", "batch 16", "largest batch"],
        [["T4", "8.00 GiB", "16.0 GiB x", "9"], ["L4", "8.00 GiB", "16.0 GiB ~", "-"]],
    )


def test_workspaces_are_named_where_the_verdict_hangs_on_them():
    """The allocation at the peak, what did not fit, and the verdict without them."""
    said = forecast_text(
        told(
            verdict="fits only with retries",
            verdict_without_workspaces="fits",
            peak_workspace_bytes=GIB,
            refused_workspaces_bytes=(GIB, 3 * GIB),
        )
    )
    assert "The verdict hangs on cuDNN's workspaces: without them the step fits." in said
    assert "The allocation at the peak is cuDNN's workspace" in said
    assert "2 workspaces of convolutions, up to 3.00 GiB, did not fit" in said


@pytest.mark.parametrize(("peak", "said"), [(8 * GIB, False), (8 * GIB + GIB // 4, True)])
def test_the_page_says_why_owners_do_not_add_up_to_the_allocated_peak(peak, said):
    """The allocator's blocks end after what was asked for; where that makes a difference, it has a row of its own."""
    page = forecast_html(told(allocated_peak_bytes=peak))
    assert ("ends of blocks" in page and "256 MiB" in page) is said


def test_the_drawing_names_phases_peak_and_what_the_gpu_has():
    """The limit is drawn only where it is near the peak."""
    near, far = forecast_svg(told()), forecast_svg(told(device_total_bytes=80 * GIB))
    for text in ("forward", "backward", "optimizer", "peak 6.00 GiB", "9.50 GiB for PyTorch"):
        assert text in near
    assert "for PyTorch" not in far
    assert forecast_svg(told(plot=())) == ""


def test_the_image_needs_nothing_beside_itself():
    """Well-formed, with a ground, a title that says the verdict, and a colour for every owner in it."""
    image = forecast_image(told())
    root = ElementTree.fromstring(image)
    classes = {part.get("class") for part in root.iter() if part.get("class")}
    style = image[image.index("<style>") : image.index("</style>")]
    assert "fits on" in image and 'fill="#fff"' in image
    assert image.count("://") == 1  # the name of SVG itself
    assert all(f".{name}{{" in style for name in classes)


def measurement(**changes):
    given = {
        "batch": 32,
        "device": "A10G",
        "steps": (),
        "allocated_peak_bytes": 8 * GIB,
        "reserved_peak_bytes": 10 * GIB,
        "num_alloc_retries": 0,
        "out_of_memory": None,
        "replayed_allocated_peak_bytes": 8 * GIB,
        "replayed_reserved_peak_bytes": 9 * GIB,
    }
    return Measurement(**{**given, **changes})


@pytest.mark.parametrize("pages", [forecast_text, forecast_html])
def test_real_steps_are_told_with_how_far_their_replay_is_off(pages):
    """Both peaks as measured, and the one that differs."""
    found = told(measured=(measurement(),), source="replayed", operators=0)
    assert "8.00 GiB allocated, 10.0 GiB reserved; replayed: -10.0% reserved" in pages(found)
    assert "0 operators" not in pages(found)


@pytest.mark.parametrize("pages", [forecast_text, forecast_html])
def test_real_steps_that_ran_out_of_memory_are_told_so(pages):
    """What was asked is then scaled from smaller ones."""
    failed = measurement(out_of_memory="CUDA out of memory", replayed_reserved_peak_bytes=None)
    found = told(measured=(failed, measurement(batch=16), measurement(batch=8)), source="scaled")
    assert "step 1 at batch 32: out of memory, with 8.00 GiB allocated" in pages(found)
    assert "measured: the step itself." in pages(found)
