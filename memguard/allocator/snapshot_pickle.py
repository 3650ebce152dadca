"""Pickles as plain data: a reader of its own for the opcodes a memory snapshot needs, because unpickling runs code.

Every opcode that could import, call or look up anything is simply not implemented, so nothing a file asks for can run.
"""

from __future__ import annotations

import struct
from typing import Any

from memguard.allocator.pickle_machine import MAX_INTEGER_BYTES, Machine, refuse_integer
from memguard.allocator.pickle_steps import STEPS
from memguard.errors import SnapshotError


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
