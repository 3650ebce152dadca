"""Pickles as plain data: a reader of its own for the opcodes a memory snapshot needs, because unpickling runs code.

Every opcode that could import, call or look up anything is simply not implemented, so nothing a file asks for can run.
The cost of a hostile file is bounded too: no length is believed before the bytes are there, what is built is
charged against a budget proportional to the file, nesting is limited, and dict keys are texts.
"""

from __future__ import annotations

import re
import struct
from typing import Any, NoReturn

from memguard.errors import SnapshotError

MAX_DEPTH = 100
"""Containers open at once; PyTorch's snapshots need about ten."""
_MAX_INTEGER_BYTES = 16
_MAX_INTEGER_DIGITS = 40
_PICKLERS_BATCH = 1000

# What objects cost in CPython, rounded up. A file may build this many bytes for each of its own.
_CONTAINER_COST = 120
_ENTRY_COST = 60
_BUDGET_PER_FILE_BYTE = 24
_BUDGET_BASE = 1 << 24

_TEXT_KEYS = frozenset({str})
_WIDTHS = {0x8C: 1, 0x58: 4, 0x8D: 8, 0x43: 1, 0x42: 4, 0x8E: 8, 0x96: 8}

_REFERENCES = re.compile(rb"(?s:h.|j.{4})+e")  # BINGET and LONG_BINGET up to APPENDS
_GET = re.compile(rb"(?s)h(.)|j(.{4})")

_REFUSED = {
    0x63: "a global",
    0x69: "a global",
    0x93: "a global",
    0x52: "a function call",
    0x62: "an object's state",
    0x6F: "an object",
    0x81: "an object",
    0x92: "an object",
    0x50: "a persistent object",
    0x51: "a persistent object",
    0x82: "an extension object",
    0x83: "an extension object",
    0x84: "an extension object",
    0x97: "an out-of-band buffer",
    0x98: "an out-of-band buffer",
}


def load_plain_pickle(data: bytes) -> Any:
    """The plain value that a pickle holds: dicts with text keys, lists, tuples, texts, bytes, numbers, bools and None.

    Protocols 0 to 5, as Python's pickle module writes such values. Values stored once and referred to often stay
    shared. Bytes after the end of the pickle are ignored, as pickle does.

    Args:
        data: The whole file.

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
    # One loop with the frequent opcodes first and nothing but local names: a large snapshot has tens of millions.
    # A slice may come out short at the end of the data; then the next opcode cannot be read and IndexError follows.
    budget = _BUDGET_BASE + _BUDGET_PER_FILE_BYTE * len(data)
    memo: list[Any] = []
    stack: list[Any] = []
    outer: list[list[Any]] = []
    push = stack.append
    to_int = int.from_bytes
    references = _REFERENCES.match
    runs: dict[bytes, list[Any]] = {}
    shared: set[int] = set()
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
            if end - pos > _MAX_INTEGER_BYTES:
                _refuse_integer(end - pos)
            push(to_int(data[pos + 1 : end], "little", signed=True))
            pos = end
        elif code == 0x94:  # MEMOIZE
            memo.append(stack[-1])
        elif code == 0x28:  # MARK
            if data[pos] in b"hj" and (match := references(data, pos)) and stack[-1] == []:
                # The frames of a stack, already stored: the same few hundred stacks come again and again, and become
                # one list, to which nothing may be appended then. A pickler appends 1000 items at a time.
                values = runs.get(match[0])
                if values is None:
                    indices = [short[0] if short else to_int(long, "little") for short, long in _GET.findall(match[0])]
                    values = [memo[index] for index in indices]
                    if len(values) < _PICKLERS_BATCH:
                        runs[match[0]] = values
                        shared.add(id(values))
                if memo and memo[-1] is stack[-1]:
                    memo[-1] = values
                    stack[-1] = values
                else:
                    stack[-1].extend(values)
                budget -= 8 * len(values)
                pos = match.end()
                continue
            if len(outer) >= MAX_DEPTH:
                raise SnapshotError(f"not a memory snapshot: its values are nested deeper than {MAX_DEPTH}")
            outer.append(stack)
            stack = []
            push = stack.append
        elif code == 0x4B:  # BININT1
            push(data[pos])
            pos += 1
        elif code == 0x7D:  # EMPTY_DICT
            budget -= _CONTAINER_COST
            if budget < 0:
                _refuse_size()
            push({})
        elif code == 0x75:  # SETITEMS
            items, stack = stack, outer.pop()
            push = stack.append
            budget -= _CONTAINER_COST + _ENTRY_COST * len(items)
            if budget < 0:
                _refuse_size()
            _set_items(stack[-1], items)
        elif code == 0x4A:  # BININT
            push(to_int(data[pos : pos + 4], "little", signed=True))
            pos += 4
        elif code == 0x5D:  # EMPTY_LIST
            budget -= _CONTAINER_COST
            if budget < 0:
                _refuse_size()
            push([])
        elif code == 0x65:  # APPENDS
            items, stack = stack, outer.pop()
            push = stack.append
            target = stack[-1]
            if type(target) is not list or id(target) in shared:
                _refuse_entries(target)
            target += items
        elif code == 0x4D:  # BININT2
            push(data[pos] | data[pos + 1] << 8)
            pos += 2
        elif code == 0x73:  # SETITEM
            value, key = stack.pop(), stack.pop()
            budget -= _CONTAINER_COST + _ENTRY_COST
            if budget < 0:
                _refuse_size()
            _set_items(stack[-1], [key, value])
        elif code == 0x61:  # APPEND
            item = stack.pop()
            target = stack[-1]
            if type(target) is not list or id(target) in shared:
                _refuse_entries(target)
            target.append(item)
        elif code in _WIDTHS:  # the texts and bytes with their length before them
            start = pos + _WIDTHS[code]
            end = start + to_int(data[pos:start], "little")
            if end > len(data):
                raise IndexError
            budget -= end - start + _ENTRY_COST
            text = code in (0x8C, 0x58, 0x8D)
            push(str(data[start:end], "utf-8", "surrogatepass") if text else data[start:end])
            pos = end
        elif code == 0x71:  # BINPUT
            _put(memo, data[pos], stack[-1])
            pos += 1
        elif code == 0x72:  # LONG_BINPUT
            _put(memo, to_int(data[pos : pos + 4], "little"), stack[-1])
            pos += 4
        elif code == 0x95:  # FRAME: only says how much to read ahead
            pos += 8
        elif code == 0x85 or code == 0x86 or code == 0x87:  # TUPLE1, TUPLE2, TUPLE3
            size = code - 0x84
            if len(stack) < size:
                raise IndexError
            items = stack[-size:]
            del stack[-size:]
            budget -= _CONTAINER_COST
            if budget < 0:
                _refuse_size()
            push(tuple(items))
        elif code == 0x74 or code == 0x6C or code == 0x64:  # TUPLE, LIST, DICT
            items, stack = stack, outer.pop()
            push = stack.append
            budget -= 2 * _CONTAINER_COST + _ENTRY_COST * len(items)
            if budget < 0:
                _refuse_size()
            if code == 0x64:
                push({})
                _set_items(stack[-1], items)
            else:
                push(items if code == 0x6C else tuple(items))
        elif code == 0x29:  # EMPTY_TUPLE
            push(())
        elif code == 0x4E:  # NONE
            push(None)
        elif code == 0x88 or code == 0x89:  # NEWTRUE, NEWFALSE
            push(code == 0x88)
        elif code == 0x47:  # BINFLOAT
            push(struct.unpack(">d", data[pos : pos + 8])[0])
            pos += 8
        elif code == 0x8B:  # LONG4
            end = pos + 4 + to_int(data[pos : pos + 4], "little")
            if end - pos - 4 > _MAX_INTEGER_BYTES:
                _refuse_integer(end - pos - 4)
            push(to_int(data[pos + 4 : end], "little", signed=True))
            pos = end
        elif code in b"ILFVgp":  # INT, LONG, FLOAT, UNICODE, GET, PUT: lines of text
            end = data.index(b"\n", pos)
            line = data[pos:end]
            budget -= len(line) + _ENTRY_COST
            pos = end + 1
            if code == 0x67:
                push(memo[_to_index(line)])
            elif code == 0x70:
                _put(memo, _to_index(line), stack[-1])
            else:
                push(_from_line(code, line))
        elif code == 0x32:  # DUP
            push(stack[-1])
        elif code == 0x30:  # POP
            stack.pop()
        elif code == 0x31:  # POP_MARK
            stack = outer.pop()
            push = stack.append
        elif code == 0x80:  # PROTO
            if data[pos] > 5:
                raise SnapshotError(f"not a memory snapshot: no pickle has the protocol {data[pos]}")
            pos += 1
        elif code == 0x2E:  # STOP
            return stack.pop()
        else:
            _refuse_opcode(code, pos - 1)


def _set_items(target: Any, items: list[Any]) -> None:
    if type(target) is not dict or len(items) % 2:
        _refuse_entries(target)
    keys = items[::2]
    # Other keys could make hashing take for ever: nested tuples, integers chosen to collide.
    if not _TEXT_KEYS.issuperset(map(type, keys)):
        raise SnapshotError("not a memory snapshot: a key of a dict is not a text")
    target.update(zip(keys, items[1::2], strict=True))


def _put(memo: list[Any], index: int, value: Any) -> None:
    # Picklers number their memo without gaps and never twice; a jump would make the list as long as the file likes.
    if index != len(memo):
        raise IndexError
    memo.append(value)


def _to_index(line: bytes) -> int:
    if not line.isdigit() or len(line) > _MAX_INTEGER_DIGITS:
        raise IndexError
    return int(line)


def _from_line(code: int, line: bytes) -> Any:
    if code == 0x56:
        return str(line, "raw-unicode-escape")
    if len(line) > _MAX_INTEGER_DIGITS:
        raise SnapshotError(f"not a memory snapshot: it holds a number of {len(line)} digits")
    if code == 0x46:
        return float(line)
    if code == 0x49 and line in (b"00", b"01"):
        return line == b"01"
    return int(line.rstrip(b"L"))


def _refuse_opcode(code: int, at: int) -> NoReturn:
    if code in _REFUSED:
        raise SnapshotError(
            f"refused: the pickle asks for {_REFUSED[code]} at byte {at}; a memory snapshot holds plain values only, "
            "and this file could run code when unpickled"
        )
    raise SnapshotError(f"not a memory snapshot: byte {at} (0x{code:02x}) is no opcode of a pickle of plain values")


def _refuse_size() -> NoReturn:
    raise SnapshotError("not a memory snapshot: it would take far more memory than a snapshot of its size")


def _refuse_integer(size: int) -> NoReturn:
    raise SnapshotError(f"not a memory snapshot: it holds an integer of {size} bytes")


def _refuse_entries(target: Any) -> NoReturn:
    raise SnapshotError(f"not a memory snapshot: the pickle puts entries into a {type(target).__name__}")
