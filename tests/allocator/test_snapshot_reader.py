from __future__ import annotations

import gc
import io
import os
import pickle
import pickletools
import random
import struct
from pathlib import Path
from typing import Any

import pytest

from memguard.allocator.snapshot import ACTIVE, INACTIVE, PENDING, Frame
from memguard.allocator.snapshot_reader import load_plain_pickle, parse_snapshot, read_snapshot
from memguard.errors import SnapshotError
from tests.allocator.recorded import SHARED, committed_bytes

FRAME = {"filename": "/home/user/train.py", "line": 7, "name": "main"}
BLOCKS = [
    {"address": 512, "size": 1024, "requested_size": 1000, "state": "active_allocated", "frames": [FRAME]},
    {"address": 1536, "size": 2097152 - 1024, "requested_size": 0, "state": "inactive", "frames": []},
]
SEGMENT = {
    "device": 0,
    "address": 512,
    "total_size": 2097152,
    "stream": 0,
    "segment_type": "small",
    "segment_pool_id": (0, 0),
    "is_expandable": False,
    "blocks": BLOCKS,
}
ENTRY = {"action": "alloc", "addr": 512, "size": 1000, "stream": 0, "time_us": 5, "frames": [FRAME]}
PLAIN = {
    "segments": [SEGMENT],
    "device_traces": [[ENTRY, {**ENTRY, "action": "oom", "device_free": 3}], []],
    "allocator_settings": {"expandable_segments": False, "garbage_collection_threshold": 0.5, "x": None, "y": b"z"},
    "external_annotations": [{"name": "Optimizer.step#SGD", "stage": "START", "device": 0, "time_us": 9}],
}


class Runs:
    """Would leave a mark if it were unpickled."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.call = (function, arguments)

    def __reduce__(self) -> Any:
        return self.call


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_every_protocol_gives_what_pickle_gives(protocol: int) -> None:
    """All plain values come out as the pickle module would give them."""
    value = {
        **PLAIN,
        "more": [-1, 255, 65536, -(2**31), 2**40, 2**63, 1.5, True, False, None, (), (1,), "ü\n", "\ud800"],
    }
    value["many"] = [{"n": n} for n in range(2500)]
    if protocol < 3:  # bytes need a global there, which nothing in a snapshot is worth
        value["allocator_settings"] = {}
    assert load_plain_pickle(pickle.dumps(value, protocol)) == value


def test_the_python_pickler_is_read_too() -> None:
    """A pickle of the pure Python pickler, which numbers its memo itself, is the same to the reader."""
    file = io.BytesIO()
    pickle._Pickler(file, 3).dump(PLAIN)  # type: ignore[attr-defined]
    assert load_plain_pickle(file.getvalue()) == PLAIN


def test_shared_stacks_are_read_whole() -> None:
    """Frames stored once and referred to from many stacks appear in each of them."""
    frames = [{"filename": f"f{n}.py", "line": n, "name": "f"} for n in range(300)]
    value = [frames[:20], frames[250:], frames[5:290], frames]
    assert load_plain_pickle(pickle.dumps(value)) == value


def test_a_stack_whose_references_look_like_its_end_is_read_whole() -> None:
    """The number of a stored frame may hold the bytes that end a list, and a dict after it."""
    frames = [{"line": n} for n in range(0x7570)]
    ending = frames[0x7565 - 3]  # three values are stored before: "eu" is 0x7565
    stacks = [[frames[1], ending], [frames[1], ending, frames[2]], [frames[1], frames[2]]]
    value = [frames, [{"addr": n, "frames": list(stack)} for n in range(3) for stack in stacks]]
    data = pickle.dumps(value)
    assert b"jeu\0\0" in data
    assert load_plain_pickle(data) == value


@pytest.mark.parametrize("collects", [True, False])
def test_the_collector_of_garbage_runs_again_after_a_file(collects: bool, request: pytest.FixtureRequest) -> None:
    """Reading lets it rest, and leaves it as it was: after a snapshot, and after what is none."""
    request.addfinalizer(gc.enable)
    (gc.enable if collects else gc.disable)()
    parse_snapshot(pickle.dumps(PLAIN))
    assert gc.isenabled() is collects
    with pytest.raises(SnapshotError):
        parse_snapshot(b"none")
    assert gc.isenabled() is collects


def test_a_snapshot_is_normalised() -> None:
    """Segments, blocks, events, settings and annotations have their values and meanings."""
    snapshot = parse_snapshot(pickle.dumps(PLAIN))
    (segment,) = snapshot.segments
    assert (segment.small, segment.expandable, segment.pool, segment.size) == (True, False, (0, 0), 2097152)
    assert [block.state for block in segment.blocks] == [ACTIVE, INACTIVE]
    assert segment.blocks[0].stack == (Frame("/home/user/train.py", 7, "main"),)
    first, second = snapshot.trace_of(0)
    assert (first.action, first.address, first.size, first.time_us, first.pool) == ("alloc", 512, 1000, 5, None)
    assert (second.action, second.device_free) == ("oom", 3)
    assert first.stack is segment.blocks[0].stack
    assert snapshot.devices == (0,)
    assert snapshot.annotations[0].name == "Optimizer.step#SGD"


def test_the_format_of_2023_is_read() -> None:
    """Blocks without address, with their frames in a history, and the old name of the pending state."""
    history = [{"addr": 512, "real_size": 1000, "frames": [FRAME]}]
    blocks = [
        {"size": 1024, "state": "active_allocated", "history": history},
        {"size": 2048, "requested_size": 2048, "state": "active_awaiting_free"},
        {"size": 2097152 - 3072, "state": "inactive"},
    ]
    segment = {key: value for key, value in SEGMENT.items() if key not in ("segment_pool_id", "is_expandable")}
    old = {"segments": [{**segment, "blocks": blocks}], "device_traces": [[]]}
    (read,) = parse_snapshot(pickle.dumps(old)).segments
    assert [(b.address, b.requested_size, b.state) for b in read.blocks[:2]] == [
        (512, 1000, ACTIVE),
        (1536, 2048, PENDING),
    ]
    assert read.blocks[0].stack[0].line == 7


def test_a_list_of_segments_is_a_snapshot_too() -> None:
    """What ``torch.cuda.memory_snapshot()`` returns, pickled."""
    assert parse_snapshot(pickle.dumps([SEGMENT])).segments[0].address == 512


@pytest.mark.skipif(not SHARED, reason="no recorded snapshots of real GPUs here")
def test_real_files_are_read_as_pickle_reads_them() -> None:
    """The reader gives for every recorded file what the pickle module gives."""
    for path in SHARED:
        data = path.read_bytes()
        assert load_plain_pickle(data) == pickle.loads(data), path.name


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("inside", [False, True])
def test_nothing_runs(protocol: int, inside: bool, tmp_path: Path) -> None:
    """A pickle that asks for a global is refused before anything happens, wherever it stands in the file."""
    mark = tmp_path / "mark"
    for evil in (Runs(os.system, f"touch {mark}"), Runs(eval, f"open({str(mark)!r}, 'w')"), Runs(os.mkdir, str(mark))):
        value = {**PLAIN, "allocator_settings": evil} if inside else evil
        with pytest.raises(SnapshotError, match=r"refused: the pickle asks for a global"):
            parse_snapshot(pickle.dumps(value, protocol))
    assert not mark.exists()


HOSTILE = {
    "empty": b"",
    "text": b"hello, this is no pickle\n",
    "global": b"cos\nsystem\n(S'true'\ntR.",
    "instance": b"(ios\nsystem\n.",
    "persistent": b"Pid\n.",
    "persistent binary": b"]Q.",
    "extension": b"\x80\x02\x82\x01.",
    "reduce": b"))R.",
    "build": b"}}b.",
    "new object": b"))\x81.",
    "buffer": b"\x97.",
    "long text": b"\x8d" + struct.pack("<Q", 1 << 62) + b"x.",
    "long bytes": b"\x8e" + struct.pack("<Q", 1 << 40) + b"x.",
    "long bytearray": b"\x96" + struct.pack("<Q", (1 << 63) + 5) + b"x.",
    "text of 4 GiB": b"X\xff\xff\xff\xff.",
    "frame": b"\x80\x04\x95" + struct.pack("<Q", 1 << 60) + b"]",
    "memo far away": b"]r\xff\xff\xff\x7f.",
    "memo far away in text": b"]p99999999999\n.",
    "memo unknown": b"h\x07.",
    "long integer": b"\x8b\xff\xff\xff\x7f1.",
    "negative length": b"\x8b\xff\xff\xff\xff1.",
    "many digits": b"I" + b"9" * 100_000 + b"\n.",
    "many digits in an index": b"g" + b"9" * 100_000 + b"\n.",
    "nested lists": b"(" * 10_000 + b"l" * 10_000 + b".",
    "nested appends": b"]" * 100_000 + b"a" * 99_999 + b".",
    "many dicts": b"}" * 4_000_000 + b".",
    "tuple keys": b"}K\x01\x85K\x01s.",
    "nested tuple keys": b"}K\x01" + b"\x85q\x00h\x00\x86" * 50 + b"K\x01s.",
    "integer keys": b"}K\x01K\x02s.",
    "odd items": b"}(X\x01\x00\x00\x00au.",
    "append to dict": b"}K\x01a.",
    "append to text": b"X\x01\x00\x00\x00aK\x01a.",
    "stack underflow": b"a.",
    "mark missing": b"K\x01e.",
    "bad text": b"X\x02\x00\x00\x00\xff\xff.",
    "no end": b"]",
    "new protocol": b"\x80\x09].",
    "not a dict": b"K\x01.",
    "other dict": b"}X\x01\x00\x00\x00aK\x01s.",
}


@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE)
def test_hostile_files_are_refused(data: bytes) -> None:
    """Every hostile or broken file gives a SnapshotError of one line."""
    with pytest.raises(SnapshotError) as caught:
        parse_snapshot(data)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300


def test_a_value_shared_exponentially_is_harmless() -> None:
    """Sixty lists, each twice in the next: small in memory, endless when written out; never written out."""
    bomb: list[Any] = []
    for _ in range(60):
        bomb = [bomb, bomb]
    for place in ({"state": bomb}, {"frames": bomb}, {"size": bomb}, {"history": bomb}):
        with pytest.raises(SnapshotError):
            parse_snapshot(pickle.dumps({"segments": [{**SEGMENT, "blocks": [{**BLOCKS[0], **place}]}]}))
    assert parse_snapshot(pickle.dumps({**PLAIN, "external_annotations": [{"name": bomb}]})).annotations[0].name == ""


@pytest.mark.parametrize(
    "change",
    [
        {"segments": 1},
        {"segments": [1]},
        {"segments": [{**SEGMENT, "address": "512"}]},
        {"segments": [{**SEGMENT, "total_size": None}]},
        {"segments": [{**SEGMENT, "blocks": BLOCKS[:1]}]},
        {"segments": [{**SEGMENT, "blocks": [{**BLOCKS[0], "state": "lost"}, BLOCKS[1]]}]},
        {"segments": [{**SEGMENT, "blocks": [{**BLOCKS[0], "size": -5}, BLOCKS[1]]}]},
        {"device_traces": [1]},
        {"device_traces": [[1]]},
        {"device_traces": [[{**ENTRY, "addr": "x"}]]},
        {"device_traces": [[{**ENTRY, "frames": "x"}]]},
        {"device_traces": [[{**ENTRY, "frames": [1]}]]},
        {"external_annotations": {}},
    ],
)
def test_values_of_another_shape_are_refused(change: dict[str, Any]) -> None:
    """A pickle of plain values that is no snapshot gives a SnapshotError."""
    with pytest.raises(SnapshotError, match="not a memory snapshot"):
        parse_snapshot(pickle.dumps({**PLAIN, **change}))


def test_a_cut_off_file_is_refused_at_every_length() -> None:
    """No prefix of a snapshot is taken for a whole one."""
    data = pickle.dumps(PLAIN)
    for length in range(len(data)):
        with pytest.raises(SnapshotError):
            parse_snapshot(data[:length])


def test_mutated_files_give_a_snapshot_or_an_error() -> None:
    """Whatever happens to the bytes, nothing but a SnapshotError comes out."""
    chance = random.Random(20)
    seeds = [pickle.dumps(PLAIN, protocol) for protocol in range(6)] + [committed_bytes("roundup")[:6000]]
    for _ in range(3000):
        mutated_is_safe(chance, chance.choice(seeds))


def mutated_is_safe(chance: random.Random, seed: bytes) -> None:
    data = bytearray(seed)
    for _ in range(chance.randint(1, 6)):
        at = chance.randrange(len(data))
        match chance.randrange(4):
            case 0:
                data[at] = chance.randrange(256)
            case 1:
                data[at] = ord(chance.choice(pickletools.opcodes).code)
            case 2:
                del data[at : at + chance.randint(1, 20)]
            case 3:
                other = chance.randrange(len(data))
                data[at:at] = data[other : other + chance.randint(1, 40)]
        if not data:
            return
    try:
        parse_snapshot(bytes(data))
    except SnapshotError:
        pass


def test_a_missing_file_a_directory_and_a_pipe_are_named(tmp_path: Path) -> None:
    """What is not a regular file is refused at once, with its name."""
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "none.pickle", tmp_path, tmp_path / "pipe"):
        with pytest.raises(SnapshotError, match=path.name):
            read_snapshot(path)


def test_a_file_is_read_from_disk(tmp_path: Path) -> None:
    """The front door reads a file by its path."""
    (tmp_path / "a.pickle").write_bytes(pickle.dumps(PLAIN))
    assert read_snapshot(tmp_path / "a.pickle") == parse_snapshot(pickle.dumps(PLAIN))
