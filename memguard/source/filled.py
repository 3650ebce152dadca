"""Which containers a loop fills round by round: made before it, added to in it; read from the syntax tree."""

from __future__ import annotations

import ast

from memguard.source.functions import Function
from memguard.source.read_again import loops_around

_ADDS = frozenset({"append", "appendleft", "extend", "add", "insert", "update", "setdefault"})


def filled_at(function: Function, name: str, line: int) -> int | None:
    """The first line at which the innermost loop around a line adds to a local variable that it does not make anew.

    Args:
        function: Where the variable is.
        name: The variable.
        line: Where the program stands.
    """
    loop = max(loops_around(function.node, line), key=lambda each: each.lineno, default=None)
    if loop is None:
        return None
    inside = range(loop.lineno, (loop.end_lineno or loop.lineno) + 1)
    stores = [store for store in function.stores if store.line in inside and _root(store.target) == name]
    if any(isinstance(store.target, ast.Name) and not store.augmented for store in stores):
        return None
    calls = [
        site.line
        for site in function.calls
        if site.line in inside
        and isinstance(site.node.func, ast.Attribute)
        and site.node.func.attr in _ADDS
        and _root(site.node.func.value) == name
    ]
    return min([*(store.line for store in stores), *calls], default=None)


def _root(expression: ast.expr) -> str | None:
    """The variable that ``name``, ``name[key]`` or ``name[key][other]`` begins with."""
    while isinstance(expression, ast.Subscript):
        expression = expression.value
    return expression.id if isinstance(expression, ast.Name) else None
