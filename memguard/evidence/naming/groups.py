"""Candidate holders: found tensors grouped by name, the likeliest cause first, and the calls that feed them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from types import FrameType
from typing import final

import torch

from memguard.evidence.naming.names import MIN_ALIKE, NUMBER, growing, innermost
from memguard.heap.attributes import is_tensor
from memguard.heap.children import Scope, Via
from memguard.heap.walk import Link
from memguard.records.facts import Place
from memguard.source.expressions import arguments, called_name, chains_of
from memguard.source.model import SourceModel, Sources
from memguard.source.name_query import Statement
from memguard.source.scopes import Call
from memguard.source.scopes import Scope as SourceScope
from memguard.source.values import may_carry
from memguard.torch_objects.storages import storage_key

MAX_HOPS = 4
"""Calls from the statement's function up to the loop."""

_Call = tuple[SourceModel, SourceScope, Call]


def find_caller(
    statement: Statement, frames: Sequence[FrameType], names: Collection[object], sources: Sources, *, graph: bool
) -> Place | None:
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
    function = _function_of(statement, source)
    found: _Call | None = None
    for _ in range(MAX_HOPS):
        if function is None or function.parent is None:
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
    return Place(file=source.file, line=site.line, function=function.path)


def _function_of(statement: Statement, source: SourceModel) -> SourceScope | None:
    for function in source.scopes:
        lines = {*(store.line for store in function.stores), *(site.line for site in function.calls)}
        if function.path == statement.function and statement.line in lines:
            return function
    return None


def _calls(function: SourceScope, files: Sequence[str], sources: Sources, *, graph: bool) -> Iterator[_Call]:
    """Calls by a function's name, outside its own class, that hand over what it may keep."""
    for file in files:
        source = sources.get(file, (function.name,))
        for caller in source.scopes:
            if caller is function or (function.owner is not None and caller.owner == function.owner):
                continue
            for site in caller.calls:
                if called_name(site.node) != function.name:
                    continue
                given = arguments(site.node)
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


@final
class Group:
    """Candidates under one name."""

    def __init__(self, link: Link) -> None:
        self.link = link
        """The innermost name."""
        self.name = link
        """The name to tell: not a mere alias."""
        self.leaves: list[Link] = []
        self.bytes = 0
        """Many views of one storage weigh what it weighs."""
        self.statement: Statement | None = None
        self.feeding: Place | None = None
        """Where the function of the statement is called."""


def grouped(found: Iterable[tuple[Link, int]]) -> list[Group]:
    """The links to tensors by the name under which each lies, or the name of the container that grows."""
    found = list(found)
    keys = [name_key(leaf) for leaf, _ in found]
    alike = Counter((owner, _without_number(key)) for owner, key in dict.fromkeys(keys))
    groups: dict[tuple[int, object], Group] = {}
    counted: set[tuple[object, ...]] = set()
    for (leaf, size), key in zip(found, keys, strict=True):
        if numbered := alike[without := (key[0], _without_number(key[1]))] >= MIN_ALIKE:
            key = without  # one statement makes them all
        if key not in groups:
            groups[key] = Group(innermost(growing(leaf)))
        elif numbered:
            groups[key].link = groups[key].name = innermost(growing(leaf))  # of the newest leaf
        groups[key].leaves.append(leaf)
        storage = storage_key(leaf.value) if is_tensor(leaf.value) else None
        if storage is not None:
            if (*key, storage) in counted:
                continue
            counted.add((*key, storage))
        groups[key].bytes += size
    return list(groups.values())


def _without_number(key: object) -> object:
    return NUMBER.sub("#", key, count=1) if type(key) is str and not key[:1].isdigit() else key


def name_key(leaf: Link) -> tuple[int, object]:
    """What tells the name under which a tensor lies from others: whose it is, and which."""
    named = innermost(growing(leaf))
    owner = named.parent.value if named.parent is not None else named.value
    return id(owner), named.key


def aliases_among(found: Iterable[tuple[Link, int]], groups: Sequence[Group]) -> frozenset[str]:
    """Plain variables that refer to a tensor which some container holds as well."""
    kept = {id(leaf.value) for group in groups for leaf in group.leaves if leaf is not group.link}
    return frozenset(
        str(leaf.key) for leaf, _ in found if leaf.via in (Via.LOCAL, Via.GLOBAL) and id(leaf.value) in kept
    )


def ranked(
    groups: Sequence[Group],
    passes: Callable[[torch.Tensor, Collection[torch.Tensor]], bool] | None,
    is_passing: Callable[[Link], bool],
    is_given: Callable[[Link, Statement | None], bool],
) -> list[Group]:
    """The causes among the groups, the likeliest first.

    Where something grows or is carried over, what is merely assigned anew in each turn is a bystander, like a loss that
    was made from the carried state. Where nothing does, those are dropped whose graph goes through another's.

    Args:
        groups: The candidates, their statements found.
        passes: Tells whether a tensor's graph goes through those of others.
        is_passing: Tells whether a variable goes with its function before the batch is over: what it holds of earlier
            batches came from a name that lasts.
        is_given: Tells whether it is an argument of its function, changed once there: its caller has it too.
    """
    kept = [group for group in groups if group.statement is not None and group.statement.grows]
    explained = {owner_of(group) for group in kept if group.name is group.link}
    # What an object computes from its own attribute that grows (sum and average of a meter) is the same cause.
    kept = [group for group in kept if not (is_outside(group) and owner_of(group) in explained)]
    if not kept:
        for group in groups:
            others = [leaf.value for other in groups if other is not group for leaf in other.leaves]
            if passes is None or not passes(group.leaves[-1].value, others):
                kept.append(group)

    def hands_through(group: Group) -> bool:
        return group.name is group.link and (is_passing(group.link) or is_given(group.link, group.statement))

    def rank(group: Group) -> tuple[float, ...]:
        statement = group.statement
        return (
            -float(statement is not None and statement.grows),
            -float(statement is not None),
            float(hands_through(group)),
            -float(min(len(group.leaves), 8)),
            -(statement.score if statement is not None else 0.0),
        )

    return sorted(kept or groups, key=rank)


def owner_of(group: Group) -> int:
    """Identity of the object whose variable or attribute the name is."""
    return id(group.link.parent.value if group.link.parent is not None else group.link.value)


def is_outside(group: Group) -> bool:
    """Whether its statement was only found for a name around it."""
    return group.name is not group.link and group.name in group.link.trail()


_BACKWARDS = frozenset({"backward", "manual_backward"})


def passes_on(link: Link, frames: Sequence[FrameType], sources: Sources) -> bool:
    """Whether a variable belongs to a function that is called anew for every batch.

    That is one which calls backward, and not in a loop; or one that calls none and is called, through others like it,
    by a function that does.
    """
    scope = link.parent.value if link.parent is not None else None
    if link.via is not Via.LOCAL or type(scope) is not Scope:
        return False
    first = True
    inside = False
    for frame in frames:
        code = frame.f_code
        inside = inside or (code.co_filename, code.co_firstlineno) == (scope.file, scope.first_line)
        source = sources.get(code.co_filename if inside else None)
        function = source.scope_of(code.co_firstlineno, code.co_name)
        if function is None:
            continue
        backwards = [site for site in function.calls if called_name(site.node) in _BACKWARDS]
        if backwards:
            return not first or not any(site.loops for site in backwards)
        first = False
    return False


def is_given(link: Link, statement: Statement | None, frames: Sequence[FrameType]) -> bool:
    """Whether a variable is an argument of a function that runs, and changed once in it: its caller has it too."""
    scope = link.parent.value if link.parent is not None else None
    if link.via is not Via.LOCAL or type(scope) is not Scope or statement is None or statement.loops:
        return False
    for code in (frame.f_code for frame in frames):
        if (code.co_filename, code.co_firstlineno) == (scope.file, scope.first_line):
            return link.key in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    return False
