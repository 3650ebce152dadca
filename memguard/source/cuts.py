"""Where the source cuts the graph of what a name holds: ``h = h.detach()``, not ``log.append(h.detach())``."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from typing import final

from memguard.source.expressions import (
    assigns,
    called_name,
    flat_targets,
    item_base,
    last_part,
    method_base,
    names_set,
    spans,
    symbol_of,
    targets_of,
)
from memguard.source.model import SourceModel
from memguard.source.vocabulary import ADDS

_CUTS = frozenset({"detach", "detach_", "data"})


def is_cut(file: str | None, line: int | None, holder: str | None) -> bool:
    """Whether the graph of what a name holds is cut anywhere in a file, or may be: ``state = state.detach()``.

    A detached copy that only lies somewhere else leaves the name with its graph: ``log.append(state.detach())``.

    Args:
        file: Where the state is made.
        line: The statement that makes it.
        holder: Its name, like ``hidden`` or ``Actor.hidden``.
    """
    model = SourceModel.of(file) if holder else None
    if model is None:
        return False
    name, _ = symbol_of(holder)
    return bool(cuts_of(model, name)) or any(_is_remade(node, name, line) for node in model.all_of(ast.Assign))


def _is_remade(node: ast.Assign, name: str, line: int | None) -> bool:
    """Whether another statement than the one on a line gives a name what a function makes of it alone, and may cut.

    As ``hidden = repackage(hidden)`` does.
    """
    if not isinstance(node.value, ast.Call) or not assigns(node, name):
        return False
    call = node.value
    alone = len(call.args) == 1 and not call.keywords and last_part(call.args[0]) == name
    return alone and (line is None or not spans(node, line))


def cuts_of(model: SourceModel, name: str) -> set[int]:
    """The ids of the nodes that cut the graph of what a name holds, or may: what they give may come back to it."""
    found: set[int] = set()
    cutting = [part for part in model.all_of(ast.Attribute) if _is_cutting(part)]
    for part in cutting:
        flow = _flow_of(model)
        statement = flow.statements[id(part)]
        if last_part(part.value) != name and not _is_part_of(part.value, statement, name):
            continue
        reached = {one for targets, _ in flow.gifts_of(statement) for one in targets}
        stays = part.attr != "detach_" and isinstance(part.ctx, ast.Load)
        if not (stays and reached) or flow.comes_to(name, reached):
            found.add(id(part))  # also where it is an argument, returned, asked for
    return found


@functools.lru_cache(maxsize=4)
def _flow_of(model: SourceModel) -> _Flow:
    return _Flow(model)


def _is_cutting(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and node.attr in _CUTS


def _is_part_of(value: ast.expr, statement: ast.AST, name: str) -> bool:
    """Whether it is one of several in a name: ``h`` of ``tuple(h.detach() for h in hidden)``; ``torch.detach`` too."""
    if not isinstance(value, ast.Name):
        return False
    if value.id == "torch" or any(isinstance(part, ast.Lambda) for part in ast.walk(statement)):
        return _occurs(name, statement)
    turns = [part for part in ast.walk(statement) if isinstance(part, ast.comprehension)]
    return any(_occurs(value.id, turn.target) and _occurs(name, turn.iter) for turn in turns)


def _occurs(name: str, node: ast.AST) -> bool:
    return any(isinstance(part, (ast.Name, ast.Attribute)) and last_part(part) == name for part in ast.walk(node))


@final
class _Flow:
    """Which names of a file are given what of others. A variable of a function is told from others: ``x@12``."""

    def __init__(self, model: SourceModel) -> None:
        self._model = model
        self._scoped = dict(self._variables())
        self.statements: dict[int, ast.stmt] = {}
        """The innermost statements that what cuts is part of."""
        for statement in model.all_of(ast.stmt):
            self.statements.update((id(part), statement) for part in ast.walk(statement) if _is_cutting(part))
        self._gifts = [gift for one in model.nodes for gift in self.gifts_of(one)]

    def comes_to(self, name: str, reached: set[str]) -> bool:
        """Whether what some names are given may come to another."""
        before = 0
        while len(reached) > before:
            before = len(reached)
            for targets, read in self._gifts:
                if reached & read:
                    reached |= targets
        return any(one.partition("@")[0] == name for one in reached)

    def gifts_of(self, node: ast.AST) -> Iterator[tuple[set[str], set[str]]]:
        """The names to which a statement gives something, and those in what it gives them."""
        if isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.NamedExpr, ast.For, ast.AsyncFor)):
            value = node.iter if isinstance(node, (ast.For, ast.AsyncFor)) else node.value
            if value is not None:
                yield set(self._named(targets_of(node))), self._read(value)
        elif isinstance(node, ast.Expr) and called_name(node.value) in ADDS and (base := method_base(node.value)):
            yield set(self._named([base])), self._read(node.value)

    def _variables(self) -> Iterator[tuple[int, str]]:
        for function in reversed(self._model.functions):  # what is in a function shares its names
            parts = list(ast.walk(function))
            shared = {one for part in parts if isinstance(part, (ast.Global, ast.Nonlocal)) for one in part.names}
            own = names_set(function) | {part.arg for part in parts if isinstance(part, ast.arg)}
            for part in parts:
                if isinstance(part, ast.Name) and part.id in own - shared:
                    yield id(part), f"{part.id}@{function.lineno}"

    def _named(self, targets: list[ast.expr]) -> Iterator[str]:
        for target in flat_targets(targets):
            base = item_base(target)
            if isinstance(base, ast.Attribute):
                yield base.attr
            elif isinstance(base, ast.Name):
                yield self._scoped.get(id(base), base.id)

    def _read(self, node: ast.AST) -> set[str]:
        parts = list(ast.walk(node))
        names = {self._scoped.get(id(part), part.id) for part in parts if isinstance(part, ast.Name)}
        return names | {part.attr for part in parts if isinstance(part, ast.Attribute)}
