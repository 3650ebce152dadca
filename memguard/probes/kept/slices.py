"""A walk in slices: some objects in this batch, further ones in the next. Between two slices nothing is held.

What is still to be entered is remembered by its position: a root by name, and the steps from there. A slice looks these
up again, so objects that went away meanwhile are passed over, and none lives longer for having been met.
"""

from __future__ import annotations

import sys
import types
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, final

import torch

from memguard.probes.naming.walk import MAX_DEPTH, MAX_OBJECTS, Link
from memguard.probes.objects import Contents, Held, Scope, Via, attributes_of
from memguard.probes.objects.frames import LIBRARIES, is_user_module
from memguard.probes.objects.host_sizes import is_large_text

Root = tuple[str, object, int]
"""Kind, name and number of a root: ("frame", code's place, 0), ("model", "", 1), ("extra", "trainer", 0)."""
Step = tuple[Via, "str | int | None", int]
"""How an object holds the next one: the way, the key if any, and the place among all that it holds."""
NAMES_AT_ONCE = 32
"""Names in `sys.modules` that count as one step."""


@final
class Position:
    """Where an object was met, in plain data.

    Args:
        root: Where the way to it begins.
        parent: The position of the object that holds it; None for a root.
        step: How that one holds it.
        depth: Names and elements on the way.
        watched: Whether it is a watched model or a part of one.
    """

    __slots__ = ("depth", "number", "parent", "root", "start", "step", "watched")

    def __init__(
        self, root: Root, parent: Position | None, step: Step | None, depth: int = 0, *, watched: bool = False
    ) -> None:
        self.root, self.parent, self.step, self.depth, self.watched = root, parent, step, depth, watched
        self.start = 0
        """How much of what it holds was met already."""
        self.number: int
        """Tells this position from others, in every walk alike."""
        if parent is None or step is None:
            self.number = hash(root)
        else:
            self.number = hash((parent.number, step[1] if step[1] is not None else step[2]))


Visit = Callable[[Link, Position], None]


@final
class SlicedWalk:
    """One walk over everything in reach, breadth first, watched models before all else.

    Args:
        models: The watched models.
        max_objects: Objects that are met in all.
        max_depth: Names and elements between a root and what is met last.

    Attributes:
        complete: Whether there is nothing left to enter.
    """

    def __init__(
        self, models: Iterable[torch.nn.Module], *, max_objects: int = MAX_OBJECTS, max_depth: int = MAX_DEPTH
    ) -> None:
        self.complete = False
        self._models = [weakref.ref(model) for model in models]
        self._seen = {id(model) for ref in self._models if (model := ref()) is not None}
        self._parts = deque(_start(("model", "", i), watched=True) for i in range(len(self._models)))
        self._others: deque[Position] = deque()
        self._names: list[str] | None = None
        self._left, self._max_depth = max_objects, max_depth

    def advance(
        self,
        frames: Sequence[types.FrameType],
        extra: Iterable[tuple[str, object]],
        visit: Visit,
        is_enough: Callable[[], bool],
    ) -> None:
        """Meets the next objects, until it is enough.

        Args:
            frames: The user's frames as they stand now.
            extra: Further objects by name.
            visit: Told each object that is met; must not keep the link.
            is_enough: Asked before each object that is entered, and every few that it holds.
        """
        slice_ = _Slice(self._models, frames, dict(extra))
        while not self.complete:
            queue = self._parts or self._others
            if not queue:
                if not self._begin_others(slice_, is_enough):
                    return
                continue
            if is_enough():
                return
            position = queue[0]
            link = slice_.link_of(position)
            if link is None or self._enter(link, position, slice_, visit, is_enough):
                queue.popleft()
            if self._left < 0:
                self.complete = True

    def _begin_others(self, slice_: _Slice, is_enough: Callable[[], bool]) -> bool:
        """Once the models are done: the other roots; the walk is complete when there are none. False for enough."""
        if self._names is None:
            self._names = list(sys.modules)
            self._others.extend(_start(root) for root in slice_.roots())
            return True
        while self._names:
            names, self._names = self._names[:NAMES_AT_ONCE], self._names[NAMES_AT_ONCE:]
            self._others.extend(_start(("module", name, 0)) for name in names if _is_the_users(name))
            if is_enough():
                return False
        self.complete = not self._others
        return True

    def _enter(
        self, link: Link, position: Position, slice_: _Slice, visit: Visit, is_enough: Callable[[], bool]
    ) -> bool:
        """Meets what an object holds; whether all of it, else the position tells where to go on."""
        seen, contents, start = self._seen, slice_.contents, position.start
        if position.parent is None and not start:
            visit(link, position)
        for index, (via, key, value) in enumerate(contents(link.value)):
            kind = type(value)
            if index < start or (contents.is_empty(kind) and not is_large_text(value)):
                continue
            self._left -= 1
            if self._left < 0 or (index > start and not self._left & 7 and is_enough()):
                position.start = index
                return False
            is_tensor = issubclass(kind, torch.Tensor)
            if not is_tensor:
                if id(value) in seen:
                    continue
                seen.add(id(value))
            part = position.watched and via is Via.ATTRIBUTE and issubclass(kind, torch.nn.Module)
            depth = 0 if part else position.depth + (via is not Via.PART)
            child = Link(value, via, key, link, depth)
            following = Position(position.root, position, (via, key, index), depth, watched=part)
            visit(child, following)
            if not is_tensor and depth <= self._max_depth:
                (self._parts if part else self._others).append(following)
                slice_.links[following.number] = child
        return True


def _start(root: Root, *, watched: bool = False) -> Position:
    return Position(root, None, None, watched=watched)


def _is_the_users(name: str) -> bool:
    module = sys.modules.get(name)
    if name.partition(".")[0] in LIBRARIES or not issubclass(type(module), types.ModuleType):
        return False
    file = attributes_of(module).get("__file__")
    return is_user_module(name, file if type(file) is str else None)


@final
class _Slice:
    """What one slice looks up; gone with it.

    Attributes:
        contents: Reads what objects hold.
        links: What was met or looked up in this slice, by position.
    """

    def __init__(
        self,
        models: Sequence[weakref.ref[torch.nn.Module]],
        frames: Sequence[types.FrameType],
        extra: dict[str, object],
    ) -> None:
        self.contents = Contents(frames)
        self.links: dict[int, Link] = {}
        self._models, self._extra = models, extra
        self._frames: dict[Root, types.FrameType] = {}
        self._globals: dict[Root, types.FrameType] = {}
        namespaces: set[int] = set()
        # Outermost first: an inner function may be over in the next slice, and what was met by its names alone is lost.
        for frame in reversed(frames):
            code = frame.f_code
            place = (code.co_filename, code.co_firstlineno, code.co_name)
            if code.co_name != "<module>":
                number = sum(root[1] == place for root in self._frames)
                self._frames["frame", place, number] = frame
            if id(frame.f_globals) not in namespaces:
                namespaces.add(id(frame.f_globals))
                self._globals["globals", str(frame.f_globals.get("__name__")), len(self._globals)] = frame
        self._namespaces = namespaces
        self._held: dict[int, list[Held]] = {}

    def roots(self) -> list[Root]:
        """The roots besides models and modules."""
        return [*self._frames, *self._globals, *(("extra", name, 0) for name in self._extra)]

    def link_of(self, position: Position) -> Link | None:
        """The object at a position; None if it went away."""
        link = self.links.get(position.number)
        if link is None:
            link = self._look_up(position)
            if link is not None:
                self.links[position.number] = link
        return link

    def _look_up(self, position: Position) -> Link | None:
        if position.parent is None or position.step is None:
            return self._root(position.root)
        parent = self.link_of(position.parent)
        if parent is None:
            return None
        held = self._held.get(position.parent.number)
        if held is None:
            held = self._held[position.parent.number] = list(self.contents(parent.value))
        via, key, index = position.step
        if index < len(held) and held[index][0] is via and held[index][1] == key:
            return Link(held[index][2], via, key, parent, position.depth)
        found = next((one[2] for one in held if one[0] is via and one[1] == key), None) if key is not None else None
        return Link(found, via, key, parent, position.depth) if found is not None else None

    def _root(self, root: Root) -> Link | None:
        kind, name, number = root
        value: Any = None
        if kind == "model":
            value = self._models[number]()
        elif kind == "frame" and root in self._frames:
            value = Scope.of_frame(self._frames[root])
        elif kind == "globals" and root in self._globals:
            frame = self._globals[root]
            value = Scope(dict(frame.f_globals), frame.f_code.co_filename)
        elif kind == "extra":
            return Link(self._extra[str(name)], Via.ROOT, str(name)) if name in self._extra else None
        elif kind == "module":
            variables = attributes_of(sys.modules.get(str(name)))
            if variables and id(variables) not in self._namespaces:
                value = Scope(dict(variables), str(variables.get("__file__") or "<stdin>"))
        return Link(value, Via.ROOT) if value is not None else None
