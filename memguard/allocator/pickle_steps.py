"""What each opcode of a pickle of plain values does; the others are refused."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final, NoReturn

from memguard.allocator.pickle_machine import CONTAINER_COST, ENTRY_COST, MAX_INTEGER_BYTES, Machine, refuse_integer
from memguard.errors import SnapshotError

_MAX_INTEGER_DIGITS: Final = 40
_HIGHEST_PROTOCOL: Final = 5

_REFUSED: Final = {
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

Step = Callable[[Machine, int], int]
"""Begins behind its opcode, and returns where the next one stands."""


def _mark(machine: Machine, pos: int) -> int:
    on_list = machine.data[pos] in b"hj" and machine.stack and machine.stack[-1] == []
    if on_list and (end := machine.append_stored(pos)):
        return end
    machine.open()
    return pos


def _empty_dict(machine: Machine, pos: int) -> int:
    machine.charge(CONTAINER_COST)
    machine.stack.append({})
    return pos


def _empty_list(machine: Machine, pos: int) -> int:
    machine.charge(CONTAINER_COST)
    machine.stack.append([])
    return pos


def _empty_tuple(machine: Machine, pos: int) -> int:
    machine.stack.append(())
    return pos


def _set_items(machine: Machine, pos: int) -> int:
    machine.set_items(machine.close())
    return pos


def _set_item(machine: Machine, pos: int) -> int:
    value, key = machine.stack.pop(), machine.stack.pop()
    machine.set_items([key, value])
    return pos


def _appends(machine: Machine, pos: int) -> int:
    items = machine.close()
    machine.list_on_top().extend(items)
    return pos


def _append(machine: Machine, pos: int) -> int:
    item = machine.stack.pop()
    machine.list_on_top().append(item)
    return pos


def _short_int(machine: Machine, pos: int) -> int:
    machine.stack.append(machine.data[pos] | machine.data[pos + 1] << 8)
    return pos + 2


def _long_int(machine: Machine, pos: int) -> int:
    begin = pos + 4
    size = int.from_bytes(machine.data[pos:begin], "little")
    if size > MAX_INTEGER_BYTES:
        refuse_integer(size)
    machine.stack.append(int.from_bytes(machine.data[begin : begin + size], "little", signed=True))
    return begin + size


def _float(machine: Machine, pos: int) -> int:
    machine.stack.append(struct.unpack(">d", machine.data[pos : pos + 8])[0])
    return pos + 8


def _constant(value: bool | None) -> Step:
    def push(machine: Machine, pos: int) -> int:
        machine.stack.append(value)
        return pos

    return push


def _counted(width: int, *, text: bool) -> Step:
    """Texts and bytes with their length before them, in so many bytes."""

    def push(machine: Machine, pos: int) -> int:
        start = pos + width
        end = start + int.from_bytes(machine.data[pos:start], "little")
        if end > len(machine.data):
            raise IndexError
        machine.budget -= end - start + ENTRY_COST  # the bytes are there, so this much needs no check
        value = machine.data[start:end]
        machine.stack.append(str(value, "utf-8", "surrogatepass") if text else value)
        return end

    return push


def _tuple_of(size: int) -> Step:
    def push(machine: Machine, pos: int) -> int:
        stack = machine.stack
        if len(stack) < size:
            raise IndexError
        machine.charge(CONTAINER_COST)
        stack[-size:] = [tuple(stack[-size:])]
        return pos

    return push


def _marked(make: Callable[[list[Any]], Any]) -> Step:
    """A container of all since the last mark."""

    def push(machine: Machine, pos: int) -> int:
        items = machine.close()
        machine.charge(2 * CONTAINER_COST + ENTRY_COST * len(items))
        machine.stack.append(make(items))
        return pos

    return push


def _marked_dict(machine: Machine, pos: int) -> int:
    items = machine.close()
    machine.charge(CONTAINER_COST)
    machine.stack.append({})
    machine.set_items(items)
    return pos


def _put(machine: Machine, pos: int) -> int:
    machine.put(machine.data[pos])
    return pos + 1


def _long_put(machine: Machine, pos: int) -> int:
    machine.put(int.from_bytes(machine.data[pos : pos + 4], "little"))
    return pos + 4


def _line(step: Callable[[Machine, bytes], None]) -> Step:
    """A step of protocol 0, whose argument is a line of text."""

    def read(machine: Machine, pos: int) -> int:
        end = machine.data.index(b"\n", pos)
        line = machine.data[pos:end]
        machine.budget -= len(line) + ENTRY_COST
        step(machine, line)
        return end + 1

    return read


def _line_get(machine: Machine, line: bytes) -> None:
    machine.stack.append(machine.memo[_to_index(line)])


def _line_put(machine: Machine, line: bytes) -> None:
    machine.put(_to_index(line))


def _line_text(machine: Machine, line: bytes) -> None:
    machine.stack.append(str(line, "raw-unicode-escape"))


def _line_int(machine: Machine, line: bytes) -> None:
    number = int(_checked_number(line).rstrip(b"L"))
    machine.stack.append(bool(number) if line in (b"00", b"01") else number)


def _line_long(machine: Machine, line: bytes) -> None:
    machine.stack.append(int(_checked_number(line).rstrip(b"L")))


def _line_float(machine: Machine, line: bytes) -> None:
    machine.stack.append(float(_checked_number(line)))


def _to_index(line: bytes) -> int:
    if not line.isdigit() or len(line) > _MAX_INTEGER_DIGITS:
        raise IndexError
    return int(line)


def _checked_number(line: bytes) -> bytes:
    if len(line) > _MAX_INTEGER_DIGITS:
        raise SnapshotError(f"not a memory snapshot: it holds a number of {len(line)} digits")
    return line


def _dup(machine: Machine, pos: int) -> int:
    machine.stack.append(machine.stack[-1])
    return pos


def _pop(machine: Machine, pos: int) -> int:
    machine.stack.pop()
    return pos


def _pop_mark(machine: Machine, pos: int) -> int:
    machine.close()
    return pos


def _protocol(machine: Machine, pos: int) -> int:
    if machine.data[pos] > _HIGHEST_PROTOCOL:
        raise SnapshotError(f"not a memory snapshot: no pickle has the protocol {machine.data[pos]}")
    return pos + 1


def _frame(machine: Machine, pos: int) -> int:
    return pos + 8  # it only says how much to read ahead


_KNOWN: Final[dict[int, Step]] = {
    0x28: _mark,
    0x7D: _empty_dict,
    0x5D: _empty_list,
    0x29: _empty_tuple,
    0x75: _set_items,
    0x73: _set_item,
    0x65: _appends,
    0x61: _append,
    0x4D: _short_int,  # BININT2
    0x8B: _long_int,  # LONG4
    0x47: _float,  # BINFLOAT
    0x4E: _constant(None),
    0x88: _constant(True),
    0x89: _constant(False),
    0x8C: _counted(1, text=True),  # SHORT_BINUNICODE
    0x58: _counted(4, text=True),
    0x8D: _counted(8, text=True),
    0x43: _counted(1, text=False),  # SHORT_BINBYTES
    0x42: _counted(4, text=False),
    0x8E: _counted(8, text=False),
    0x96: _counted(8, text=False),  # BYTEARRAY8
    0x85: _tuple_of(1),
    0x86: _tuple_of(2),
    0x87: _tuple_of(3),
    0x74: _marked(tuple),
    0x6C: _marked(list),
    0x64: _marked_dict,
    0x71: _put,  # BINPUT
    0x72: _long_put,
    0x67: _line(_line_get),
    0x70: _line(_line_put),
    0x56: _line(_line_text),
    0x49: _line(_line_int),
    0x4C: _line(_line_long),
    0x46: _line(_line_float),
    0x32: _dup,
    0x30: _pop,
    0x31: _pop_mark,
    0x80: _protocol,
    0x95: _frame,
}


def _refuse(machine: Machine, pos: int) -> NoReturn:
    at, code = pos - 1, machine.data[pos - 1]
    if code in _REFUSED:
        raise SnapshotError(
            f"refused: the pickle asks for {_REFUSED[code]} at byte {at}; a memory snapshot holds plain values only, "
            "and this file could run code when unpickled"
        )
    raise SnapshotError(f"not a memory snapshot: byte {at} (0x{code:02x}) is no opcode of a pickle of plain values")


STEPS: Final[tuple[Step, ...]] = tuple(_KNOWN.get(code, _refuse) for code in range(256))
"""What to do for each opcode; the few that the reader's loop does itself are refused here."""
