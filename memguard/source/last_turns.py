"""Whether a loop's variable still has the last turn's value while the statement that sets it anew runs, for nothing."""

from __future__ import annotations

import ast

from memguard.source.emptied.bounded import FUNCTIONS
from memguard.source.functions import Function
from memguard.source.parsing import parse_file

_LOOPS = (ast.For, ast.AsyncFor, ast.While)


def is_left_unread(file: str, line: int, name: str) -> bool:
    """Whether every turn of a loop sets a variable on a line by a call, and nobody reads the last turn's value.

    Nobody: what reads the variable stands below that statement in the loop, and in no function inside.

    Args:
        file: A source file.
        line: The line of an assignment.
        name: The variable.
    """
    tree = parse_file(file)
    if tree is None:
        return False
    inside = [node for node in ast.walk(tree) if isinstance(node, FUNCTIONS) and _spans(node, line)]
    scope = max(inside, key=lambda node: node.lineno, default=tree)
    loop = max(
        (node for node in ast.walk(scope) if isinstance(node, _LOOPS) and _spans(node, line)),
        key=lambda node: node.lineno,
        default=None,
    )
    statement = next((part for part in loop.body if _spans(part, line)), None) if loop is not None else None
    if loop is None or not isinstance(statement, ast.Assign) or not isinstance(statement.value, ast.Call):
        return False
    if not any(_sets(target, name) for target in statement.targets):
        return False
    last, end = statement.end_lineno or statement.lineno, loop.end_lineno or loop.lineno
    for node in ast.walk(scope):
        if isinstance(node, (*FUNCTIONS, ast.Lambda)) and node is not scope and _reads(node, name):
            return False
        if isinstance(node, ast.Name) and node.id == name:
            wanted = isinstance(node.ctx, ast.Load) and not last < node.lineno <= end
            if wanted or isinstance(node.ctx, ast.Del):
                return False
    return True


def is_being_set(function: Function | None, file: str, line: int, name: str) -> bool:
    """Whether the statement that runs sets a variable anew, while it has the last turn's value for nothing.

    Args:
        function: The function that runs.
        file: Its source file.
        line: The line that runs.
        name: The variable.
    """
    for store in function.stores if function is not None else ():
        if store.line <= line <= store.end_line and _sets(store.target, name) and not store.from_loop:
            return is_left_unread(file, store.line, name)
    return False


def _sets(target: ast.expr, name: str) -> bool:
    """Whether an assignment's target is a variable, or some of which it is one: ``loss, probs = step(batch)``."""
    parts = target.elts if isinstance(target, (ast.Tuple, ast.List)) else [target]
    return any(isinstance(part, ast.Name) and part.id == name for part in parts)


def _reads(function: ast.AST, name: str) -> bool:
    return any(isinstance(node, ast.Name) and node.id == name for node in ast.walk(function))


def _spans(node: ast.AST, line: int) -> bool:
    first: int = getattr(node, "lineno", 0)
    return first <= line <= (getattr(node, "end_lineno", None) or first)
