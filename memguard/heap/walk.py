"""The heap walk: breadth first from the roots to what is asked for, at once or in slices.

Between two slices nothing is held. What is still to be entered is remembered by its path: a root by name, and the steps
from there. The next slice looks these up again, so objects that went away meanwhile are passed over, and none lives
longer for having been met.
"""

from __future__ import annotations

import types
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, final

import torch

from memguard.clocks import thread_time
from memguard.heap.attributes import is_tensor_class
from memguard.heap.children import ChildReader, Held, Scope, Via
from memguard.heap.containers import FULL, container_of, length_of, newest_of
from memguard.heap.host_sizes import is_large_text
from memguard.heap.roots import Root, RootFinder

MAX_OBJECTS = 20_000
MAX_DEPTH = 6
"""Objects that are met in a walk, and names and elements between a root and what is met last."""
LINKED = 1 / 32
"""What an object counts of that depth that lies in an attribute of another one of its class: a list of parents."""
MAX_SECONDS = 2.0
"""A net. What ends a walk is the bound in objects: a slow or busy machine must find what a fast one finds."""
_STALL_SECONDS = 0.03
MAX_NESTED = 3
"""Containers in containers that are gone down into, to see what lies under a name."""


@final
class Budget:
    """Processor time of this thread to spend on a walk. A garbage collection in between hardly counts."""

    def __init__(self, seconds: float) -> None:
        self._left = seconds
        self._last = thread_time()

    def is_spent(self, keep: float = 0.0) -> bool:
        """Whether no more is left than is to be kept for what comes after; asked every few objects."""
        now = thread_time()
        self._left -= min(now - self._last, _STALL_SECONDS)
        self._last = now
        return self._left <= keep


@final
class Link:
    """One step of a walk: an object, and how the object before it holds it.

    Args:
        value: The object; None once the link was let go of.
        via: How it is held.
        key: Under which name or key, where that is worth telling.
        parent: The link to what holds it; None for a root.
        depth: Names and elements between the root and it.
        index: Its place among all that the parent holds.
        root: For a root, what it is found by in a walk in slices.
        watched: Whether it is a watched model or a part of one.
    """

    __slots__ = ("_path", "depth", "index", "key", "parent", "root", "start", "value", "via", "watched")

    def __init__(
        self,
        value: Any,
        via: Via,
        key: str | int | None = None,
        parent: Link | None = None,
        depth: float = 0,
        *,
        index: int = 0,
        root: Root | None = None,
        watched: bool = False,
    ) -> None:
        self.value, self.via, self.key, self.parent, self.depth = value, via, key, parent, depth
        self.index, self.watched = index, watched
        self.root: Root | None = root if parent is None else parent.root
        self.start = 0
        """How much of what it holds was met already."""
        self._path: int | None = None

    @property
    def path(self) -> int:
        """Tells the place where it was met from others, in every walk alike, whatever lies there."""
        if self._path is None:
            above = self.parent
            step = self.key if self.key is not None else self.index
            self._path = hash(self.root) if above is None else hash((above.path, step))
        return self._path

    def trail(self) -> list[Link]:
        """The links from the root to this one."""
        links: list[Link] = []
        link: Link | None = self
        while link is not None:
            links.append(link)
            link = link.parent
        return links[::-1]


@final
class Walk:
    """One walk over live objects. Holds what it met: drop it at once, or have it `let_go`.

    Args:
        on_meet: Told the link to each object, once, and to each tensor as often as it is held.
        reader: Reads what an object holds.
        names: Whether to remember all names of an object, not the first alone.

    Attributes:
        visited: Objects that were met.
    """

    def __init__(
        self,
        on_meet: Callable[[Link], None],
        *,
        reader: ChildReader | None = None,
        names: bool = True,
    ) -> None:
        self.visited = 0
        self.on_meet, self.reader = on_meet, ChildReader() if reader is None else reader
        self._names = names
        self._seen: dict[int, Link | None] = {}
        self._others: dict[int, list[Link]] = {}
        self._held: list[Link] = []
        """What was met and not let go of."""
        self._first: deque[Link] = deque()
        """Parts of watched models, which come before all else."""
        self._queue: deque[Link] = deque()

    @property
    def complete(self) -> bool:
        """Whether all that is in reach of its roots was met."""
        return self.is_done and self.visited <= MAX_OBJECTS

    @property
    def is_done(self) -> bool:
        """Whether nothing is left to enter: all was met, or so many objects that it came to its bound."""
        return not (self._first or self._queue)

    def begin(self, roots: Iterable[Link]) -> None:
        """Adds roots; those named first are found first."""
        for root in roots:
            if root.value is None or type(root.value) is Scope:  # looked up later, or made for this walk
                (self._first if root.watched else self._queue).append(root)
            elif id(root.value) not in self._seen:
                self._meet(root)

    def run(self, is_enough: Callable[[], bool] | None = None, *, find: Callable[[Link], bool] | None = None) -> None:
        """Goes on until it is enough, or nothing is left to enter.

        Args:
            is_enough: Asked before each object that is entered, and every few that it holds.
            find: Looks up the object of a link that was let go of; whether it is still there.
        """
        while queue := self._first or self._queue:
            if is_enough is not None and is_enough():
                return
            link = queue[0]
            if (find is None or find(link)) and not self._enter(link, is_enough):
                return
            queue.popleft()

    def _meet(self, link: Link) -> None:
        self._seen[id(link.value)] = link
        self._held.append(link)
        (self._first if link.watched else self._queue).append(link)

    def _enter(self, link: Link, is_enough: Callable[[], bool] | None) -> bool:
        """Meets what an object holds; whether all of it, else the link tells where to go on."""
        seen, reader, start = self._seen, self.reader, link.start
        if link.parent is None and not start:
            self.on_meet(link)
        for index, (via, key, value) in enumerate(reader(link.value)):
            kind = type(value)
            if index < start or (reader.is_empty(kind) and not is_large_text(value)):
                continue
            self.visited += 1
            if self.visited > MAX_OBJECTS:
                self._first.clear()
                self._queue.clear()
                return False
            if is_enough is not None and index > start and not self.visited & 7 and is_enough():
                link.start = index
                return False
            is_linked = via is Via.ATTRIBUTE and kind is type(link.value)
            depth = link.depth + (0 if via is Via.PART else LINKED if is_linked else 1)
            if is_tensor_class(kind):
                self.on_meet(Link(value, via, key, link, depth, index=index))
            elif id(value) in seen:
                if self._names and via is not Via.PART:
                    self._name_again(seen[id(value)], Link(value, via, key, link, depth, index=index))
            else:
                part = link.watched and via is Via.ATTRIBUTE and issubclass(kind, torch.nn.Module)
                child = Link(value, via, key, link, 0 if part else depth, index=index, watched=part)
                if child.depth <= MAX_DEPTH:
                    self._meet(child)
                self.on_meet(child)
        return True

    def _name_again(self, met: Link | None, other: Link) -> None:
        if met is not None and met.via is Via.ROOT and other.parent is not None and met not in other.parent.trail():
            met.via, met.key, met.parent = other.via, other.key, other.parent  # a root has no name; here it gets one
        else:
            self._others.setdefault(id(other.value), []).append(other)

    @property
    def links(self) -> Iterable[Link]:
        """Every object that was met and not let go of, each once, with the first way to it."""
        return self._held

    def others(self, link: Link) -> list[Link]:
        """Other names under which the object of a link was met."""
        return self._others.get(id(link.value), []) if link.value is not None else []

    def let_go(self) -> None:
        """Drops every reference to what was met; what is still to be entered is remembered by its path."""
        held, self._held = self._held, []
        for link in held:
            self._seen[id(link.value)] = link.value = None
        self._others.clear()


@final
class SlicedWalk:
    """A walk over everything in reach in slices, watched models before all else."""

    def __init__(self, models: Iterable[torch.nn.Module]) -> None:
        self._models = [weakref.ref(model) for model in models]
        self._walk = Walk(_ignore, names=False)
        self._walk.begin(
            Link(None, Via.ROOT, root=("model", "", number), watched=True) for number in range(len(self._models))
        )
        self._waiting = [RootFinder.roots, RootFinder.modules]
        """Roots that are still to be looked up."""

    @property
    def complete(self) -> bool:
        """Whether nothing is left to enter: all was met, or so many objects that it came to its bound."""
        walk = self._walk
        return walk.is_done and not (self._waiting and walk.complete)

    def advance(
        self,
        frames: Sequence[types.FrameType],
        extra: Iterable[tuple[str, object]],
        visit: Callable[[Link], None],
        is_enough: Callable[[], bool],
    ) -> None:
        """Meets the next objects, until it is enough.

        Args:
            frames: The user's frames as they stand now.
            extra: Further objects by name.
            visit: Told each object that is met; must not keep the link.
            is_enough: Asked before each object that is entered, and every few that it holds.
        """
        walk = self._walk
        finder = RootFinder([ref() for ref in self._models], frames, dict(extra))
        places = _Places(finder, ChildReader(frames))
        walk.on_meet, walk.reader = visit, places.reader
        try:
            walk.run(is_enough, find=places.find)
            while walk.is_done and not self.complete:
                self._add(self._waiting.pop(0)(finder))
                walk.run(is_enough, find=places.find)
        finally:
            walk.let_go()
            places.let_go()
            walk.on_meet, walk.reader = _ignore, ChildReader()

    def _add(self, roots: Iterable[Root]) -> None:
        self._walk.begin(
            Link(None, Via.ROOT, str(root[1]) if root[0] == "extra" else None, root=root) for root in roots
        )


@final
class _Places:
    """Looks up what one slice enters; gone with it."""

    def __init__(self, finder: RootFinder, reader: ChildReader) -> None:
        self.reader = reader
        self._finder = finder
        self._contents: dict[int, list[Held]] = {}
        self._found: list[Link] = []

    def find(self, link: Link) -> bool:
        """Sets the object of a link that was let go of; whether it is still there."""
        if link.value is None:
            link.value = self._look_up(link)
            if link.value is None:
                return False
            self._found.append(link)
        return True

    def _look_up(self, link: Link) -> Any:
        parent = link.parent
        if parent is None:
            return self._finder.value_of(link.root)
        if not self.find(parent):
            return None
        held = self._contents.get(parent.path)
        if held is None:
            held = self._contents[parent.path] = list(self.reader(parent.value))
        index, via, key = link.index, link.via, link.key
        if index < len(held) and held[index][0] is via and held[index][1] == key:
            return held[index][2]
        return next((one[2] for one in held if one[0] is via and one[1] == key), None) if key is not None else None

    def let_go(self) -> None:
        """Drops every reference."""
        for link in self._found:
            link.value = None
        self._found.clear()
        self._contents.clear()


def _ignore(link: Link) -> None:
    pass


def innermost_newest(link: Link) -> Link:
    """Down from a container through its newest elements, while they are containers.

    ``slides[key].append(x)`` fills a list that a defaultdict has just made: under the name lies a dict of lists. A list
    that is longer than the long one that is asked about is another one; in a few lists, by event, any may be longer.
    """
    longest = max(length_of(link.value), FULL)
    for _ in range(MAX_NESTED):
        newest = newest_of(link.value)
        if container_of(type(newest)) is None or length_of(newest) > longest:
            break
        link = Link(newest, Via.ITEM, None, link)
    return link
