"""Whether a function reads a variable again after a line, before it gets a new value."""

from __future__ import annotations

import ast

from memguard.source.syntax import Source

_BRANCHES = (ast.If, ast.For, ast.While, ast.Try, ast.AsyncFor)


def names_set(target: ast.expr) -> set[str]:
    """The variables that a target sets."""
    return {node.id for node in ast.walk(target) if isinstance(node, ast.Name)}


def is_read_again(source: Source | None, first_line: int, function: str, name: str, line: int) -> bool | None:
    """Whether a function reads a variable after a line, before it gets a new value; None if that cannot be told.

    A loop around the line is gone through once more from its beginning: what comes first there, a read or a new value,
    decides. A nested function that uses the variable counts as a read.
    """
    node = source.node_at(first_line, function) if source is not None else None
    if node is None:
        return None
    # On one line a value is read before the name is set: x = f(x).
    uses = sorted(_uses(node, name), key=lambda use: (use[0], use[2] != "read"))
    if any(kind == "nested" for _, _, kind in uses):
        return True
    if _comes_first(node, [(at, kind) for at, _, kind in uses if at > line], line):
        return True
    for loop in loops_around(node, line):
        inside = [(at, kind) for at, _, kind in uses if loop.lineno <= at <= (loop.end_lineno or at)]
        if _comes_first(node, inside, line) and not _sets_earlier(loop, name):
            return True
    return False


def _comes_first(function: ast.AST, uses: list[tuple[int, str]], line: int) -> bool:
    """Whether a read comes before a new value; one that a branch sets is new in the rest of that branch only."""
    anew: list[range] = []
    for at, kind in uses:
        if any(at in lines for lines in anew):
            continue
        if kind == "read":
            return True
        if not is_in_branch(function, at, line):
            return False
        if is_in_branch(function, at, line, ast.If):
            anew.append(_rest_of_block(function, at))
    return False


def _rest_of_block(function: ast.AST, at: int) -> range:
    """The lines below a statement in the same branch or loop."""
    statements = [node for node in ast.walk(function) if isinstance(node, ast.stmt)]  # the outer ones first
    end, over = at, at
    for node in statements:
        if node.lineno == at:
            over = node.end_lineno or at
        for part in () if isinstance(node, (ast.With, ast.AsyncWith)) else ("body", "orelse", "finalbody"):
            block = getattr(node, part, None)
            if isinstance(block, list) and block and block[0].lineno <= at <= (block[-1].end_lineno or at):
                end = block[-1].end_lineno or at
    return range(over + 1, end + 1)


def _sets_earlier(loop: ast.For | ast.AsyncFor | ast.While, name: str) -> bool:
    return not isinstance(loop, ast.While) and name in names_set(loop.target)


def _uses(function: ast.AST, name: str) -> list[tuple[int, int, str]]:
    """(line, column, "read", "set" or "nested") of a name in a function."""
    found: list[tuple[int, int, str]] = []
    stack: list[tuple[ast.AST, bool]] = [(child, False) for child in ast.iter_child_nodes(function)]
    while stack:
        node, nested = stack.pop()
        nested = nested or isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef))
        if isinstance(node, ast.Name) and node.id == name:
            kind = "nested" if nested else "read" if isinstance(node.ctx, ast.Load) else "set"
            found.append((node.lineno, node.col_offset, kind))
        elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name) and node.target.id == name:
            found.append((node.lineno, node.col_offset, "read"))
        stack.extend((child, nested) for child in ast.iter_child_nodes(node))
    return found


def is_in_branch(
    function: ast.AST | None, at: int, line: int, kinds: type[ast.AST] | tuple[type[ast.AST], ...] = _BRANCHES
) -> bool:
    """Whether a line stands in a branch or loop that the other line is not in: it may be passed over."""
    for node in ast.walk(function) if function is not None else ():
        if isinstance(node, kinds):
            first: int = getattr(node, "lineno", 0)
            end: int = getattr(node, "end_lineno", None) or first
            if first <= at <= end and not first <= line <= end:
                return True
    return False


def loops_around(function: ast.AST | None, line: int) -> list[ast.For | ast.AsyncFor | ast.While]:
    """The loops of a function that a line stands in."""
    return [
        node
        for node in (ast.walk(function) if function is not None else ())
        if isinstance(node, (ast.For, ast.AsyncFor, ast.While)) and node.lineno <= line <= (node.end_lineno or line)
    ]
