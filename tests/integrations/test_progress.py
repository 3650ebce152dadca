import io
import re
from pathlib import Path

import pytest
import torch

import memguard
from memguard.integrations.progress import BatchLine, memory_text
from memguard.sinks.console import print_finding, print_text
from tests.fakes import finding


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def lines(stream: io.StringIO, folder: Path, *, times: list[float], progress: bool = True) -> str:
    clock = iter([time for time in times for _ in range(2)])
    with memguard.watch(device="cpu", logdir=folder, quiet=True, progress=progress) as guard:
        for _ in guard.batches([torch.ones(1)]):
            pass
        line = BatchLine(guard.session, 10, stream=stream, clock=lambda: next(clock))
        for index in range(len(times)):
            line.show(index)
        line.end()
    return stream.getvalue()


def test_a_terminal_shows_batch_and_memory_and_is_clean_at_the_end(tmp_path: Path) -> None:
    """One line, rewritten in place."""
    text = lines(Terminal(), tmp_path, times=[0.0, 1.0])
    assert "\rbatch 1/10  mem " in text and "\rbatch 2/10  mem " in text and "GiB" in text
    assert text.endswith(" \r")


def test_fast_batches_are_shown_a_few_times_a_second(tmp_path: Path) -> None:
    """The line costs nothing in a fast loop."""
    assert "batch 2/10" not in lines(Terminal(), tmp_path, times=[0.0, 0.05])


def test_a_log_file_gets_no_line(tmp_path: Path) -> None:
    """What is no terminal stays clean; so does one where progress is off."""
    assert lines(io.StringIO(), tmp_path, times=[0.0]) == ""
    assert lines(Terminal(), tmp_path, times=[0.0], progress=False) == ""


def test_a_finding_takes_the_place_of_the_line(tmp_path: Path) -> None:
    """The line is cleared before a message is printed, and comes back with the next batch."""
    stream = Terminal()
    with memguard.watch(device="cpu", logdir=tmp_path, quiet=True) as guard:
        line = BatchLine(guard.session, 10, stream=stream)
        line.show(0)
        shown = stream.getvalue()
        print_finding(finding(), stream)
        line.end()
    after = stream.getvalue()[len(shown) :]
    cleared, _, told = after.partition("memguard ")
    assert cleared == "\r" + " " * (len(shown) - 1) + "\r"
    assert "MG999" in told and told.endswith("stop it\n")


def test_a_message_goes_above_the_bar_of_tqdm() -> None:
    """The bar is cleared before it and drawn anew below it."""
    tqdm = pytest.importorskip("tqdm")
    stream = Terminal()
    with tqdm.tqdm(total=10, file=stream, mininterval=0) as bar:
        bar.update(3)
        shown = stream.getvalue()
        print_text("memguard: well", stream)
    after = stream.getvalue()[len(shown) :]
    assert re.match(r"\r *\rmemguard: well\n\r *30%", after), after


def test_a_size_is_shown_in_its_own_unit(tmp_path: Path) -> None:
    """A small peak on a large device is not 0.0."""
    with memguard.watch(device="virtual:2GiB", logdir=tmp_path, quiet=True) as guard:
        for _ in guard.batches([1]):
            kept = torch.ones(1 << 18)
        assert memory_text(guard.session) == "1.00 MiB/2.00 GiB"
        for _ in guard.batches([1]):
            kept = torch.ones(1 << 28)
        assert memory_text(guard.session) == "1.00/2.00 GiB"
        del kept
