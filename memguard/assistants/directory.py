"""The one directory that assistants may read, and answers that stay short. No torch."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar, final

from memguard.errors import MemGuardError
from memguard.recording.json_lines import plain
from memguard.recording.reader import lies_there

MOST_CHARACTERS = 16_000
"""Of one answer as JSON."""
_SHORTEST_LIST, _SHORTEST_TEXT = 3, 200
_SKIPPED = frozenset({"checkpoints", "node_modules", "site-packages", "__pycache__"})
_KEPT = 16
_Value = TypeVar("_Value")


@final
class Directory:
    """A directory, and what may be asked for in it.

    Raises:
        MemGuardError: It is none.
    """

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self.root = Path(os.path.realpath(root))
        if not self.root.is_dir():
            raise MemGuardError(f"{os.fspath(root)} is not a directory; give the one that has the runs")
        self._known: dict[tuple[object, ...], tuple[object, Any]] = {}

    def path(self, name: str) -> Path:
        """A file or folder in the directory.

        Args:
            name: Its path, relative to the directory (or absolute and in it); "" is the directory itself.

        Raises:
            MemGuardError: It does not exist, or is somewhere else, be it through a link.
        """
        if "\0" in name or "://" in name:
            raise MemGuardError(f"{name[:80]!r} is no path in {self.root}")
        real = Path(os.path.realpath(self.root / name))
        if real != self.root and self.root not in real.parents:
            raise MemGuardError(f"{name[:200]!r} is outside {self.root}, which is all that may be read")
        if not real.exists():
            raise MemGuardError(f"{name[:200]!r} does not exist in {self.root}")
        return real

    def name_of(self, path: str | os.PathLike[str]) -> str:
        """A path as the tools take it: relative to the directory."""
        return Path(os.path.relpath(os.path.realpath(path), self.root)).as_posix()

    def files(self, *suffixes: str) -> Iterator[Path]:
        """The ordinary files below the directory with such an ending; links are not followed."""
        for folder, folders, names in os.walk(self.root):
            folders[:] = sorted(name for name in folders if name not in _SKIPPED and not name.startswith("."))
            for name in sorted(names):
                if name.endswith(suffixes) and lies_there(os.path.join(folder, name)):
                    yield Path(folder, name)

    def once(self, key: tuple[object, ...], state: object, read: Callable[[], _Value]) -> _Value:
        """What was read before, as long as nothing changed; of very many things the newest ones are kept.

        Args:
            key: What is read.
            state: What differs where it changed.
            read: Reads it.
        """
        known = self._known.pop(key, None)
        value: _Value = known[1] if known is not None and known[0] == state else read()
        self._known[key] = (state, value)
        while len(self._known) > _KEPT:
            del self._known[next(iter(self._known))]
        return value


def bounded(answer: dict[str, Any], most: int = MOST_CHARACTERS) -> dict[str, Any]:
    """An answer of at most so many characters of JSON: its longest lists and texts are cut, and it says so."""
    result: dict[str, Any] = plain(json.loads(json.dumps(answer, default=str)))
    cut: dict[str, str] = {}
    while len(json.dumps(result)) > most - 400:
        found = max(_cuttable(result, ()), key=lambda each: each[0], default=None)
        if found is None:
            return {"shortened": "this answer is too long as a whole; ask for less of it"}
        _, path, value = found
        if isinstance(value, str):
            shorter: Any = value[: max(_SHORTEST_TEXT, len(value) // 2)] + " ..."
        else:
            shorter = value[: max(_SHORTEST_LIST, len(value) // 2)]
        _put(result, path, shorter)
        name = ".".join(str(each) for each in path if isinstance(each, str))
        cut.setdefault(name, f"{len(value):,} {'characters' if isinstance(value, str) else 'entries'}")
        if len(cut) > 8:
            return {"shortened": "this answer is too long as a whole; ask for less of it"}
    if cut:
        result["shortened"] = {name: f"only the first of {size}" for name, size in cut.items()}
    return result


def _cuttable(value: Any, path: tuple[str | int, ...]) -> Iterator[tuple[int, tuple[str | int, ...], Any]]:
    """Each list and text within that can be cut, with its length as JSON."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        if (isinstance(item, list) and len(item) > _SHORTEST_LIST) or (
            isinstance(item, str) and len(item) > _SHORTEST_TEXT + 4
        ):
            yield len(json.dumps(item)), (*path, key), item
        yield from _cuttable(item, (*path, key))


def _put(value: Any, path: tuple[str | int, ...], new: Any) -> None:
    for key in path[:-1]:
        value = value[key]
    value[path[-1]] = new
