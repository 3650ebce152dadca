"""Names who holds tensors: the variable or attribute, and the statement that puts them there."""

from __future__ import annotations

import functools
import sys
import types
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import final

import torch

from memguard.facts import Place
from memguard.probes.collector import roots_by_collector
from memguard.probes.contents import Contents, Via, length_of
from memguard.probes.frames import user_frames
from memguard.probes.names import (
    NAMES,
    cached_function,
    files_of_owner,
    growing,
    innermost,
    place_of,
    sought_of,
    text_of,
    user_files,
)
from memguard.probes.roots import roots_of
from memguard.probes.statements import Hints, Sought, Statement, find_collecting, find_statement, is_alias
from memguard.probes.syntax import Sources
from memguard.probes.walk import MAX_OBJECTS, MAX_SECONDS, Link, Walk
from memguard.stats import Stage

Judge = Callable[[torch.Tensor], "int | None"]
"""Bytes that a tensor accounts for if it is looked for, else None."""

_LRU_CACHE = type(functools.lru_cache(lambda: None))


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """Who holds the tensors that were looked for. Plain data: nothing is kept alive."""

    place: Place
    """The statement that stores them, or where the name lives if no statement was found."""
    kind: str
    """``"local"``, ``"global"``, ``"closure"``, ``"default"``, ``"attribute"`` or ``"unnamed"``."""
    tensors: int
    """How many were met (long containers are sampled)."""
    length: int
    """Length of the longest container on the way; 1 without one."""
    bytes: int
    grows: bool
    """Whether the statement adds to what was there; False for a plain assignment, or when none was found."""

    def __str__(self) -> str:
        place = self.place
        name = {"closure": f"closure of {place.function}() {place.holder!r}", "global": f"global {place.holder}"}
        text = name.get(self.kind, place.holder or "unknown")
        if self.kind == "local":
            text = f"{place.function}() {place.holder!r}" if place.function else repr(place.holder)
        return f"{place.file}:{place.line} {text}" if place.file else text


@final
class _Group:
    """Candidates under one name."""

    def __init__(self, link: Link) -> None:
        self.link = link
        """The innermost name."""
        self.name = link
        """The name to tell: not a mere alias."""
        self.leaves: list[Link] = []
        self.bytes = 0
        self.statement: Statement | None = None


def find_holders(
    judge: Judge,
    *,
    models: Iterable[object] = (),
    extra: Iterable[tuple[str, object]] = (),
    stage: Stage | None = None,
    graph: bool = True,
    passes: Callable[[torch.Tensor, Collection[torch.Tensor]], bool] | None = None,
    frame: types.FrameType | None = None,
    max_objects: int = MAX_OBJECTS,
    max_seconds: float = MAX_SECONDS,
    collector: bool = True,
) -> tuple[Holder, ...]:
    """Who holds the tensors a judge recognises, the likeliest cause first; empty if nothing in Python does.

    Runs none of the user's code and keeps nothing alive.

    Args:
        judge: Recognises the tensors.
        models: Watched root models.
        extra: Further objects by name where a holder may hang: trainer, callbacks, metrics, data module.
        stage: Stage in which the tensors came to be, if known.
        graph: Whether it is their graphs that matter; a statement that stores detached values is then no cause.
        passes: Tells whether a tensor's graph goes through those of others; such a tensor is dropped, unless its own
            name grows (`memguard.probes.reach.Reach.passes`).
        frame: Where the stack begins; the caller's frame if not given.
        max_objects: Bound of the walk.
        max_seconds: Bound of the walk in time, the judge's included.
        collector: Whether to ask the garbage collector for referrers when the walk finds nobody.
    """
    frames = list(user_frames(sys._getframe(1) if frame is None else frame))
    found: list[tuple[Link, int]] = []
    sizes: dict[int, int | None] = {}

    def on_target(link: Link) -> None:
        key = id(link.value)
        if key not in sizes:
            sizes[key] = judge(link.value)
        size = sizes[key]
        if size is not None:
            found.append((link, size))

    def walk_from(roots: Iterable[Link], tried: bool = False) -> Walk:
        walk = Walk(
            lambda kind: issubclass(kind, torch.Tensor),
            on_target,
            contents=Contents(() if tried else frames),
            max_objects=max_objects,
            max_seconds=max_seconds,
        )
        walk.run(roots)
        return walk

    sources = Sources()
    walk = walk_from(roots_of(frames, models, extra))
    if not found:
        statement = find_collecting([(f.f_code.co_filename, f.f_lineno) for f in frames], sources, graph=graph)
        if statement is not None:
            return (_collected(statement),)
        if collector:
            walk = walk_from([Link(obj, Via.ROOT) for obj in roots_by_collector(judge)], True)
    groups = _group(found)
    running = frozenset((f.f_code.co_filename, f.f_code.co_firstlineno) for f in frames)
    evaluates = None if stage is None or stage is Stage.OTHER else stage.evaluates
    aliases = _aliases(found, groups)
    for group in groups:
        hints = Hints(graph, running, aliases, evaluates)
        _locate(group, walk, frames, sources, hints)
    return tuple(_holder(group) for group in _ranked(groups, passes))


def _group(found: Iterable[tuple[Link, int]]) -> list[_Group]:
    groups: dict[tuple[int, object], _Group] = {}
    for leaf, size in found:
        named = innermost(growing(leaf))
        owner = named.parent.value if named.parent is not None else named.value
        key = (id(owner), named.key)
        if key not in groups:
            groups[key] = _Group(named)
        groups[key].leaves.append(leaf)
        groups[key].bytes += size
    return list(groups.values())


def _aliases(found: Iterable[tuple[Link, int]], groups: Sequence[_Group]) -> frozenset[str]:
    """Plain variables that refer to a tensor which some container holds as well."""
    kept = {id(leaf.value) for group in groups for leaf in group.leaves if leaf is not group.link}
    return frozenset(
        str(leaf.key) for leaf, _ in found if leaf.via in (Via.LOCAL, Via.GLOBAL) and id(leaf.value) in kept
    )


def _locate(group: _Group, walk: Walk, frames: Sequence[types.FrameType], sources: Sources, hints: Hints) -> None:
    """Sets a group's statement and name.

    The name of the longest container comes first, then those between it and the tensor, from the inside out, then those
    around it; the first with a statement that makes it grow is taken, else the innermost with an assignment.
    """
    files = [frame.f_code.co_filename for frame in frames]
    trail = group.leaves[-1].trail()
    start = trail.index(group.link)
    for index in [start, *range(len(trail) - 1, start, -1), *range(start - 1, -1, -1)]:
        link = trail[index]
        if type(link.value) is _LRU_CACHE:
            group.name, group.statement = innermost(link), cached_function(link.value, sources)
            return
        if link.via not in NAMES:
            continue
        names = [(link, trail[index:])]
        for other in walk.others(link):
            above = other.trail()
            name = innermost(other)
            names.append((name, above[above.index(name) :] + trail[index + 1 :]))
        known = [(name, what) for name, rest in names if (what := sought_of(name, rest)) is not None]
        found = [
            statement
            for name, what in known
            if (statement := _statement(what, [*files, *files_of_owner(name)], sources, hints)) is not None
        ]
        best = max(found, key=lambda statement: statement.score, default=None)
        if best is None or not _better(best, group.statement, outside=index < start):
            continue
        own = [name for name, what in known if what.attribute or not is_alias(what, sources)]
        group.statement, group.name = best, own[0] if own else link
        if best.grows and best.certain:
            return


def _better(new: Statement, old: Statement | None, *, outside: bool) -> bool:
    """Whether a statement for a further name explains more than the one for the names before.

    Args:
        new: The statement for the further name.
        old: The best so far.
        outside: Whether the further name lies around those before, not between them and the tensor.
    """
    if old is None:
        return True
    if outside:
        return new.grows and new.certain and new.loops and not old.grows
    return new.grows > old.grows or (new.grows == old.grows and new.certain >= old.certain and not new.quiet)


def _statement(what: Sought, near: Sequence[str], sources: Sources, hints: Hints) -> Statement | None:
    found = find_statement(what, near, sources, hints)
    return found if found is not None else find_statement(what, [*near, *user_files()], sources, hints)


def _ranked(
    groups: Sequence[_Group], passes: Callable[[torch.Tensor, Collection[torch.Tensor]], bool] | None
) -> list[_Group]:
    """The groups without those that only lie downstream of another, the likeliest cause first."""
    growing = [group for group in groups if group.statement is not None and group.statement.grows]
    causes = growing or list(groups)
    kept = list(growing)
    for group in groups:
        if group in growing:
            continue
        tensor = group.leaves[-1].value
        others = [leaf.value for other in causes if other is not group for leaf in other.leaves]
        if any(tensor is other for other in others) and growing:
            continue
        if passes is not None and passes(tensor, others):
            continue
        kept.append(group)

    def rank(group: _Group) -> tuple[float, ...]:
        statement = group.statement
        return (
            -float(statement is not None and statement.grows),
            -float(statement is not None),
            -float(min(len(group.leaves), 8)),
            -(statement.score if statement is not None else 0.0),
        )

    return sorted(kept or groups, key=rank)


def _holder(group: _Group) -> Holder:
    link, name, statement = group.link, group.name, group.statement
    trail = group.leaves[-1].trail()
    length = max(length_of(item.value) for item in trail[trail.index(link) :])
    if statement is not None:
        place = Place(
            file=statement.file,
            line=statement.line,
            function=statement.function,
            holder=text_of(name),
            source=statement.source,
        )
    else:
        place = place_of(name)
    return Holder(
        place=place,
        kind=name.via.value if name.via in NAMES else "unnamed",
        tensors=len(group.leaves),
        length=max(length, 1),
        bytes=group.bytes,
        grows=statement is not None and statement.grows,
    )


def _collected(statement: Statement) -> Holder:
    place = Place(
        file=statement.file, line=statement.line, function=statement.function, holder=None, source=statement.source
    )
    return Holder(place=place, kind="unnamed", tensors=0, length=1, bytes=0, grows=True)
