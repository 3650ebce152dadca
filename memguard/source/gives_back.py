"""Whether a function gives back what one of its lines makes: then the line that calls it is where it goes on."""

from __future__ import annotations

import ast

from memguard.source.emptied.bounded import FUNCTIONS
from memguard.source.keepers import shares
from memguard.source.parsing import parse_file

_LOOPS = (ast.For, ast.AsyncFor, ast.While)


def gives_back(file: str, line: int) -> bool:
    """Whether the function around a line returns what the line makes, and keeps it nowhere else.

    Args:
        file: A source file.
        line: A ``return``, or an assignment to a variable that the function sets once, in no loop, and returns.
    """
    tree = parse_file(file)
    inside = [] if tree is None else [n for n in ast.walk(tree) if isinstance(n, FUNCTIONS) and _spans(n, line)]
    if not inside:
        return False
    function = max(inside, key=lambda node: node.lineno)  # the innermost
    returns = [node.value for node in ast.walk(function) if isinstance(node, ast.Return) and node.value is not None]
    if any(_spans(value, line) for value in returns):
        return True
    sets = [node for node in ast.walk(function) if isinstance(node, ast.Assign)]
    target = next((node.targets[0] for node in sets if _spans(node, line) and len(node.targets) == 1), None)
    if not isinstance(target, ast.Name) or not any(shares(value, target.id) for value in returns):
        return False
    if in_loop(function, line):
        return False  # there the variable itself still has the last turn's
    names = [node for node in ast.walk(function) if isinstance(node, ast.Name) and node.id == target.id]
    kept = any(shares(node.value, target.id) for node in sets)
    return not kept and sum(isinstance(node.ctx, ast.Store) for node in names) == 1


def outlives_its_run(tree: ast.Module, line: int, name: str) -> bool:
    """Whether a variable set on a line still has its value when the line runs again: no function's that has ended."""
    inside = [node for node in ast.walk(tree) if isinstance(node, FUNCTIONS) and _spans(node, line)]
    if not inside:
        return True
    function = max(inside, key=lambda node: node.lineno)
    outer = [node for node in ast.walk(function) if isinstance(node, (ast.Global, ast.Nonlocal))]
    return in_loop(function, line) or any(name in node.names for node in outer)


def in_loop(function: ast.AST, line: int) -> bool:
    """Whether a line runs in a loop."""
    return any(isinstance(node, _LOOPS) and _spans(node, line) for node in ast.walk(function))


def _spans(node: ast.stmt | ast.expr, line: int) -> bool:
    return node.lineno <= line <= (node.end_lineno or node.lineno)
