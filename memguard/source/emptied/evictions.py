"""Beyond what length a container in an attribute gives things back: ``if len(self.order) > self.most: ...pop()``.

Read from the syntax tree; how large the limit is, only the object can say.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from memguard.source.emptied.bounded import FUNCTIONS, is_measured, last_part, shrinks
from memguard.source.parsing import parse_file


def limits_of(file: str | None, line: int | None, name: str) -> set[str]:
    """The attributes that limit a container in an attribute; none where something else does, or may.

    Args:
        file: Where it is filled.
        line: The statement that fills it.
        name: The attribute that has it.
    """
    tree = parse_file(file) if file is not None and line is not None else None
    if tree is None or line is None:
        return set()
    measured = {name, *_filled_with_it(tree, line)}
    limits = [_limit(node, measured) for node in ast.walk(tree) if is_measured(node, name)]
    for removal in [node for node in ast.walk(tree) if shrinks(node, name, True)]:
        asked = [_limit(test, measured) for test in _tests_around(tree, removal)]
        limits.append(next(filter(None, asked), None))
    return set() if None in limits else {limit for limit in limits if limit is not None}


def returned_length(file: str, first_line: int) -> str | None:
    """The attribute whose length, or whose number, a ``__len__`` gives: it does nothing else."""
    tree = parse_file(file)
    for node in ast.walk(tree) if tree is not None else ():
        if not isinstance(node, FUNCTIONS) or node.lineno != first_line or not isinstance(node.body[-1], ast.Return):
            continue
        if any(not isinstance(each, ast.Expr) or not isinstance(each.value, ast.Constant) for each in node.body[:-1]):
            return None  # more than a docstring
        value = node.body[-1].value
        return _attribute(_length(value) or value)
    return None


def _filled_with_it(tree: ast.Module, line: int) -> Iterator[str]:
    """Lists that get an element where the statement on a line runs, and nowhere else: the order of the keys."""
    block = _block(tree.body, line)
    appends: dict[str, list[ast.stmt]] = {}
    for node in ast.walk(tree):
        call = node.value if isinstance(node, ast.Expr) else None
        if isinstance(node, ast.stmt) and isinstance(call, ast.Call) and last_part(call.func) == "append":
            name = _attribute(call.func.value) if isinstance(call.func, ast.Attribute) else None
            if name is not None:
                appends.setdefault(name, []).append(node)
    yield from (name for name, all_of_it in appends.items() if all(one in block for one in all_of_it))


def _block(body: Sequence[ast.stmt], line: int) -> Sequence[ast.stmt]:
    """The innermost statements in a row of which one stands on a line."""
    for statement in body:
        if statement.lineno <= line <= (statement.end_lineno or 0):
            parts = [getattr(statement, field, []) for field in ("body", "orelse", "finalbody")]
            inner = next((one for one in parts if one and one[0].lineno <= line <= (one[-1].end_lineno or 0)), None)
            return body if inner is None else _block(inner, line)
    return body


def _tests_around(tree: ast.Module, inner: ast.AST) -> Iterator[ast.expr]:
    for node in ast.walk(tree):
        if isinstance(node, (ast.If, ast.While)) and any(inner in ast.walk(part) for part in node.body):
            yield node.test


def _limit(test: ast.AST, measured: set[str]) -> str | None:
    """The attribute with which a test compares the length of one of some attributes."""
    if not isinstance(test, ast.Compare) or len(test.ops) != 1:
        return None
    for one, other in ((test.left, test.comparators[0]), (test.comparators[0], test.left)):
        if _attribute(_length(one)) in measured:
            return _attribute(other)
    return None


def _length(node: ast.expr | None) -> ast.expr | None:
    """What ``len`` is asked of."""
    is_len = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "len"
    return node.args[0] if isinstance(node, ast.Call) and is_len and len(node.args) == 1 else None


def _attribute(node: ast.expr | None) -> str | None:
    """The name of ``self.name``."""
    own = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self"
    return node.attr if isinstance(node, ast.Attribute) and own else None
