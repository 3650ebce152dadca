"""Where what a statement fills is emptied again, read from the syntax tree: right there, elsewhere, or never."""

from __future__ import annotations

import ast
import enum
import itertools
from collections.abc import Iterator, Sequence
from typing import final

from memguard.source.bounded import (
    FUNCTIONS,
    around,
    assigns,
    begins_anew,
    is_asked_first,
    is_comprehension,
    is_counted,
    is_measured,
    is_set_anew,
    last_part,
    runs_once,
    shrinks,
    trains,
)
from memguard.source.parsing import parse_file

_CLEARING = frozenset({"clear", "reset"})
_COUNTERS = frozenset({"range", "enumerate", "count"})
_PLAIN = (ast.Name, ast.Constant, ast.Tuple, ast.JoinedStr, ast.FormattedValue, ast.expr_context)


@final
class Emptied(enum.Enum):
    """How soon something is emptied."""

    NEVER = "never"
    ELSEWHERE = "elsewhere"
    """In an outer loop, or by another method: at the end of an epoch, say."""
    HERE = "here"
    """In the loop that fills it, or it has a limit."""


def where_emptied(file: str | None, line: int | None, holder: str | None) -> Emptied:
    """Where a container or a running sum is emptied, cut or begun anew.

    Args:
        file: Where it grows.
        line: The statement that adds to it.
        holder: Its name, like ``losses`` or ``Meter.total``.
    """
    if file is None or line is None or not holder or (tree := parse_file(file)) is None:
        return Emptied.HERE
    name, attribute = _name_of(holder), "." in holder.partition("[")[0]
    function, loops = around(tree, line)
    inner = {id(node) for node in ast.walk(loops[-1])} if loops else set()
    nodes = list(ast.walk(tree if attribute else _home(tree, name, line)))
    for node, one in itertools.product(nodes, {name, *_written(function, line)}):
        if is_measured(node, one) or is_comprehension(node, one, line):
            return Emptied.HERE
        if shrinks(node, one, attribute and one == name) and (id(node) in inner or not _clears(node)):
            return Emptied.HERE
        if id(node) in inner and (_cuts(node, one) or _sets_otherwise(node, one, line)):
            return Emptied.HERE
    if is_asked_first(function, line) or is_counted(tree, line) or _has_few_keys(function, name, line, loops):
        return Emptied.HERE
    if any(shrinks(node, name, attribute) or _cuts(node, name) for node in nodes):
        return Emptied.ELSEWHERE
    if attribute and any(is_set_anew(node, name) for node in nodes):
        return Emptied.ELSEWHERE
    if any(begins_anew(node, name) for loop in loops[:-1] for node in loop.body):
        return Emptied.ELSEWHERE
    if attribute or len(loops) > 1 or not isinstance(function, FUNCTIONS) or _home(tree, name, line) is not function:
        return Emptied.NEVER
    return Emptied.NEVER if trains(loops) and runs_once(tree, function) else Emptied.ELSEWHERE


def is_cut(file: str | None, holder: str | None) -> bool:
    """Whether the graph of what a name holds is cut anywhere in a file."""
    if file is None or not holder or (tree := parse_file(file)) is None:
        return False
    name = _name_of(holder)
    return any(_cuts(node, name) for node in ast.walk(tree))


def _home(tree: ast.Module, name: str, line: int) -> ast.AST:
    """The function around a line whose variable a name is, or the module."""
    home: ast.AST = tree
    for node in ast.walk(tree):  # breadth first: outer before inner
        if isinstance(node, FUNCTIONS) and node.lineno <= line <= (node.end_lineno or node.lineno):
            given = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
            if any(one.arg == name for one in given) or any(assigns(part, name) for part in ast.walk(node)):
                home = node
    return home


def _name_of(holder: str) -> str:
    return holder.partition("[")[0].rpartition(".")[2]


def _written(function: ast.AST, line: int) -> Iterator[str]:
    """What the statement on a line calls that which it fills: a parameter, perhaps."""
    for node in ast.walk(function):
        if not isinstance(node, (ast.Expr, ast.Assign, ast.AugAssign)) or node.lineno != line:
            continue
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", node.value)]
        for target in targets:
            called = isinstance(target, ast.Call) and isinstance(target.func, ast.Attribute)
            filled = last_part(target.func.value if called else target)  # type: ignore[union-attr]
            if filled is not None:
                yield filled


def _clears(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _CLEARING


def _cuts(node: ast.AST, name: str) -> bool:
    """Whether a graph is cut from what a name holds: ``state.detach()``, ``state.data``."""
    return (
        isinstance(node, ast.Attribute) and node.attr in ("detach", "detach_", "data") and last_part(node.value) == name
    )


def _sets_otherwise(node: ast.AST, name: str, line: int) -> bool:
    """Whether another statement than the one on a line gives a name its value."""
    if not isinstance(node, (ast.Assign, ast.AnnAssign, ast.NamedExpr)) or not assigns(node, name):
        return False
    return begins_anew(node, name) or not node.lineno <= line <= (node.end_lineno or node.lineno)


def _has_few_keys(function: ast.AST, name: str, line: int, loops: Sequence[ast.AST]) -> bool:
    """Whether a statement stores under a key that may come again: any but one that counts up for good.

    What is made from what lies there already keeps that.
    """
    for node in ast.walk(function):
        if not isinstance(node, ast.Assign) or not node.lineno <= line <= (node.end_lineno or node.lineno):
            continue
        if any(last_part(part) == name for part in ast.walk(node.value)):
            return False
        for target in node.targets:
            if isinstance(target, ast.Subscript) and last_part(target.value) == name:
                parts = list(ast.walk(target.slice))
                used = {part.id for part in parts if isinstance(part, ast.Name)}
                plain = all(isinstance(part, _PLAIN) for part in parts)  # not ring[step % 5]
                return not (plain and used & set(_counting(function, loops)))
    return False


def _counting(function: ast.AST, loops: Sequence[ast.AST]) -> Iterator[str]:
    """Variables that count up: of the outermost loop over a range, and those that something is added to."""
    inside = [node for loop in loops for node in ast.walk(loop)]
    for node in ast.walk(function):
        if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add) and isinstance(node.target, ast.Name):
            counter = node.target.id
            if not any(begins_anew(other, counter) for other in inside):
                yield counter
    outer = loops[0] if loops else None
    if isinstance(outer, ast.For) and isinstance(outer.iter, ast.Call) and last_part(outer.iter.func) in _COUNTERS:
        yield from (part.id for part in ast.walk(outer.target) if isinstance(part, ast.Name))
