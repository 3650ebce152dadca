"""The call that feeds a meter, a buffer or a logger which keeps tensors."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import final

from memguard.source.expressions import called_name, chains_of
from memguard.source.model import SourceModel, Sources
from memguard.source.name_query import Statement
from memguard.source.scopes import Call, Scope
from memguard.source.values import may_carry
from memguard.text.places import place_text

MAX_HOPS = 4
"""Calls from the statement's function up to the loop."""

_Call = tuple[SourceModel, Scope, Call]


@final
@dataclass(frozen=True, slots=True)
class Feeding:
    """Calls that lead to the statement which keeps something. Plain data."""

    file: str
    line: int
    function: str
    """Where the loop makes the first of them."""

    def __str__(self) -> str:
        return place_text(self.file, self.line)


def find_caller(
    statement: Statement, frames: Sequence[FrameType], names: Collection[object], sources: Sources, *, graph: bool
) -> Feeding | None:
    """The calls that lead to a statement; None if its function runs already, or is not called at one place.

    Args:
        statement: Stores something.
        frames: The user's frames, innermost first.
        names: Names and keys on the way to what it stores: of several calls those are looked at that go through them.
        sources: The parsed files.
        graph: Whether it is a graph that is kept; a call that hands none over is no cause.
    """
    running = {(frame.f_code.co_filename, frame.f_code.co_firstlineno) for frame in frames}
    files = list(dict.fromkeys([*(frame.f_code.co_filename for frame in frames), statement.file]))
    source = sources.get(statement.file)
    function = _function_of(statement, source) if source is not None else None
    found: _Call | None = None
    for _ in range(MAX_HOPS):
        if source is None or function is None or function.parent is None:
            break
        if (source.file, function.first_line) in running or function.name.startswith("__"):
            break
        call = _only(list(_calls(function, files, sources, graph=graph)), running, names)
        if call is None:
            break
        found = call
        source, function = call[0], call[1]
    if found is None:
        return None
    source, function, site = found
    return Feeding(source.file, site.line, function.path)


def _function_of(statement: Statement, source: SourceModel) -> Scope | None:
    for function in source.scopes:
        lines = {*(store.line for store in function.stores), *(site.line for site in function.calls)}
        if function.path == statement.function and statement.line in lines:
            return function
    return None


def _calls(function: Scope, files: Sequence[str], sources: Sources, *, graph: bool) -> Iterator[_Call]:
    """Calls by a function's name, outside its own class, that hand over what it may keep."""
    for file in files:
        source = sources.get(file) if sources.mention(file, (function.name,)) else None
        for caller in source.scopes if source is not None else ():
            if source is None or caller is function or (function.owner is not None and caller.owner == function.owner):
                continue
            for site in caller.calls:
                if called_name(site.node) != function.name:
                    continue
                given = site.arguments()
                if not given or any(may_carry(argument, caller, graph=graph) for argument in given):
                    yield source, caller, site


def _only(calls: list[_Call], running: Collection[tuple[str, int]], names: Collection[object]) -> _Call | None:
    """The likeliest of the calls; None where several lines are equally likely."""

    def rank(call: _Call) -> tuple[bool, bool, bool]:
        source, caller, site = call
        steps = {name for chain in chains_of(site.node.func) for _, name in chain[:-1]}
        return bool(steps & set(names)), (source.file, caller.first_line) in running, site.loops

    best = max(map(rank, calls), default=None)
    likely = [call for call in calls if rank(call) == best]
    return likely[0] if len({(source.file, site.line) for source, _, site in likely}) == 1 else None
