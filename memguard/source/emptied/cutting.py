"""Where the source cuts the graph of what a name holds: ``state = state.detach()``, not ``log.append(state.detach())``.

Read from the syntax tree. A detached copy that only lies somewhere else leaves the name with its graph.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import final

from memguard.source.emptied.bounded import FUNCTIONS, assigns, last_part
from memguard.source.parsing import parse_file

_CUTTING = frozenset({"detach", "detach_", "data"})
_ADDING = frozenset({"append", "appendleft", "add", "extend", "insert"})
_Given = tuple[set[str], set[str]]


def is_cut(file: str | None, line: int | None, holder: str | None) -> bool:
    """Whether the graph of what a name holds is cut anywhere in a file, or may be.

    Args:
        file: Where the state is made.
        line: The statement that makes it.
        holder: Its name, like ``hidden`` or ``Actor.hidden``.
    """
    if file is None or not holder or (tree := parse_file(file)) is None:
        return False
    name = holder.partition("[")[0].rpartition(".")[2]
    return bool(cuts_of(tree, name)) or any(_is_handed_over(node, name, line) for node in ast.walk(tree))


def cuts_of(tree: ast.Module, name: str) -> set[int]:
    """The ids of the nodes that cut the graph of what a name holds, or may: what they give may come back to it."""
    around: dict[int, ast.stmt] = {}
    for statement in ast.walk(tree):  # breadth first: the innermost comes last
        if isinstance(statement, ast.stmt):
            around.update((id(part), statement) for part in ast.walk(statement) if _is_cutting(part))
    if not around:
        return set()
    names = _Names(tree)
    given = [one for node in ast.walk(tree) for one in names.gifts(node)]
    found = set()
    for part in ast.walk(tree):
        if not isinstance(part, ast.Attribute) or id(part) not in around:
            continue
        statement = around[id(part)]
        if last_part(part.value) != name and not _is_part_of(part.value, statement, name):
            continue
        reached = {one for targets, _ in names.gifts(statement) for one in targets}
        stays = part.attr != "detach_" and isinstance(part.ctx, ast.Load)
        if not (stays and reached) or _comes_to(name, reached, given):
            found.add(id(part))  # also where it is handed to somebody, given back, asked for
    return found


def _is_cutting(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and node.attr in _CUTTING


def _is_part_of(value: ast.expr, statement: ast.stmt, name: str) -> bool:
    """Whether it is one of several in a name: ``h`` of ``tuple(h.detach() for h in hidden)``; ``torch.detach`` too."""
    if not isinstance(value, ast.Name):
        return False
    if value.id == "torch" or any(isinstance(part, ast.Lambda) for part in ast.walk(statement)):
        return _occurs(name, statement)
    turns = [part for part in ast.walk(statement) if isinstance(part, ast.comprehension)]
    return any(_occurs(value.id, turn.target) and _occurs(name, turn.iter) for turn in turns)


def _occurs(name: str, node: ast.AST) -> bool:
    return any(isinstance(part, (ast.Name, ast.Attribute)) and last_part(part) == name for part in ast.walk(node))


def _comes_to(name: str, reached: set[str], given: list[_Given]) -> bool:
    """Whether what some names are given may come to another."""
    before = 0
    while len(reached) > before:
        before = len(reached)
        for targets, read in given:
            if reached & read:
                reached |= targets
    return any(one.partition("@")[0] == name for one in reached)


@final
class _Names:
    """The names of a file. A variable of a function is told from others that are called like it: ``x@12``."""

    def __init__(self, tree: ast.Module) -> None:
        self._scoped: dict[int, str] = {}
        for function in ast.walk(tree):  # breadth first: the outermost comes first, and what is in it shares its names
            if not isinstance(function, FUNCTIONS):
                continue
            parts = list(ast.walk(function))
            shared = {one for part in parts if isinstance(part, (ast.Global, ast.Nonlocal)) for one in part.names}
            own = {part.id for part in parts if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)}
            own |= {part.arg for part in parts if isinstance(part, ast.arg)}
            for part in parts:
                if isinstance(part, ast.Name) and part.id in own - shared:
                    self._scoped.setdefault(id(part), f"{part.id}@{function.lineno}")

    def gifts(self, node: ast.AST) -> Iterator[_Given]:
        """The names to which a statement gives something, and those in what it gives them."""
        if isinstance(node, ast.Assign):
            yield {one for target in node.targets for one in self._filled(target)}, self._read(node.value)
        elif isinstance(node, (ast.AnnAssign, ast.AugAssign, ast.NamedExpr)) and node.value is not None:
            yield set(self._filled(node.target)), self._read(node.value)
        elif isinstance(node, (ast.For, ast.AsyncFor)):
            yield set(self._filled(node.target)), self._read(node.iter)
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            call = node.value.func
            if isinstance(call, ast.Attribute) and call.attr in _ADDING:
                yield set(self._filled(call.value)), self._read(node.value)

    def _filled(self, target: ast.expr) -> Iterator[str]:
        if isinstance(target, (ast.Tuple, ast.List)):
            for element in target.elts:
                yield from self._filled(element)
        elif isinstance(target, (ast.Starred, ast.Subscript)):
            yield from self._filled(target.value)
        elif isinstance(target, ast.Attribute):
            yield target.attr
        elif isinstance(target, ast.Name):
            yield self._scoped.get(id(target), target.id)

    def _read(self, node: ast.AST) -> set[str]:
        parts = list(ast.walk(node))
        names = {self._scoped.get(id(part), part.id) for part in parts if isinstance(part, ast.Name)}
        return names | {part.attr for part in parts if isinstance(part, ast.Attribute)}


def _is_handed_over(node: ast.AST, name: str, line: int | None) -> bool:
    """Whether another statement than the one on a line gives a name what a function makes of it alone.

    As ``hidden = repackage(hidden)`` does, which may cut it.
    """
    if not isinstance(node, ast.Assign) or not assigns(node, name) or not isinstance(node.value, ast.Call):
        return False
    call = node.value
    alone = len(call.args) == 1 and not call.keywords and last_part(call.args[0]) == name
    return alone and (line is None or not node.lineno <= line <= (node.end_lineno or node.lineno))
