"""Names who holds tensors: the variable or attribute, and the statement that puts them there."""

from __future__ import annotations

import functools
import sys
import types
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, final

import torch

from memguard.facts import Place
from memguard.probes.collector import roots_by_collector
from memguard.probes.contents import (
    Contents,
    Scope,
    Via,
    attributes_of,
    is_user_class,
    length_of,
    mro_of,
    namespace_of,
)
from memguard.probes.frames import is_user_file, user_frames
from memguard.probes.roots import roots_of
from memguard.probes.statements import Hints, Sought, Statement, find_collecting, find_statement
from memguard.probes.syntax import Sources
from memguard.probes.walk import MAX_OBJECTS, MAX_SECONDS, Link, Walk, kind_of
from memguard.stats import Stage

Judge = Callable[[torch.Tensor], "int | None"]
"""Bytes that a tensor accounts for if it is looked for, else None."""

_NAMES = (Via.LOCAL, Via.GLOBAL, Via.CLOSURE, Via.DEFAULT, Via.ATTRIBUTE)
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
        group.statement = _locate(group, walk, frames, sources, hints)
    return tuple(_holder(group) for group in _ranked(groups, passes))


def _group(found: Iterable[tuple[Link, int]]) -> list[_Group]:
    groups: dict[tuple[int, object], _Group] = {}
    for leaf, size in found:
        named = _innermost(leaf)
        owner = named.parent.value if named.parent is not None else named.value
        key = (id(owner), named.key)
        if key not in groups:
            groups[key] = _Group(named)
        groups[key].leaves.append(leaf)
        groups[key].bytes += size
    return list(groups.values())


def _innermost(leaf: Link) -> Link:
    """The last link of a trail that has a name."""
    link = leaf
    while link.via not in _NAMES and link.parent is not None:
        link = link.parent
    return link


def _aliases(found: Iterable[tuple[Link, int]], groups: Sequence[_Group]) -> frozenset[str]:
    """Plain variables that refer to a tensor which some container holds as well."""
    kept = {id(leaf.value) for group in groups for leaf in group.leaves if leaf is not group.link}
    return frozenset(
        str(leaf.key) for leaf, _ in found if leaf.via in (Via.LOCAL, Via.GLOBAL) and id(leaf.value) in kept
    )


def _locate(
    group: _Group, walk: Walk, frames: Sequence[types.FrameType], sources: Sources, hints: Hints
) -> Statement | None:
    """The best statement for a group: for its innermost name, else for the names further out."""
    files = [frame.f_code.co_filename for frame in frames]
    leaf = group.leaves[-1]
    trail = leaf.trail()
    for index in range(len(trail) - 1, -1, -1):
        link = trail[index]
        if type(link.value) is _LRU_CACHE:
            return _cached_function(link.value, sources)
        if link.via not in _NAMES:
            continue
        best: Statement | None = None
        for name in [link, *walk.others(link)]:
            sought = _sought(name, trail[index:])
            if sought is None:
                continue
            near = [*files, *_files_of(name)]
            statement = find_statement(sought, near, sources, hints)
            if statement is None:
                statement = find_statement(sought, [*near, *_all_files()], sources, hints)
            if statement is not None and (best is None or statement.score > best.score):
                best = statement
        if best is not None:
            return best
    return None


def _sought(name: Link, rest: Sequence[Link]) -> Sought | None:
    """What to look for in the syntax tree, for a name and the trail from its value down to the tensor."""
    links = [link for link in rest if link.via is not Via.PART]
    kinds = [kind_of(link.value) for link in links[:-1]] + ["tensor"]
    keys = [link.key if link.via is Via.ITEM else None for link in links[1:]]
    lengths = [length_of(link.value) for link in links]
    grows = lengths.index(max(lengths))
    parent = name.parent
    if parent is None or type(name.key) is not str:
        return None
    below = {"kinds": tuple(kinds), "keys": tuple(keys), "grows": grows}
    owner = parent.value
    if name.via is Via.ATTRIBUTE:
        base = next((link.key for link in reversed(parent.trail()) if link.via in _NAMES), None)
        if type(owner) is types.FunctionType:
            return Sought(name.key, True, base=owner.__name__, **below)  # type: ignore[arg-type]
        cls = owner if issubclass(type(owner), type) else type(owner)
        classes = tuple(_name_of(item) for item in mro_of(cls) if item is not object)
        return Sought(name.key, True, classes=classes, base=base if type(base) is str else None, **below)  # type: ignore[arg-type]
    if type(owner) is Scope:
        return Sought(
            name.key,
            file=owner.file,
            first_line=owner.first_line,
            function=owner.function,
            **below,  # type: ignore[arg-type]
        )
    if type(owner) is types.FunctionType:
        code = owner.__code__
        return Sought(name.key, file=code.co_filename, first_line=code.co_firstlineno, function=code.co_name, **below)  # type: ignore[arg-type]
    return None


def _name_of(cls: type) -> str:
    return str(type.__dict__["__name__"].__get__(cls))


def _files_of(name: Link) -> list[str]:
    """Files of the user's classes that own an attribute."""
    owner: Any = name.parent.value if name.parent is not None else None
    cls = owner if issubclass(type(owner), type) else type(owner)
    files = []
    for item in mro_of(cls):
        if not is_user_class(item):
            continue
        for function in list(namespace_of(item).values()):
            if type(function) is types.FunctionType and is_user_file(function.__code__.co_filename):
                files.append(function.__code__.co_filename)
                break
    return files


def _all_files() -> list[str]:
    """Files of all the user's modules."""
    scopes = (root.value for root in roots_of(()))
    return [scope.file for scope in scopes if type(scope) is Scope and scope.file.endswith(".py")]


def _cached_function(wrapper: Any, sources: Sources) -> Statement | None:
    function = attributes_of(wrapper).get("__wrapped__")
    if type(function) is not types.FunctionType:
        return None
    code = function.__code__
    source = sources.get(code.co_filename)
    text = source.text(code.co_firstlineno, code.co_firstlineno) if source is not None else ""
    return Statement(code.co_filename, code.co_firstlineno, code.co_name, text, True, 3.0)


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
    link, statement = group.link, group.statement
    trail = group.leaves[-1].trail()
    length = max(length_of(item.value) for item in trail[trail.index(link) :])
    if statement is not None:
        place = Place(
            file=statement.file,
            line=statement.line,
            function=statement.function,
            holder=_text_of(link),
            source=statement.source,
        )
    else:
        place = _place_of_name(link)
    return Holder(
        place=place,
        kind=link.via.value if link.via in _NAMES else "unnamed",
        tensors=len(group.leaves),
        length=max(length, 1),
        bytes=group.bytes,
        grows=statement is not None and statement.grows,
    )


def _text_of(link: Link) -> str:
    """``history``, ``LitModel.outputs``, ``state.total``: a name as a reader of the program would write it."""
    if link.via is not Via.ATTRIBUTE or link.parent is None:
        return str(link.key) if link.key is not None else _name_of(type(link.value))
    owner = link.parent.value
    if type(owner) is types.FunctionType:
        return f"{owner.__name__}.{link.key}"
    cls = owner if issubclass(type(owner), type) else type(owner)
    outer = next((item for item in reversed(link.parent.trail()) if item.via in _NAMES), None)
    if is_user_class(cls) or outer is None:
        return f"{_name_of(cls)}.{link.key}"
    return f"{_text_of(outer)}.{link.key}"


def _place_of_name(link: Link) -> Place:
    """Where a name lives, for want of a statement."""
    owner = link.parent.value if link.parent is not None else None
    if type(owner) is Scope:
        return Place(file=owner.file, line=owner.line, function=owner.function, holder=_text_of(link))
    if type(owner) is types.FunctionType:
        code = owner.__code__
        return Place(file=code.co_filename, line=code.co_firstlineno, function=code.co_name, holder=_text_of(link))
    return Place(holder=_text_of(link))


def _collected(statement: Statement) -> Holder:
    place = Place(
        file=statement.file, line=statement.line, function=statement.function, holder=None, source=statement.source
    )
    return Holder(place=place, kind="unnamed", tensors=0, length=1, bytes=0, grows=True)
