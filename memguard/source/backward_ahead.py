"""Whether what a statement computes goes into a backward, told from the statements around it. Never run."""

from __future__ import annotations

import ast
import enum
import functools
from collections.abc import Iterator, Sequence

from memguard.source.emptied.bounded import FUNCTIONS, around, last_part
from memguard.source.parsing import parse_file
from memguard.source.values import CUT_ATTRIBUTES, CUTS

_ENGINE = frozenset({"backward", "manual_backward", "grad"})
_SUITES = ("body", "orelse", "finalbody")
_ADDS = frozenset({"append", "appendleft", "put", "insert", "extend", "setdefault"})
_OUTPUTS = frozenset({"print"})


class Fate(enum.Enum):
    """What becomes of a value, as far as one function's source says."""

    BACKWARD = "backward"
    RETURNED = "returned"
    STORED = "stored"
    """In an attribute, a container or a callback, from where it may go anywhere."""
    NEITHER = "neither"


@functools.lru_cache(maxsize=1024)
def fate_of(file: str, line: int) -> Fate:
    """What becomes of the values that the statement on a line computes, in the same turn of its loop.

    Names are followed from assignment to assignment. ``logits = model(x)``, ``loss = ce(logits, y)``,
    ``loss.backward()`` is a backward; so is ``loss_of(x).backward()``. A loop inside is not entered.

    Args:
        file: A source file.
        line: A line of a statement in it.
    """
    tree = parse_file(file)
    if tree is None:
        return Fate.NEITHER
    function, loops = around(tree, line)
    turn: ast.AST = loops[-1] if loops else function
    carried: set[str] = set()
    end = Fate.NEITHER
    for statement in _from(getattr(turn, "body", []), line):
        is_here = statement.lineno <= line <= (statement.end_lineno or statement.lineno)
        if any(_runs_engine(node, None if is_here else carried) for node in ast.walk(statement)):
            return Fate.BACKWARD
        if isinstance(statement, ast.Return) or _yields(statement):
            if _goes_on(statement, carried, is_here=is_here):
                return Fate.RETURNED
            if isinstance(statement, ast.Return):
                return end
        if _stores(statement, carried, is_here=is_here):
            end = Fate.STORED
        _carry(statement, carried, is_here=is_here)
    return end


def _from(suite: Sequence[ast.stmt], line: int) -> Iterator[ast.stmt]:
    """The simple statements of a suite from a line on, those of conditions and contexts in their order."""
    for position, statement in enumerate(suite):
        if statement.lineno <= line <= (statement.end_lineno or statement.lineno):
            inner = list(_inner(statement))
            here = next((part for part in inner if part[0].lineno <= line <= (part[-1].end_lineno or 0)), None)
            if here is not None:
                yield from _from(here, line)
            elif not inner:
                yield statement
            else:
                yield from _simple([statement])
            yield from _simple(suite[position + 1 :])
            return


def _simple(suite: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    for statement in suite:
        if isinstance(statement, (*FUNCTIONS, ast.ClassDef, ast.For, ast.AsyncFor, ast.While)):
            continue
        inner = list(_inner(statement))
        if not inner:
            yield statement
        for part in inner:
            yield from _simple(part)


def _inner(statement: ast.stmt) -> Iterator[list[ast.stmt]]:
    """The suites of a statement: none of a simple one."""
    for name in _SUITES:
        if suite := getattr(statement, name, None):
            yield suite
    for handler in getattr(statement, "handlers", ()):
        yield handler.body


def _runs_engine(node: ast.AST, carried: set[str] | None) -> bool:
    """Whether a node calls the engine, with one of some names in it; None stands for any."""
    if not isinstance(node, ast.Call) or last_part(node.func) not in _ENGINE:
        return False
    return carried is None or _mentions(node, carried)


def _carry(statement: ast.stmt, carried: set[str], *, is_here: bool) -> None:
    """Which names have what is followed after a statement, if they did before."""
    if isinstance(statement, ast.Assign):
        targets: list[ast.expr] = statement.targets
    elif isinstance(statement, (ast.AugAssign, ast.AnnAssign)):
        targets = [statement.target]
    else:
        return
    names = {name for target in targets for node in ast.walk(target) if (name := _stored(node)) is not None}
    if _goes_on(statement, carried, is_here=is_here):
        carried |= names
    elif not isinstance(statement, ast.AugAssign):
        carried -= names


def _stored(node: ast.AST) -> str | None:
    """The name under which a target stores; of ``parts["a"]`` it is ``parts``."""
    return last_part(node) if isinstance(getattr(node, "ctx", None), ast.Store) else None


def _goes_on(statement: ast.stmt, carried: set[str], *, is_here: bool) -> bool:
    """Whether the value of a statement has what is followed: it is computed on its line, or is in one of the names."""
    value = getattr(statement, "value", None)
    if is_here:
        return not (isinstance(value, ast.expr) and _is_cut(value))
    return _mentions(statement, carried)


def _stores(statement: ast.stmt, carried: set[str], *, is_here: bool) -> bool:
    """Whether a statement puts it, as it is, where others can reach it."""
    if not _goes_on(statement, carried, is_here=is_here):
        return False
    if isinstance(statement, ast.Assign):
        return any(isinstance(target, (ast.Attribute, ast.Subscript)) for target in statement.targets)
    call = statement.value if isinstance(statement, ast.Expr) else None
    if not isinstance(call, ast.Call):
        return False
    function = call.func
    is_name = isinstance(function, ast.Name) and function.id not in _OUTPUTS
    if not is_name and not (isinstance(function, ast.Attribute) and function.attr in _ADDS):
        return False
    given = [*call.args, *(keyword.value for keyword in call.keywords)]
    if is_here:
        return any(isinstance(part, (ast.Call, ast.Tuple, ast.List, ast.Dict)) and not _is_cut(part) for part in given)
    return any(_mentions(part, carried) for part in given)


def _is_cut(node: ast.AST) -> bool:
    """Whether an expression leaves the graph behind: ``x.detach()``, ``x.data``, ``loss.item()``."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return node.func.attr in CUTS or _is_cut(node.func.value)
    return isinstance(node, ast.Attribute) and (node.attr in CUT_ATTRIBUTES or _is_cut(node.value))


def _mentions(node: ast.AST, names: set[str]) -> bool:
    """Whether one of the names is read, with its graph."""
    if _is_cut(node):
        return False
    return _read(node) in names or any(_mentions(part, names) for part in ast.iter_child_nodes(node))


def _read(node: ast.AST) -> str | None:
    """The name that a node reads."""
    is_name = isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Load)
    return last_part(node) if is_name else None


def _yields(statement: ast.stmt) -> bool:
    return any(isinstance(node, (ast.Yield, ast.YieldFrom)) for node in ast.walk(statement))
