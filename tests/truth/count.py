"""Counts what a name in a script holds at the end: by a dispatch mode and by letting go of it. Nothing of memguard's.

Run as ``python -m tests.truth.count SCRIPT FUNCTION HOLDER CODE``; prints ``{"count": elements, "bytes": bytes}`` as
JSON, null where nothing of that name was met. Whenever the function that has the name returns, and at the end of the
script, a fork of the process drops what the name holds; by how much the live storages became less is what it held. For
MG302 only storages count of which the tensors in the name use a part.
"""

from __future__ import annotations

import collections
import contextlib
import ctypes
import functools
import gc
import io
import json
import os
import random
import runpy
import sys
from types import FrameType
from typing import Any

import numpy
import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

_CONTAINERS = (list, dict, set, collections.deque)


class Storages(TorchDispatchMode):
    """Knows the storage of every tensor that an operator gave."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._known: dict[int, tuple[StorageWeakRef, int]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(out):
            if isinstance(leaf, torch.Tensor) and leaf.device.type == "cpu":
                with contextlib.suppress(NotImplementedError, RuntimeError):
                    storage = leaf.untyped_storage()
                    self._known[storage._cdata] = (StorageWeakRef(storage), storage.nbytes())
        return out

    def live_bytes(self) -> int:
        """Bytes of those that are alive."""
        gc.collect()
        self.forget_dead()
        return sum(nbytes for _, nbytes in self._known.values())

    def forget_dead(self) -> None:
        """What has died need not be asked again."""
        self._known = {key: one for key, one in self._known.items() if not one[0].expired()}


class Counter:
    """Looks at a name whenever the function that has it returns.

    Args:
        script: The program's file.
        function: Where the name is, like ``main`` or ``Meter.update``; ``<module>`` is the script itself.
        holder: Like ``history`` or ``Meter.values``.
        storages: Who knows what is alive.
        views: Whether to count only storages of which what the name holds uses a part.
    """

    def __init__(self, script: str, function: str, holder: str, storages: Storages, *, views: bool = False) -> None:
        self._script, self._storages = os.path.realpath(script), storages
        self._function, self._holder, self._views = function.rpartition(".")[2], holder, views
        self.newest: dict[str, int] | None = None
        self._is_of_script = functools.cache(lambda file: os.path.realpath(file) == self._script)

    def profile(self, frame: FrameType, event: str, arg: object) -> None:
        """Called by Python for each call and return."""
        if event != "return" or not self._is_of_script(frame.f_code.co_filename):
            return
        if frame.f_code.co_name.startswith("<"):
            return  # the iterator of a comprehension keeps the last element that it gave
        outer = frame.f_back
        is_outermost = outer is not None and outer.f_code.co_name == "<module>"
        if is_outermost or (frame.f_code.co_name == self._function and "." not in self._holder):
            sys.setprofile(None)
            self.look(frame.f_locals, frame.f_globals, frame, arg)
            sys.setprofile(self.profile)

    def look(
        self, local: dict[str, Any], known: dict[str, Any], frame: FrameType | None = None, returned: object = None
    ) -> None:
        """Counts what the name holds, where it is there; in a fork, so that the program goes on with it."""
        self._storages.forget_dead()
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                os.write(writer, json.dumps(self._count(local, known, frame, returned)).encode())
            finally:
                os._exit(0)
        os.close(writer)
        with os.fdopen(reader) as said:
            found = json.loads(said.read() or "null")
        os.waitpid(pid, 0)
        self.newest = found or self.newest

    def _count(
        self, local: dict[str, Any], known: dict[str, Any], frame: FrameType | None, returned: object
    ) -> dict[str, int | None] | None:
        first, _, attribute = self._holder.partition(".")
        own = set(frame.f_code.co_varnames[frame.f_code.co_argcount :]) if frame is not None else set()
        for name in own.intersection(local) - {first}:  # they end with the call, unlike what it was given
            value = local.pop(name)
            parts = value.values() if isinstance(value, dict) else value if isinstance(value, _CONTAINERS) else ()
            if first in {type(one).__name__ for one in (value, *parts)}:
                local[name] = value  # the owner of an attribute
            del value, parts
        _write_back(frame)
        for leaf in tree_leaves(returned):  # what the function gives back holds the graphs of what it is made of
            if isinstance(leaf, torch.Tensor) and leaf.grad_fn is not None:
                with contextlib.suppress(RuntimeError):
                    leaf.detach_()
        held = id(local.get(first, known.get(first)))
        for part in returned if isinstance(returned, tuple) else (returned,):  # it may hold some of the same
            if isinstance(part, _CONTAINERS) and id(part) != held:
                part.clear()
        before = self._storages.live_bytes()
        apart = 0
        if not attribute:
            local = frame.f_locals if frame is not None else local
            names = local if first in local else known
            if first not in names:
                return None
            apart = _whole_bytes(names[first]) if self._views else 0
            count = _drop(names, first)
            _write_back(frame)
        else:
            named = local.get(first, known.get(first))
            owners = [one for one in gc.get_objects() if type(one).__name__ == first]
            if named is not None and not isinstance(named, type):
                owners = [named]
            owners = [one for one in owners if attribute in getattr(one, "__dict__", {})]
            apart = sum(_whole_bytes(vars(one)[attribute]) for one in owners) if self._views else 0
            counts = [_drop(vars(one), attribute) for one in owners]
            if not counts:
                return None
            count = sum(filter(None, counts)) if any(counts) else None
            owners.clear()
        return {"count": count, "bytes": before - self._storages.live_bytes() - apart}


def _whole_bytes(value: object) -> int:
    """The bytes of tensors in containers that use the whole of their storage."""
    if isinstance(value, torch.Tensor):
        storage = value.untyped_storage()
        return storage.nbytes() if value.nbytes >= storage.nbytes() else 0
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, _CONTAINERS) else ()
    return sum(map(_whole_bytes, parts))


def _write_back(frame: FrameType | None) -> None:
    """Makes a call's variables those of the dictionary that was last read from it."""
    if frame is not None:
        ctypes.pythonapi.PyFrame_LocalsToFast(ctypes.py_object(frame), ctypes.c_int(1))


def _drop(names: dict[str, Any], name: str) -> int | None:
    """Lets go of what a name holds; how many elements there were, None where it is no container."""
    value = names[name]
    count = len(value) if isinstance(value, _CONTAINERS) else None
    if isinstance(value, _CONTAINERS):
        value.clear()
    names[name] = None
    return count


def main() -> None:
    """The program with the counter around it."""
    script, function, holder, code = sys.argv[1:5]
    sys.argv = [script]
    storages = Storages()
    random.seed(0)  # as `tests.corpus.forked` does: the two runs are of one program
    numpy.random.seed(0)
    torch.manual_seed(0)
    counter = Counter(script, function, holder, storages, views=code == "MG302")
    sys.path.insert(0, os.path.dirname(os.path.abspath(script)))
    with contextlib.redirect_stdout(io.StringIO()), storages:
        gc.freeze()  # torch's own objects: no count needs to look through them
        sys.setprofile(counter.profile)
        try:
            after = runpy.run_path(script, run_name="__main__")
        finally:
            sys.setprofile(None)
        if counter.newest is None or function == "<module>" or "." in holder:
            counter.look(after, after)
    print(json.dumps(counter.newest))


if __name__ == "__main__":
    main()
