"""The stack machine of a pickle that is being read, and what a file may take of this machine's memory.

The cost of a hostile file is bounded: no length is believed before the bytes are there, what is built is charged
against a budget proportional to the file, nesting is limited, and dict keys are texts.
"""

from __future__ import annotations

import re
from typing import Any, Final, NoReturn, final

from memguard.errors import SnapshotError

MAX_DEPTH: Final = 100
"""Containers open at once; PyTorch's snapshots need about ten."""
MAX_INTEGER_BYTES: Final = 16
_PICKLERS_BATCH: Final = 1000

# What objects cost in CPython, rounded up. A file may build this many bytes for each of its own.
CONTAINER_COST: Final = 120
ENTRY_COST: Final = 60
_REFERENCE_COST: Final = 8
_BUDGET_PER_FILE_BYTE: Final = 24
_BUDGET_BASE: Final = 1 << 24

_REFERENCES: Final = re.compile(rb"(?s:h.|j.{4})+e")  # BINGET and LONG_BINGET up to APPENDS
_GET: Final = re.compile(rb"(?s)h(.)|j(.{4})")
_LONGEST_KNOWN: Final = 1024
"""Bytes of a run that is looked up before it is read."""
_TEXT_KEYS: Final = frozenset({str})


@final
class Machine:
    """The stack, the memo and the budget of one pickle that is being read."""

    __slots__ = ("_outer", "_runs", "_shared", "budget", "data", "memo", "stack")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.memo: list[Any] = []
        self.stack: list[Any] = []
        """Values since the last mark."""
        self.budget = _BUDGET_BASE + _BUDGET_PER_FILE_BYTE * len(data)
        """Bytes that may still be built."""
        self._outer: list[list[Any]] = []
        self._runs: dict[bytes, list[Any]] = {}
        self._shared: set[int] = set()

    def charge(self, nbytes: int) -> None:
        """Counts what is about to be built.

        Raises:
            SnapshotError: It would be far more than a snapshot of this size is.
        """
        self.budget -= nbytes
        if self.budget < 0:
            raise SnapshotError("not a memory snapshot: it would take far more memory than a snapshot of its size")

    def open(self) -> None:
        """Sets a mark.

        Raises:
            SnapshotError: Too many are open.
        """
        if len(self._outer) >= MAX_DEPTH:
            raise SnapshotError(f"not a memory snapshot: its values are nested deeper than {MAX_DEPTH}")
        self._outer.append(self.stack)
        self.stack = []

    def close(self) -> list[Any]:
        """The values since the last mark, which is taken away."""
        items, self.stack = self.stack, self._outer.pop()
        return items

    def list_on_top(self) -> list[Any]:
        """The list that is about to grow.

        Raises:
            SnapshotError: It is no list, or one that stands for several.
        """
        target = self.stack[-1]
        if type(target) is not list or id(target) in self._shared:
            _refuse_entries(target)
        return target

    def set_items(self, items: list[Any]) -> None:
        """Puts keys and values, in turns, into the dict on top.

        Raises:
            SnapshotError: It is no dict, or a key is no text.
        """
        self.charge(CONTAINER_COST + ENTRY_COST * len(items))
        target = self.stack[-1]
        if type(target) is not dict or len(items) % 2:
            _refuse_entries(target)
        keys = items[::2]
        # Other keys could make hashing take for ever: nested tuples, integers chosen to collide.
        if not _TEXT_KEYS.issuperset(map(type, keys)):
            raise SnapshotError("not a memory snapshot: a key of a dict is not a text")
        target.update(zip(keys, items[1::2], strict=True))

    def put(self, index: int) -> None:
        """Stores the value on top."""
        # Picklers number their memo without gaps and never twice; a jump would make the list as long as the file likes.
        if index != len(self.memo):
            raise IndexError
        self.memo.append(self.stack[-1])

    def append_stored(self, pos: int) -> int:
        """Appends a run of stored values to the empty list on top; where the run ends, or 0 if there is none.

        Such are the frames of a stack: the same few hundred stacks come again and again, and become one list, to which
        nothing may be appended then.
        """
        # Where the frames end their dict, the run likely ends here; if not, these bytes are none that was read before.
        run = self.data[pos : self.data.find(b"eu", pos, pos + _LONGEST_KNOWN) + 1]
        values = self._runs.get(run)
        if values is None:
            match = _REFERENCES.match(self.data, pos)
            if match is None:
                return 0
            run = match[0]
            values = self._runs.get(run)
        if values is None:
            gets = _GET.findall(run)
            values = [self.memo[short[0] if short else int.from_bytes(long, "little")] for short, long in gets]
            if len(values) < _PICKLERS_BATCH:  # a pickler appends so many at a time: more may follow
                self._runs[run] = values
                self._shared.add(id(values))
        if self.memo and self.memo[-1] is self.stack[-1]:
            self.memo[-1] = self.stack[-1] = values
        else:
            self.stack[-1].extend(values)
        self.budget -= _REFERENCE_COST * len(values)
        return pos + len(run)


def refuse_integer(size: int) -> NoReturn:
    """Says that a number is longer than any in a snapshot."""
    raise SnapshotError(f"not a memory snapshot: it holds an integer of {size} bytes")


def _refuse_entries(target: Any) -> NoReturn:
    raise SnapshotError(f"not a memory snapshot: the pickle puts entries into a {type(target).__name__}")
