"""Where what a statement fills is emptied again, read from the syntax tree: right there, elsewhere, or never."""

from __future__ import annotations

import ast
import enum
import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import final

from memguard.source.emptied.bounded import (
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
from memguard.source.emptied.cutting import cuts_of
from memguard.source.parsing import parse_file
from memguard.source.targets import parts_of

_CLEARING = frozenset({"clear", "reset"})
_ASSIGNMENTS = (ast.Assign, ast.AnnAssign, ast.NamedExpr)
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


def where_emptied(
    file: str | None, line: int | None, holder: str | None, *, by_length: bool = True, carries: bool = False
) -> Emptied:
    """Where a container or a running sum is emptied, cut or begun anew.

    Args:
        file: Where it grows.
        line: The statement that adds to it.
        holder: Its name, like ``losses`` or ``Meter.total``.
        by_length: Whether a limit of its length counts; not where that is known, and far away.
        carries: Whether the statement is known to store what was made of what was there: it is called otherwise then,
            as in ``self.state = new_state``.
    """
    if file is None or line is None or not holder or (tree := parse_file(file)) is None:
        return Emptied.HERE
    name, attribute = _name_of(holder), "." in holder.partition("[")[0]
    function, loops = around(tree, line)
    inner = {id(node) for node in ast.walk(loops[-1])} if loops else set()
    nodes = list(ast.walk(tree if attribute else _home(tree, name, line)))
    names = {name, *_written(function, line)}
    cuts = {one: cuts_of(tree, one) for one in names}
    if not by_length:
        apart = {id(part) for one in names for part in _limits(nodes, one)}
        nodes = [node for node in nodes if id(node) not in apart]
    itself = {id(node) for node in nodes if carries and _hands_on(node, name, line, tree)}
    nodes = [node for node in nodes if id(node) not in itself]
    for node, one in itertools.product(nodes, names):
        if is_measured(node, one) or is_comprehension(node, one, line):
            return Emptied.HERE
        if shrinks(node, one, attribute and one == name) and (id(node) in inner or not _clears(node)):
            return Emptied.HERE
        if id(node) in inner and (id(node) in cuts[one] or _sets_otherwise(node, one, line, attribute and one == name)):
            return Emptied.HERE
    if is_asked_first(function, line) or is_counted(tree, line) or _has_few_keys(function, name, line, loops):
        return Emptied.HERE
    if any(shrinks(node, name, attribute) or id(node) in cuts[name] for node in nodes):
        return Emptied.ELSEWHERE
    if attribute and any(is_set_anew(node, name, apart=itself) for node in nodes):
        return Emptied.ELSEWHERE
    if any(begins_anew(node, name) for loop in loops[:-1] for node in loop.body if id(node) not in itself):
        return Emptied.ELSEWHERE
    if attribute or len(loops) > 1 or not isinstance(function, FUNCTIONS) or _home(tree, name, line) is not function:
        return Emptied.NEVER
    return Emptied.NEVER if trains(loops) and runs_once(tree, function) else Emptied.ELSEWHERE


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


def _limits(nodes: Iterable[ast.AST], name: str) -> Iterator[ast.AST]:
    """What keeps a container from being longer: a deque's maxlen, and all that hangs on a comparison of its length."""
    for node in nodes:
        if isinstance(node, (ast.If, ast.While, ast.IfExp)):
            if any(is_measured(part, name) for part in ast.walk(node.test)):
                yield from ast.walk(node)
        elif is_measured(node, name) or (isinstance(node, (ast.Assign, ast.AnnAssign)) and shrinks(node, name, False)):
            yield node


def _sets_otherwise(node: ast.AST, name: str, line: int, attribute: bool) -> bool:
    """Whether another statement than the one on a line gives a name its value; a variable is no attribute."""
    if not isinstance(node, _ASSIGNMENTS) or not assigns(node, name):
        return False
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    given = [part for target in targets for part in ast.walk(target)]
    if attribute and not any(isinstance(part, ast.Attribute) and part.attr == name for part in given):
        return False
    return begins_anew(node, name) or not _is_on(node, line)


def _hands_on(node: ast.AST, name: str, line: int, tree: ast.Module) -> bool:
    """Whether the statement on a line gives a name what is in a variable, which nothing cuts."""
    if not isinstance(node, ast.Assign) or not _is_on(node, line):
        return False
    pairs = [pair for target in node.targets for pair in parts_of(target, node.value)]
    given = [value for target, value in pairs if last_part(target) == name]
    parts = [part for value in given for part in (value.elts if isinstance(value, ast.Tuple) else [value])]
    return all(isinstance(part, ast.Name) and not cuts_of(tree, part.id) for part in parts)


def _is_on(node: ast.stmt | ast.expr, line: int) -> bool:
    return node.lineno <= line <= (node.end_lineno or node.lineno)


def _has_few_keys(function: ast.AST, name: str, line: int, loops: Sequence[ast.AST]) -> bool:
    """Whether a statement stores under a key that may come again: any but one that counts up for good.

    What is made from what lies there already keeps that.
    """
    for node in ast.walk(function):
        if not isinstance(node, ast.Assign) or not _is_on(node, line):
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
