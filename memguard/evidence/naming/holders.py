"""Names what holds tensors: the variable or attribute, and the statement that stores them there."""

from __future__ import annotations

import functools
import sys
import types
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import final

import torch

from memguard.evidence.naming.groups import Group, aliases_among, find_caller, grouped, is_given, passes_on, ranked
from memguard.evidence.naming.names import NAMES, cells_of, innermost, place_of, text_of
from memguard.evidence.naming.statements import find_cause, numbered_attribute
from memguard.heap.children import ChildReader, Via
from memguard.heap.containers import container_of, has_tensor_keys, length_of
from memguard.heap.frames import function_key, user_frames
from memguard.heap.roots import roots_by_collector, roots_of
from memguard.heap.snapshot import HeapSnapshot, is_below_failure, unsampled_tensors
from memguard.heap.walk import MAX_SECONDS, Budget, Link, innermost_newest
from memguard.records.facts import Place
from memguard.records.stats import Stage
from memguard.source.model import Sources
from memguard.source.name_query import SearchContext
from memguard.source.search import find_collecting
from memguard.text.places import place_text

Judge = Callable[[torch.Tensor], "int | None"]
"""Bytes that a tensor accounts for if it is looked for, else None."""

MAX_GROUPS = 24
"""Names that are looked up in the syntax tree."""


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
    certain: bool = True
    """False for a call that only may store what it is given."""
    exception: bool = False
    """Whether what is held is an exception, whose traceback leads to the tensors."""
    container: int | None = None
    """Id of the longest container on the way, only good while that lives."""


@final
class HolderSearch:
    """One walk over everything in reach, to be asked several questions. Holds what it met: drop it at once.

    Args:
        models: Watched root models.
        extra: Further objects by name where a holder may hang: trainer, callbacks, metrics, data module.
        frames: The user's frames, innermost first; those that run if not given.
        walk: Whether to walk from these roots at once; else the garbage collector alone is asked.
        stage: The stage that is under way, where it matters to what grows.
        calling: Functions that were seen to call a model while graphs piled up.

    Attributes:
        snapshot: What the walk met.
    """

    def __init__(
        self,
        *,
        models: Iterable[object] = (),
        extra: Iterable[tuple[str, object]] = (),
        frames: Iterable[types.FrameType] | None = None,
        walk: bool = True,
        stage: Stage | None = None,
        calling: Iterable[tuple[str, int]] = (),
    ) -> None:
        self.frames = list(user_frames(sys._getframe(1)) if frames is None else frames)
        self.budget = Budget(MAX_SECONDS)  # half for the walk, a quarter for the judge, the rest for reading sources
        self.sources = Sources(is_late=self.budget.is_spent)
        self.cells = cells_of(self.frames)
        self._stage, self._calling = stage, frozenset(calling)
        self._is_late = functools.partial(self.budget.is_spent, MAX_SECONDS / 2)
        roots, reader = roots_of(self.frames, models, extra) if walk else (), ChildReader(self.frames)
        self.snapshot = HeapSnapshot(roots, reader=reader, is_late=self._is_late)

    def by_holder(
        self, found: Sequence[tuple[Link, int]], *, plain: bool = False, graph: bool = False
    ) -> list[tuple[Holder, list[Link]]]:
        """Each holder with the links to what it holds; nothing is ranked or dropped.

        Arrays and texts are plain. Where it is graphs that matter, what stores values without one is no cause, nor is
        an argument that its caller has too.
        """
        named = []
        for group in grouped(found)[:MAX_GROUPS]:
            trail = group.leaves[-1].trail()
            self._set_cause(group, trail, self._context(graph=graph, numbers=plain))
            if not (graph and is_given(group.link, group.statement, self.frames)):
                named.append((_holder(group), group.leaves))
        return named

    def cause(self, link: Link, *, graph: bool = False, tensors: bool = False) -> Place:
        """The name to tell for any object that was met, and the statement that puts it there, or fills it.

        Args:
            link: Leads to the object.
            graph: Whether it is filled with what carries graphs.
            tensors: Or with tensors at least: a statement that stores a number is then no cause.
        """
        link = numbered_attribute(link) or link
        filled = container_of(type(link.value)) is not None
        leaf = Link(None, Via.ITEM, None, innermost_newest(link)) if filled else link
        group = Group(innermost(link))
        group.leaves.append(leaf)
        numbers = filled and (not tensors or has_tensor_keys(link.value)) and not graph
        self._set_cause(group, leaf.trail(), self._context(graph=graph, numbers=numbers))
        return _holder(group).place

    def _context(
        self, *, graph: bool, numbers: bool = False, stage: Stage | None = None, names: frozenset[str] = frozenset()
    ) -> SearchContext:
        """What is known of the run, and of the stage in which tensors came to be."""
        stage = stage or self._stage
        return SearchContext(
            names=names,
            graph=graph,
            numbers=numbers,
            running={function_key(frame): frame.f_lineno for frame in self.frames},
            calling=self._calling,
            cells=self.cells,
            evaluates=None if stage is None or stage is Stage.OTHER else stage.evaluates,
        )

    def _set_cause(self, group: Group, trail: list[Link], context: SearchContext) -> None:
        files = [frame.f_code.co_filename for frame in self.frames]
        files += [file for cells in self.cells for file in sorted(cells)]
        cause = find_cause(trail, trail.index(group.link), self.snapshot, files, self.sources, context)
        group.name, group.statement = cause.name, cause.statement
        if cause.statement is not None and cause.statement.grows:
            names = {link.key for link in trail}
            group.feeding = find_caller(cause.statement, self.frames, names, self.sources, graph=context.graph)

    def find(
        self,
        judge: Judge,
        *,
        stage: Stage | None = None,
        graph: bool = True,
        passes: Callable[[torch.Tensor, Collection[torch.Tensor]], bool] | None = None,
        collector: bool = True,
        rest: Callable[[Iterable[torch.Tensor]], None] | None = None,
    ) -> tuple[Holder, ...]:
        """Who holds the tensors a judge recognises, the likeliest cause first; empty if nothing in Python does.

        Runs none of the user's code and keeps nothing alive. Of a graph that is kept, a statement that stores detached
        values is no cause; where nothing grows, a tensor is dropped through whose graph another one passes.

        Args:
            judge: Recognises the tensors.
            stage: The stage in which they came to be, where that is known.
            graph: Whether it is graphs that are kept.
            passes: Tells whether a tensor's graph goes through those of others (`Reach.passes`).
            collector: Whether the garbage collector is asked for referrers when the walk finds nobody.
            rest: Gets the tensors of which no holder is needed, and the judge was not asked: the walk reads samples of
                long containers.
        """
        found = self.judged(judge) or self.judged(judge, unsampled=True)
        if not found:
            names = [frame.f_code.co_name for frame in self.frames]
            inner = [next((name for name in names[:1] if name.startswith("<") and name != "<module>"), None), *names]
            running = [(f.f_code.co_filename, f.f_lineno, name) for f, name in zip(self.frames, inner, strict=False)]
            statement = find_collecting(running, self.sources, graph=graph)
            if statement is not None:
                place = statement.place(None)
                return (Holder(place=place, kind="unnamed", tensors=0, length=1, bytes=0, grows=True),)
            if collector:
                self.snapshot.close()
                roots = ((None, obj) for obj in roots_by_collector(judge, self._is_late))
                self.snapshot = HeapSnapshot(roots, is_late=self._is_late)
                found = self.judged(judge)
        if rest is not None:
            rest(link.value for link in unsampled_tensors(link for link, _ in found))
        return self.holders(found, stage=stage, graph=graph, passes=passes)

    def judged(self, judge: Judge, *, unsampled: bool = False) -> list[tuple[Link, int]]:
        """The links to tensors that a judge recognises, with their bytes.

        With `unsampled` the links to those that the walk left out, for of a long container it reads a sample. In a fast
        loop a list of losses has hundreds of elements before the first search.
        """
        met, keep = self.snapshot.tensors, MAX_SECONDS / 4
        sizes: dict[int, int | None] = {}
        found = []
        for link in unsampled_tensors(met) if unsampled else met:
            key = id(link.value)
            if key not in sizes:
                if self.budget.is_spent(keep):
                    break
                sizes[key] = judge(link.value)
            size = sizes[key]
            if size is not None:
                found.append((link, size))
        return found

    def holders(
        self,
        found: Sequence[tuple[Link, int]],
        *,
        stage: Stage | None = None,
        graph: bool = False,
        passes: Callable[[torch.Tensor, Collection[torch.Tensor]], bool] | None = None,
    ) -> tuple[Holder, ...]:
        """Names who holds what some links lead to, the likeliest cause first."""
        groups = grouped(found)
        context = self._context(graph=graph, stage=stage, names=aliases_among(found, groups))
        for group in groups[:MAX_GROUPS]:
            self._set_cause(group, group.leaves[-1].trail(), context)
        is_passing = functools.partial(passes_on, frames=self.frames, sources=self.sources)
        causes = ranked(groups[:MAX_GROUPS], passes, is_passing, functools.partial(is_given, frames=self.frames))
        return _merged(_holder(group) for group in causes)


def _holder(group: Group) -> Holder:
    link, name, statement = group.link, group.name, group.statement
    trail = group.leaves[-1].trail()
    longest = max((item.value for item in trail[trail.index(link) :]), key=length_of)
    length = length_of(longest)
    if statement is not None:
        place = replace(
            statement.place(text_of(name)),
            caller=None if group.feeding is None else place_text(group.feeding.file or "", group.feeding.line),
            caller_function=None if group.feeding is None else group.feeding.function,
            in_frame=any(type(item.value) is types.FrameType for item in trail),
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
        certain=statement is not None and statement.certain,
        container=id(longest) if length else None,
        exception=is_below_failure(group.leaves[-1]),
    )


def _merged(holders: Iterable[Holder]) -> tuple[Holder, ...]:
    """Holders of one name and place as one: several instances of a class, the links of a chain."""
    found: dict[tuple[str | None, int | None, str | None], Holder] = {}
    for holder in holders:
        key = (holder.place.file, holder.place.line, holder.place.holder)
        old = found.get(key)
        if old is not None:
            holder = replace(old, tensors=old.tensors + holder.tensors, bytes=old.bytes + holder.bytes)
        found[key] = holder
    return tuple(found.values())
