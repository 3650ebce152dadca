from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

import memguard
from memguard.integrations.peer_watch import IDLE_SECONDS, PeerWatch
from memguard.integrations.peers import Peers
from memguard.launch import Launch
from memguard.recording.reader import Recording, find_recordings
from memguard.recording.writer import RecordingWriter
from tests.integrations.programs import net


def report(logdir: Path, rank: int, batch: int) -> None:
    folder = logdir / "memguard" / f"oom-rank{rank:05d}-batch{batch}"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "report.json").write_text(json.dumps({"cause": "the activations do not fit.", "rank": rank}))


def recording(logdir: Path, rank: int, reason: str | None, *, pid: int | None = None, after: int | None = None) -> None:
    """Another rank's, of 16 batches, with its end; `after` is a rank that fell before."""
    told = {"rank": rank, "world_size": 4, "host": socket.gethostname(), "pid": pid or os.getpid()}
    writer = RecordingWriter(logdir, told)
    if after is not None:
        writer.line("peer", {"rank": after, "what": "killed"})
    if reason is not None:
        writer.line("end", {"reason": reason, "batches": 16})
    writer.close()


def gone() -> int:
    """The number of a process that is no more."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


class Heard:
    """A session's recorder, as far as a watch needs one."""

    def __init__(self) -> None:
        self.batch = 5
        self.lines: list[tuple[str, Any]] = []

    def line(self, kind: str, data: dict[str, Any]) -> None:
        self.lines.append((kind, data))


def watch(logdir: Path, local_rank: int = 0) -> tuple[PeerWatch, Heard]:
    heard = Heard()
    launch = Launch(rank=0, world_size=4, local_rank=local_rank)
    made = PeerWatch(cast(Any, SimpleNamespace(recorder=heard, launch=launch)), Peers(logdir, 0))
    made.begin()
    return made, heard


def test_a_rank_out_of_memory_is_seen_by_what_it_left(tmp_path: Path) -> None:
    """Its own report, those of earlier starts, and its own folder are none."""
    report(tmp_path, 3, 8)
    peers = Peers(tmp_path, 0)
    peers.begin()
    assert peers.out_of_memory() == []
    peers.announce(9)
    report(tmp_path, 2, 17)
    (fallen,) = peers.out_of_memory()
    assert (fallen.rank, fallen.batch, fallen.cause) == (2, 17, "the activations do not fit.")
    assert fallen.report == str(tmp_path / "memguard" / "oom-rank00002-batch17" / "report.md")
    peers.withdraw(9)
    assert not (tmp_path / "memguard" / "oom-rank00000-batch9").exists()


def test_a_killed_rank_of_this_node_is_seen_by_its_process(tmp_path: Path) -> None:
    """One that lives, one that ended with a word, and one of another host are not taken for killed."""
    peers = Peers(tmp_path, 0)
    peers.begin()
    sessions: list[tuple[int, dict[str, Any]]] = [(1, {"pid": gone()}), (2, {"pid": gone()}), (3, {"pid": os.getpid()})]
    for rank, session in [*sessions, (4, {"pid": gone(), "host": "elsewhere"})]:
        writer = RecordingWriter(tmp_path, {"rank": rank, "world_size": 5, "host": socket.gethostname(), **session})
        if rank == 2:
            writer.line("end", {"reason": "finished"})
        writer.close()
    assert [(each.rank, each.pid is not None) for each in peers.killed()] == [(1, True)]
    later = Peers(tmp_path, 3)
    later.begin()
    assert later.killed() == []


def test_a_rank_that_waits_says_for_whom(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only when no batch ends any more, once, and one rank of the node speaks for all."""
    now = [100.0]
    monkeypatch.setattr("memguard.integrations.peer_watch.monotonic", lambda: now[0])
    (speaks, heard), (silent, also) = watch(tmp_path), watch(tmp_path, local_rank=1)
    for each in (speaks, silent):
        each.look()
    report(tmp_path, 2, 17)
    now[0] += IDLE_SECONDS / 2
    speaks.look()
    assert heard.lines == []
    now[0] += IDLE_SECONDS
    for _ in range(3):
        speaks.look()
        silent.look()
    assert [line["rank"] for _, line in heard.lines] == [line["rank"] for _, line in also.lines] == [2]
    said = capsys.readouterr().err
    assert said.count("rank 2 ran out of memory in batch 17: the activations do not fit.") == 1


def test_an_error_that_comes_from_another_rank_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The note stands in the traceback (or on stderr before Python 3.11); an interrupt is nobody's fault."""
    made, heard = watch(tmp_path)
    report(tmp_path, 2, 17)
    made.failed(KeyboardInterrupt())
    assert heard.lines == []
    error = RuntimeError("Connection closed by peer")
    made.failed(error)
    made.failed(error)
    told = "".join(getattr(error, "__notes__", ())) or capsys.readouterr().err
    assert told.count("before rank 0 failed, rank 2 ran out of memory in batch 17") == 1
    assert [(kind, line["rank"], line["what"]) for kind, line in heard.lines] == [("peer", 2, "out of memory")]


def note_of(made: PeerWatch, error: Exception, capsys: pytest.CaptureFixture[str]) -> str:
    """What stands under an error's traceback."""
    made.failed(error)
    return "".join(getattr(error, "__notes__", ())) or capsys.readouterr().err


def test_a_rank_that_failed_by_itself_is_named_where_a_connection_is_lost(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Not the rank it drew along, nor one that the launcher ended; an error of this rank's own is not blamed on it."""
    recording(tmp_path, 3, "an exception: KeyError")
    made, heard = watch(tmp_path)
    recording(tmp_path, 1, "an exception: ValueError")
    recording(tmp_path, 2, "an exception: RuntimeError", after=1)
    assert note_of(made, ValueError("expected 3 channels"), capsys) == ""
    recording(tmp_path, 3, None, pid=gone())
    told = note_of(made, RuntimeError("[pair.cc] Connection closed by peer"), capsys)
    assert "before rank 0 failed, rank 1 ended with an exception: ValueError after batch 15." in told
    assert [(line["rank"], line["what"]) for _, line in heard.lines] == [(1, "an exception: ValueError")]


def test_a_rank_that_ran_out_of_batches_is_named_where_a_connection_is_lost(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It finished while this one went on; one that began anew since is not taken for it."""
    made, heard = watch(tmp_path)
    recording(tmp_path, 2, "finished")
    recording(tmp_path, 2, None)
    assert note_of(made, RuntimeError("Connection closed by peer"), capsys) == ""
    recording(tmp_path, 1, "finished")
    told = note_of(made, RuntimeError("Connection closed by peer"), capsys)
    assert "before rank 0 failed, rank 1 finished after batch 15 (have all ranks as many batches?)." in told
    assert [(line["rank"], line["what"]) for _, line in heard.lines] == [(1, "finished")]


def test_a_rank_that_waits_names_the_one_that_failed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once its process is gone; one that finished is waited for by nobody."""
    now = [100.0]
    monkeypatch.setattr("memguard.integrations.peer_watch.monotonic", lambda: now[0])
    made, _ = watch(tmp_path)
    recording(tmp_path, 1, "finished", pid=gone())
    recording(tmp_path, 2, "an exception: ValueError")
    made.look()
    now[0] += 2 * IDLE_SECONDS
    made.look()
    assert capsys.readouterr().err == ""
    recording(tmp_path, 3, "an exception: ValueError", pid=gone())
    made.look()
    said = capsys.readouterr().err
    fell, waits = "memguard: rank 3 ended with an exception: ValueError after batch 15.", "Rank 0 is waiting for a rank"
    assert said == f"{fell} {waits} that has failed.\n"


def test_a_session_of_several_ranks_watches_its_peers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error that leaves the loop after another rank fell is noted in this rank's recording."""
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "4")
    with pytest.raises(RuntimeError, match="closed by peer"), memguard.watch(net(), logdir=tmp_path, quiet=True):
        report(tmp_path, 3, 4)
        raise RuntimeError("closed by peer")
    (path,) = find_recordings(tmp_path)
    assert [line["rank"] for line in Recording.open(path).of_kind("peer")] == [3]
