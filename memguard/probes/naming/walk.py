"""A bounded walk down from the roots, breadth first, to whatever objects are asked for."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, final

from memguard.clocks import thread_time
from memguard.probes.objects import Contents, Via, container_of, length_of
from memguard.probes.objects.host_sizes import is_large_text, newest_of

MAX_OBJECTS = 20_000
MAX_DEPTH = 6
MAX_SECONDS = 2.0
"""A net. What ends a walk is the bound in objects: a slow or busy machine must find what a fast one finds."""
_STALL_SECONDS = 0.03
MAX_NESTED = 3
"""Containers in containers that are gone down into, to see what lies under a name."""


@final
class Budget:
    """Processor time of this thread to spend on a walk. A garbage collection or another stall in between hardly counts.

    Args:
        seconds: How much there is.
    """

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
@dataclass(slots=True, eq=False)
class Link:
    """One step of the walk: an object, and how the object before it holds it. Lives as long as the walk."""

    value: Any
    via: Via
    key: str | int | None = None
    parent: Link | None = None
    depth: int = 0

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
    """One walk over live objects.

    Args:
        is_target: Whether objects of a type are looked for; they are handed over and not entered.
        on_target: Told every link to such an object; one held in several places is told once for each.
        contents: Reads what an object holds.
        max_objects: Bound of the walk.
        max_depth: Names and elements between a root and what is met last.
        max_seconds: Bound of the walk in time, where it has no budget to share with others.
        budget: What it may spend together with others.
        keep: How much of that, in seconds, it has to leave them.

    Attributes:
        complete: False when the walk stopped at a bound.
    """

    def __init__(
        self,
        is_target: Callable[[type], bool],
        on_target: Callable[[Link], None],
        *,
        contents: Contents | None = None,
        max_objects: int = MAX_OBJECTS,
        max_depth: int = MAX_DEPTH,
        max_seconds: float = MAX_SECONDS,
        budget: Budget | None = None,
        keep: float = 0.0,
    ) -> None:
        self.complete = True
        self.visited = 0
        self._is_target = is_target
        self._on_target = on_target
        self._contents = Contents() if contents is None else contents
        self._targets: dict[int, tuple[type, bool]] = {}
        self._seen: dict[int, Link] = {}
        self._others: dict[int, list[Link]] = {}
        self._max_objects, self._max_depth = max_objects, max_depth
        self._budget, self._keep = budget or Budget(max_seconds), keep

    def run(self, roots: Iterable[Link]) -> None:
        """Walks from the roots; those named first are found first."""
        contents, seen, targets = self._contents, self._seen, self._targets
        budget, keep = self._budget, self._keep
        queue: deque[Link] = deque()
        for root in roots:
            if id(root.value) not in seen:
                seen[id(root.value)] = root
                queue.append(root)
        while queue:
            link = queue.popleft()
            for via, key, value in contents(link.value):
                kind = type(value)
                if contents.is_empty(kind) and not is_large_text(value):
                    continue
                self.visited += 1
                if self.visited > self._max_objects or (not self.visited & 31 and budget.is_spent(keep)):
                    self.complete = False
                    return
                known = targets.get(id(kind))
                if known is None:
                    known = targets[id(kind)] = (kind, self._is_target(kind))
                depth = link.depth + (via is not Via.PART)
                if known[1]:
                    self._on_target(Link(value, via, key, link, depth))
                elif id(value) in seen:
                    if via is Via.PART:
                        continue
                    met = seen[id(value)]
                    if met.via is Via.ROOT and met not in link.trail():
                        met.via, met.key, met.parent = via, key, link  # a root by itself has no name; here it gets one
                    else:
                        self._others.setdefault(id(value), []).append(Link(value, via, key, link, depth))
                elif depth <= self._max_depth:
                    seen[id(value)] = child = Link(value, via, key, link, depth)
                    queue.append(child)

    @property
    def links(self) -> Iterable[Link]:
        """Every object that was met, each once, with the first way to it."""
        return self._seen.values()

    def others(self, link: Link) -> list[Link]:
        """Other names under which the object of a link was met."""
        return self._others.get(id(link.value), [])


def kind_of(obj: object) -> str:
    """The built-in container that an object is, or ``"object"``."""
    return container_of(type(obj)) or "object"


def innermost_newest(link: Link) -> Link:
    """Down from a container through its newest elements, while they are containers, none longer than the first.

    ``slides[key].append(x)`` fills a list that a defaultdict has just made: under the name lies a dict of lists.
    """
    longest = length_of(link.value)
    for _ in range(MAX_NESTED):
        newest = newest_of(link.value)
        if container_of(type(newest)) is None or length_of(newest) > longest:
            break
        link = Link(newest, Via.ITEM, None, link)
    return link
