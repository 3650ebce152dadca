"""Whether the value of an expression has the autograd graph of what some variables hold."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from memguard.source.functions import Function
from memguard.source.values import may_carry


def flows(node: ast.AST, function: Function, held: set[str], at: int | None = None) -> bool:
    """Whether the value of an expression has the graph of what some variables hold.

    Args:
        node: The expression.
        function: Where it stands.
        held: The variables.
        at: A line on which calls of parts of ``self`` give such a graph as well.
    """
    if isinstance(node, ast.Name):
        return node.id in held
    if isinstance(node, ast.Compare):
        return False
    if isinstance(node, ast.Call):
        if at is not None and node.lineno <= at <= (node.end_lineno or at) and is_own(node.func):
            return True
        if not may_carry(node, function, graph=True):
            return False
    if isinstance(node, ast.Attribute) and not may_carry(node, function, graph=True):
        return False
    return any(flows(part, function, held, at) for part in ast.iter_child_nodes(node))


def is_own(node: ast.expr) -> bool:
    """Whether an expression is ``self``, or what is reached from it."""
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        node = node.value
    return isinstance(node, ast.Name) and node.id == "self"


def names_in(node: ast.expr) -> Iterator[str]:
    """The variables that an expression mentions."""
    return (part.id for part in ast.walk(node) if isinstance(part, ast.Name))
