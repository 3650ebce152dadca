import io
from pathlib import Path

import torch

import memguard
from memguard.integrations.progress import BatchLine


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
