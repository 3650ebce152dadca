"""Whether a variable or attribute is read again: after a line, in a loop's next turn, by what a statement calls."""

from __future__ import annotations

import ast
import linecache
import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple, final

from memguard.source.expressions import (
    COMPREHENSIONS,
    FUNCTIONS,
    LOOPS,
    SCOPES,
    Loop,
    called_name,
    flat_targets,
    mentions,
    names_in,
    names_set,
    spans,
    symbol_of,
)
from memguard.source.model import SourceModel
from memguard.source.scopes import Scope
from memguard.source.steps import suites_of
from memguard.source.vocabulary import BACKWARD

_INNER = (*FUNCTIONS, ast.Lambda)
_NAMESPACES = frozenset({"globals", "locals", "vars", "eval", "exec"})
_BRANCHES = (ast.If, *LOOPS, ast.Try)
_GRADIENT = re.compile(r"\.grad\b")
_MAKING = (ast.Call, ast.BinOp, ast.UnaryOp, ast.Compare)


def is_read_again(model: SourceModel, first: int, function: str, name: str, line: int) -> bool | None:
    """Whether a function reads a variable after a line, before it gets a new value; None if that cannot be told.

    A loop around the line is gone through once more from its beginning: what comes first there, a read or a new value,
    decides. A nested function that uses the variable counts as a read. So does a function of the script, where the
    variable is the script's own; one that asks for all of them by name leaves it open.
    """
    scope = model.scope_of(first, function)
    node = scope.node if scope is not None else None
    if node is None or (node is model.tree and mentions(node, _NAMESPACES)):
        return None
    # On one line a value is read before the name is set: x = f(x).
    uses = sorted(_uses(node, name), key=lambda use: (use[0], use[1] != "read"))
    if any(kind == "nested" for _, kind in uses):
        return True
    if _read_comes_first(node, [use for use in uses if use[0] > line], line):
        return True
    for loop in model.loops_in(node, line):
        sets_first = not isinstance(loop, ast.While) and name in names_set(loop.target)
        if not sets_first and _read_comes_first(node, [use for use in uses if spans(loop, use[0])], line):
            return True
    return False


def reads_gradients(files: Iterable[str]) -> bool:
    """Whether any of some files names the ``.grad`` of something, or is none. They may be many, so none is parsed."""
    texts = ((file, linecache.getlines(file)) for file in files)
    return any(any(map(_GRADIENT.search, lines)) or not (lines or Path(file).is_file()) for file, lines in texts)


def _read_comes_first(function: ast.AST, uses: list[tuple[int, str]], line: int) -> bool:
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
    end = over = at
    for node in ast.walk(function):  # the outer ones first
        if isinstance(node, ast.stmt) and node.lineno == at:
            over = node.end_lineno or at
        for block in suites_of(node) if not isinstance(node, (ast.With, ast.AsyncWith)) else ():
            if block[0].lineno <= at <= (block[-1].end_lineno or at):
                end = block[-1].end_lineno or at
    return range(over + 1, end + 1)


def _uses(function: ast.AST, name: str) -> list[tuple[int, str]]:
    """(line, "read", "set" or "nested") of a name in a function."""
    found: list[tuple[int, str]] = []
    stack: list[tuple[ast.AST, bool]] = [(child, False) for child in ast.iter_child_nodes(function)]
    while stack:
        node, nested = stack.pop()
        if isinstance(node, _INNER) and _has_its_own(node, name):
            continue
        nested = nested or isinstance(node, SCOPES)
        if isinstance(node, ast.Name) and node.id == name:
            kind = "nested" if nested else "read" if isinstance(node.ctx, ast.Load) else "set"
            found.append((node.lineno, kind))
        elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name) and node.target.id == name:
            found.append((node.lineno, "read"))
        stack.extend((child, nested) for child in ast.iter_child_nodes(node))
    return found


def _has_its_own(function: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda, name: str) -> bool:
    """Whether a name is a variable of a nested function's own; its defaults and decorators are the outer one's."""
    outside = [*function.args.defaults, *function.args.kw_defaults, *getattr(function, "decorator_list", ())]
    if any(name in names_in(each) for each in outside if each is not None):
        return False
    own = list(ast.iter_child_nodes(function))
    for node in own:  # a comprehension has names of its own
        own.extend(() if isinstance(node, (*SCOPES, *COMPREHENSIONS)) else ast.iter_child_nodes(node))
    if any(isinstance(node, (ast.Global, ast.Nonlocal)) and name in node.names for node in own):
        return False
    if any(isinstance(node, ast.arg) and node.arg == name for node in ast.walk(function.args)):
        return True
    return any(isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Store) for node in own)


def is_in_branch(
    function: ast.AST | None, at: int, line: int, kinds: type[ast.AST] | tuple[type[ast.AST], ...] = _BRANCHES
) -> bool:
    """Whether a line lies in a branch or loop that the other line is not in: it may be skipped."""
    inside = ast.walk(function) if function is not None else ()
    return any(isinstance(node, kinds) and spans(node, at) and not spans(node, line) for node in inside)


# The last turn's value of a loop


def is_left_unread(file: str, line: int, name: str) -> bool:
    """Whether every turn of a loop sets a variable on a line by a call, and nothing reads the last turn's value.

    What reads the variable comes below that statement in the loop, and in no function inside.
    """
    turn = _turn_that_sets(file, line, name)
    if turn is None or not isinstance(turn.statement.value, ast.Call):
        return False
    last, end = turn.statement.end_lineno or turn.statement.lineno, turn.loop.end_lineno or turn.loop.lineno
    for node in ast.walk(turn.scope):
        if isinstance(node, _INNER) and node is not turn.scope and name in names_in(node):
            return False
        if isinstance(node, ast.Name) and node.id == name:
            wanted = isinstance(node.ctx, ast.Load) and not last < node.lineno <= end
            if wanted or isinstance(node.ctx, ast.Del):
                return False
    return True


def is_left_by_each_turn(file: str, line: int, name: str) -> bool:
    """Whether every turn of a loop sets a variable on a line, and none deletes it; whatever reads it."""
    turn = _turn_that_sets(file, line, name)
    return turn is not None and not any(
        isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Del) for node in ast.walk(turn.loop)
    )


class _Turn(NamedTuple):
    """An assignment that runs in every turn of a loop."""

    scope: ast.AST
    loop: Loop
    statement: ast.Assign


def _turn_that_sets(file: str, line: int, name: str) -> _Turn | None:
    scope, loops = SourceModel.of(file).around(line)
    statement = next((part for part in loops[-1].body if spans(part, line)), None) if loops else None
    if not isinstance(statement, ast.Assign) or not _sets(statement.targets, name):
        return None
    return _Turn(scope, loops[-1], statement)


def is_being_set(scope: Scope | None, file: str, line: int, name: str) -> bool:
    """Whether the statement that runs sets a variable anew, while it has the last turn's value for nothing."""
    for store in scope.stores if scope is not None else ():
        if store.line <= line <= store.end_line and _sets([store.target], name) and not store.from_loop:
            return is_left_unread(file, store.line, name)
    return False


def _sets(targets: list[ast.expr], name: str) -> bool:
    return any(isinstance(part, ast.Name) and part.id == name for part in flat_targets(targets))


# A local variable that is there


@final
class LocalReading(NamedTuple):
    """What the source says of a local variable while a line runs."""

    line: int | None
    """Where it got its value; None where the source does not say."""
    source: str | None
    read_again: bool | None
    """Whether it is read before it gets a new value; None if that cannot be told."""
    last_turns: bool
    """Whether it is the loop's last turn's: what sets it in every turn comes below the line that runs, or runs."""
    shared: bool
    """Whether something else may hold the same: a caller, what it was taken from, what a loop goes through."""
    backward_follows: bool
    """Whether the function calls backward further down."""


def read_local(
    model: SourceModel, first: int, function: str, name: str, line: int, running: int, *, runs: bool
) -> LocalReading:
    """What a function's text says of one of its variables.

    Args:
        model: The file.
        first: The function's first line.
        function: Its name.
        name: The variable.
        line: The line from which on reads count.
        running: The line that runs.
        runs: Whether both are the same, so that the statement may be setting the variable anew.
    """
    scope = model.scope_of(first, function)
    if scope is None:
        return LocalReading(None, None, None, False, False, False)
    set_on, text, shared = None, None, name in scope.params
    stores = [store for store in scope.stores if name in names_set(store.target)]
    before = [store for store in stores if store.line <= line] or stores
    # What got its value since then, and before the line that runs, is asked from there on.
    asked = max([line, *(store.end_line for store in stores if line < store.end_line < running)])
    lowest = min((store.line for store in stores), default=0)
    last_turns = line < lowest and not is_in_branch(scope.node, lowest, line, ast.If)
    if before:
        last = max(before, key=lambda store: store.line)
        set_on, text = last.line, model.text(last.line, last.end_line)
        loops = model.loops_in(scope.node, line)
        # What was made before the loop may be another's by now: a generator's that the loop goes through.
        shared = last.from_loop or (bool(loops) and not spans(loops[-1], last.line))
        shared = shared or not any(isinstance(part, _MAKING) for part in ast.walk(last.value))
    read_again = is_read_again(model, first, function, name, asked)
    if runs and read_again is not None and is_being_set(scope, model.file, line, name):
        last_turns, read_again, shared = True, False, True  # what a function gave back may be anyone's
    follows = any(call.line > line and called_name(call.node) in BACKWARD - {"grad"} for call in scope.calls)
    return LocalReading(set_on, text, read_again, last_turns, shared, follows)


# Reads by other functions


def leads_to_read(model: SourceModel, node: ast.AST, target: str) -> bool:
    """Whether a statement, or a function of the file that it may lead to, reads a name; functions by name alone."""
    name, attribute = symbol_of(target)
    waiting: list[ast.AST] = [node]
    for body in waiting:
        if _reads(body, name, attribute=attribute):
            return True
        loaded = {last for part in ast.walk(body) if (last := getattr(part, "attr", None) or getattr(part, "id", None))}
        if any(isinstance(part, ast.Call) for part in ast.walk(body)):
            loaded |= {"forward", "__call__"}
        waiting += [one for one in model.functions if one.name in loaded and one not in waiting]
    return False


def _reads(body: ast.AST, name: str, *, attribute: bool) -> bool:
    if attribute:
        own = (node for node in ast.walk(body) if isinstance(node, ast.Attribute) and node.attr == name)
        return any(isinstance(node.ctx, ast.Load) for node in own)
    parameters = (node.arg for node in ast.walk(body) if isinstance(node, ast.arg))
    return name not in parameters and name not in names_set(body) and name in names_in(body)  # else one of its own
