"""Candidate holders: found tensors grouped by name, the likeliest cause first."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from types import FrameType
from typing import final

import torch

from memguard.evidence.naming.callers import Feeding
from memguard.evidence.naming.names import growing, innermost
from memguard.heap.children import Scope, Via
from memguard.heap.tensors import is_tensor
from memguard.heap.walk import Link
from memguard.source.expressions import called_name
from memguard.source.model import Sources
from memguard.source.name_query import Statement
from memguard.torch_objects.storages import storage_key


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
        self.feeding: Feeding | None = None
        """Where the function of the statement is called."""


def grouped(found: Iterable[tuple[Link, int]]) -> list[Group]:
    """The links to tensors by the name under which each lies, or the name of the container that grows."""
    groups: dict[tuple[int, object], Group] = {}
    counted: set[tuple[object, ...]] = set()
    for leaf, size in found:
        key = name_key(leaf)
        if key not in groups:
            groups[key] = Group(innermost(growing(leaf)))
        groups[key].leaves.append(leaf)
        storage = storage_key(leaf.value) if is_tensor(leaf.value) else None
        if storage is not None:
            if (*key, storage) in counted:
                continue
            counted.add((*key, storage))
        groups[key].bytes += size
    return list(groups.values())


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

    Args:
        link: A name that holds something.
        frames: The user's frames, innermost first.
        sources: The parsed files.
    """
    scope = link.parent.value if link.parent is not None else None
    if link.via is not Via.LOCAL or type(scope) is not Scope:
        return False
    first = True
    inside = False
    for frame in frames:
        code = frame.f_code
        inside = inside or (code.co_filename, code.co_firstlineno) == (scope.file, scope.first_line)
        source = sources.get(code.co_filename) if inside else None
        function = source.scope_of(code.co_firstlineno, code.co_name) if source is not None else None
        if function is None:
            continue
        backwards = [site for site in function.calls if called_name(site.node) in _BACKWARDS]
        if backwards:
            return not first or not any(site.loops for site in backwards)
        first = False
    return False


def is_given(link: Link, statement: Statement | None, frames: Sequence[FrameType]) -> bool:
    """Whether a variable is an argument of a function that runs, and changed once in it: its caller has it too.

    Args:
        link: A name that holds something.
        statement: What changes it.
        frames: The user's frames, innermost first.
    """
    scope = link.parent.value if link.parent is not None else None
    if link.via is not Via.LOCAL or type(scope) is not Scope or statement is None or statement.loops:
        return False
    for code in (frame.f_code for frame in frames):
        if (code.co_filename, code.co_firstlineno) == (scope.file, scope.first_line):
            return link.key in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    return False
