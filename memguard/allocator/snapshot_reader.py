"""Reads memory snapshots of PyTorch, of every generation since 2023, safely: nothing in a file can run."""

from __future__ import annotations

import contextlib
import gc
import os
import stat
import struct
from collections.abc import Iterator
from typing import Any

from memguard.allocator.blocks import DEFAULT_POOL, PoolId
from memguard.allocator.pickle_machine import MAX_INTEGER_BYTES, Machine, refuse_integer
from memguard.allocator.pickle_steps import STEPS
from memguard.allocator.snapshot import (
    ACTIVE,
    INACTIVE,
    PENDING,
    Annotation,
    Block,
    Frame,
    Segment,
    Snapshot,
    Stack,
    TraceEntry,
)
from memguard.errors import SnapshotError

_ADDRESSES = 1 << 64

_STATES = {ACTIVE: ACTIVE, PENDING: PENDING, "active_awaiting_free": PENDING, INACTIVE: INACTIVE}


def read_snapshot(path: str | os.PathLike[str]) -> Snapshot:
    """The snapshot in a file; nothing in the file can run.

    Raises:
        SnapshotError: There is no such file, or it is not a memory snapshot.
    """
    try:
        with open(path, "rb", opener=_open_without_waiting) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise SnapshotError(f"{os.fspath(path)}: not a regular file")
            data = file.read()
    except OSError as error:
        raise SnapshotError(f"{os.fspath(path)}: {error.strerror or error}") from None
    except MemoryError:
        raise SnapshotError(f"{os.fspath(path)}: the file is too large for this machine's memory") from None
    try:
        return parse_snapshot(data)
    except SnapshotError as error:
        raise SnapshotError(f"{os.fspath(path)}: {error}") from None


def _open_without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))  # a pipe without a writer would wait for ever


def parse_snapshot(data: bytes) -> Snapshot:
    """The snapshot in the bytes of a file.

    Raises:
        SnapshotError: The bytes are not a memory snapshot, or ask for more than plain values.
    """
    try:
        with without_collector():
            return _Parser().snapshot(load_plain_pickle(data))
    except MemoryError:
        raise SnapshotError("the memory snapshot is too large for this machine's memory") from None


@contextlib.contextmanager
def without_collector() -> Iterator[None]:
    """Turns off garbage collection: a large file becomes millions of objects, and each pass visits them all."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


def snapshot_of(value: dict[str, Any]) -> Snapshot:
    """The snapshot in values that this process made itself, as ``torch.cuda.memory._snapshot()`` returns them.

    Args:
        value: The same as in a file; it is not changed.

    Raises:
        SnapshotError: The values are not a memory snapshot.
    """
    return _Parser().snapshot(value)


class _Parser:
    """Plain values to a `Snapshot`. Equal stacks become one object: there are few stacks and many events."""

    def __init__(self) -> None:
        self._frames: dict[int, tuple[Any, Frame]] = {}
        self._lists: dict[int, tuple[list[Any], Stack]] = {}
        self._stacks: dict[Stack, Stack] = {}

    def snapshot(self, value: Any) -> Snapshot:
        if isinstance(value, list):  # torch.cuda.memory_snapshot() itself, pickled
            value = {"segments": value}
        if not isinstance(value, dict) or "segments" not in value:
            raise SnapshotError("not a memory snapshot: the pickle holds no 'segments'")
        settings = value.get("allocator_settings", {})
        return Snapshot(
            segments=tuple([self._segment(item) for item in _list(value, "segments")]),
            traces=tuple([self._trace(item) for item in _list(value, "device_traces")]),
            settings=settings if isinstance(settings, dict) else {},
            annotations=tuple([_annotation(item) for item in _list(value, "external_annotations")]),
        )

    def _segment(self, item: Any) -> Segment:
        item = _dict(item, "a segment")
        address = _int(item, "address")
        blocks = []
        at = address
        for block in _list(item, "blocks"):
            block = self._block(_dict(block, "a block"), at)
            blocks.append(block)
            at = block.address + block.size
        size = _int(item, "total_size")
        if not (0 <= address < _ADDRESSES and 0 <= size < _ADDRESSES):
            raise SnapshotError(f"not a memory snapshot: no segment can be at {address:#x} with {size} bytes")
        if blocks and (blocks[0].address != address or at != address + size):
            raise SnapshotError(f"not a memory snapshot: the blocks of the segment at {address:#x} do not fill it")
        return Segment(
            device=_int(item, "device", 0),
            address=address,
            size=size,
            stream=_int(item, "stream", 0),
            small=item.get("segment_type") == "small",
            expandable=bool(item.get("is_expandable")),
            pool=_pool(item.get("segment_pool_id")) or DEFAULT_POOL,
            blocks=tuple(blocks),
        )

    def _block(self, item: dict[str, Any], at: int) -> Block:
        # 2023: the address is where the block before ends, and the frames stand in a history, newest first.
        frames, requested = item.get("frames"), item.get("requested_size")
        history = item.get("history")
        if history and isinstance(history, list) and isinstance(history[0], dict):
            frames = history[0].get("frames") if frames is None else frames
            requested = history[0].get("real_size") if requested is None else requested
        size = _int(item, "size")
        state = _STATES.get(_text(item.get("state")))
        if state is None:
            raise SnapshotError(f"not a memory snapshot: the block at {at:#x} is in none of the states {list(_STATES)}")
        if size <= 0 or _int(item, "address", at) != at:
            raise SnapshotError(f"not a memory snapshot: the block at {at:#x} does not follow the one before it")
        return Block(
            address=at,
            size=size,
            requested_size=requested if type(requested) is int and 0 <= requested <= size else size,
            state=state,
            stack=self._stack(frames),
        )

    def _trace(self, items: Any) -> tuple[TraceEntry, ...]:
        if not isinstance(items, list):
            raise SnapshotError("not a memory snapshot: 'device_traces' is not a list of lists")
        return tuple([self._entry(item) for item in items])

    def _entry(self, item: Any) -> TraceEntry:
        item = _dict(item, "an event of the trace")
        get = item.get
        action, address, size, stream = get("action"), get("addr", 0), get("size", 0), get("stream", 0)
        time, free = get("time_us"), get("device_free")
        if type(action) is not str or not type(address) is type(size) is type(stream) is int:
            raise SnapshotError("not a memory snapshot: an event of the trace lacks its action, address or size")
        if not (0 <= address < _ADDRESSES and 0 <= size < _ADDRESSES and -_ADDRESSES < stream < _ADDRESSES):
            raise SnapshotError("not a memory snapshot: an event of the trace has an impossible address or size")
        return TraceEntry(
            action,
            address,
            size,
            stream,
            time if type(time) is int else None,
            _pool(get("pool_id")),
            free if type(free) is int else None,
            self._stack(get("frames")),
        )

    def _stack(self, frames: Any) -> Stack:
        if not frames:
            return ()
        if not isinstance(frames, list):
            raise SnapshotError("not a memory snapshot: the frames of a stack are not a list")
        known = self._lists.get(id(frames))
        if known is not None:
            return known[1]
        stack = tuple([self._frame(frame) for frame in frames])
        stack = self._stacks.setdefault(stack, stack)
        self._lists[id(frames)] = (frames, stack)  # the list stays alive, or its id could come again
        return stack

    def _frame(self, item: Any) -> Frame:
        known = self._frames.get(id(item))
        if known is not None:
            return known[1]
        item = _dict(item, "a frame")
        filename, line, name = item.get("filename", "??"), item.get("line"), item.get("name", "??")
        frame = Frame(_text(filename), line if type(line) is int else 0, _text(name))
        self._frames[id(item)] = (item, frame)  # likewise
        return frame


def _annotation(item: Any) -> Annotation:
    item = _dict(item, "an annotation")
    return Annotation(
        _text(item.get("name")), _text(item.get("stage")), _int(item, "device", 0), _int(item, "time_us", 0)
    )


def _pool(value: Any) -> PoolId | None:
    if isinstance(value, (tuple, list)) and len(value) == 2 and type(value[0]) is type(value[1]) is int:
        return (value[0], value[1])
    return None


def _text(value: Any) -> str:
    return value if type(value) is str else ""  # never str(value): a shared value can be endless when written out


def _dict(value: Any, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise SnapshotError(f"not a memory snapshot: {what} is not a dict")
    return value


def _list(value: dict[str, Any], key: str) -> list[Any]:
    items = value.get(key, [])
    if not isinstance(items, list):
        raise SnapshotError(f"not a memory snapshot: {key!r} is not a list")
    return items


def _int(value: dict[str, Any], key: str, default: int | None = None) -> int:
    number = value.get(key, default)
    if type(number) is not int:
        raise SnapshotError(f"not a memory snapshot: {key!r} is not a whole number")
    return number


# Pickles as plain data: a reader of its own for the opcodes a memory snapshot needs, because unpickling runs code.
# Every opcode that could import, call or look up anything is simply not implemented, so nothing a file asks for can
# run.


def load_plain_pickle(data: bytes) -> Any:
    """The plain value that a pickle holds: dicts with text keys, lists, tuples, texts, bytes, numbers, bools and None.

    Protocols 0 to 5, as Python's pickle module writes such values. Values stored once and referred to often stay
    shared. Bytes after the end of the pickle are ignored, as pickle does.

    Raises:
        SnapshotError: The bytes are no pickle, are cut off or damaged, or ask for anything but plain values.
    """
    try:
        return _load(data)
    except IndexError:  # read past the end, or a stack or memo without the entry
        raise SnapshotError("not a whole memory snapshot: the pickle is cut off or damaged") from None
    except (struct.error, ValueError, OverflowError, AttributeError):
        raise SnapshotError("not a memory snapshot: the pickle is damaged") from None
    except MemoryError:
        raise SnapshotError("the memory snapshot is too large for this machine's memory") from None


def _load(data: bytes) -> Any:
    # A large snapshot has tens of millions of opcodes: the most frequent stand here, with local names only.
    # A slice may come out short at the end of the data; then the next opcode cannot be read and IndexError follows.
    machine, steps = Machine(data), STEPS
    memo, stack = machine.memo, machine.stack
    push, to_int = stack.append, int.from_bytes
    pos = 0
    while True:
        code = data[pos]
        pos += 1
        if code == 0x68:  # BINGET
            push(memo[data[pos]])
            pos += 1
        elif code == 0x6A:  # LONG_BINGET
            push(memo[to_int(data[pos : pos + 4], "little")])
            pos += 4
        elif code == 0x8A:  # LONG1
            end = pos + 1 + data[pos]
            if end - pos > MAX_INTEGER_BYTES:
                refuse_integer(end - pos)
            push(to_int(data[pos + 1 : end], "little", signed=True))
            pos = end
        elif code == 0x94:  # MEMOIZE
            memo.append(stack[-1])
        elif code == 0x4B:  # BININT1
            push(data[pos])
            pos += 1
        elif code == 0x4A:  # BININT
            push(to_int(data[pos : pos + 4], "little", signed=True))
            pos += 4
        elif code == 0x2E:  # STOP
            return stack.pop()
        else:
            pos = steps[code](machine, pos)
            if stack is not machine.stack:
                stack = machine.stack
                push = stack.append
