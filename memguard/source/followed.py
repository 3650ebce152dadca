"""What becomes of the graph of a call, statement after statement: whether a backward may still meet it.

For code that trains and evaluates in one scope, a script's above all: there the same names hold the one graph and the
other, and only the order of the statements tells them apart.

Long because each kind of statement takes its own way.
"""

from __future__ import annotations

import ast
import functools
import os
from collections.abc import Iterator, Sequence
from typing import final

from memguard.source.chains import last_name
from memguard.source.emptied.bounded import FUNCTIONS, around
from memguard.source.function_index import functions_of
from memguard.source.functions import Function
from memguard.source.graph_flow import flows, names_in
from memguard.source.parsing import parse_file
from memguard.source.targets import parts_of
from memguard.source.values import may_carry

TRAINS = ("backward", "grad", "step", "optim", "train", "adapt", "learn", "fit", "update")
"""Parts of the names of calls that may run a backward through what they are given."""
READIES = frozenset({"train", "no_grad", "set_grad_enabled"})
FILLS = frozenset({"append", "extend", "add", "insert", "put", "setdefault"})
_SHOWS = frozenset({
    "print", "info", "debug", "write", "set_postfix", "set_description", "add_scalar", "clear", "log", "warning"
})  # fmt: skip
"""Calls for their effect alone that no backward comes of."""
_LOOPS = (ast.For, ast.AsyncFor, ast.While)
_TRIES = (ast.Try, getattr(ast, "TryStar", ast.Try))  # from Python 3.11 on
_OUTER = (ast.Global, ast.Nonlocal)

Held = frozenset[str]
_Way = list[tuple[ast.AST, list[ast.stmt], int]]
NOTHING: Held = frozenset()


@functools.lru_cache(maxsize=256)
def ends_unused(file: str, line: int) -> bool:
    """Whether the graph of what a loop's line calls ends with its names, and no backward comes in between.

    Args:
        file: The source; what is typed into a session never qualifies, for what comes after it is not known.
        line: The line.
    """
    tree = parse_file(file) if os.path.isfile(file) else None
    scope, loops = around(tree, line) if tree is not None else (None, [])
    if tree is None or scope is None or not loops or any(_is_backward(node) for node in ast.walk(loops[-1])):
        return False
    follow = _follow(tree, scope)
    return follow is not None and follow.ends_unused(scope, line)


@functools.lru_cache(maxsize=256)
def meets_backward(file: str, line: int, name: str) -> bool:
    """Whether a backward comes to what a line of a scope puts under a name, before the name takes something else.

    Args:
        file: The source.
        line: The line.
        name: The variable.
    """
    tree = parse_file(file)
    if tree is None:
        return False
    scope = around(tree, line)[0]
    follow = _follow(tree, scope)
    return follow is not None and follow.meets_backward(scope, line, name)


def _follow(tree: ast.Module, scope: ast.AST) -> _Follow | None:
    try:
        functions = functions_of(tree)
    except RecursionError:
        return None
    own = functions[0] if scope is tree else next((one for one in functions if one.node is scope), None)
    return _Follow(tree, own) if own is not None else None


def _is_backward(node: ast.AST) -> bool:
    name = last_name(node.func) or "" if isinstance(node, ast.Call) else ""
    return name == "grad" or "backward" in name.lower()


@final
class _Follow:
    """Follows the names that hold a graph through one scope."""

    def __init__(self, tree: ast.Module, function: Function) -> None:
        self._tree, self._function = tree, function
        self._escapes = self._differentiated = False
        self._left = self._ever = NOTHING
        """What was held where a loop was left or begun anew, and what ever was."""

    def ends_unused(self, scope: ast.AST, line: int) -> bool:
        """Whether all of it ends without a backward."""
        way = _way_to(scope, line)
        start = way[-1][1][way[-1][2]] if way else None
        if not isinstance(start, (ast.Assign, ast.AnnAssign, ast.AugAssign)) or start.value is None:
            return False
        held = NOTHING
        for target, value in _pairs(start, start.value):
            held = self._store(target, held, may_carry(value, self._function, graph=True), keeps=True)
        if any(_is_backward(node) for _, block, at in way for after in block[at + 1 :] for node in ast.walk(after)):
            return False  # the graph may get there by an attribute
        self._go_on(way, held)
        outside = {*self._function.params, *self._function.outer} - {"self"}
        return not self._escapes and not self._ever & outside and not self._is_read_elsewhere(scope)

    def meets_backward(self, scope: ast.AST, line: int, name: str) -> bool:
        """Whether a backward comes to what a line puts under a name."""
        self._go_on(_way_to(scope, line), frozenset({name}))
        return self._differentiated

    def _go_on(self, way: _Way, held: Held) -> None:
        """Follows what is held after the innermost statement of a way, outwards to the end of the scope."""
        for owner, block, index in reversed(way):
            held = self._block(block[index + 1 :], held)
            if isinstance(owner, _LOOPS):
                held = self._turns(owner, held)
            elif isinstance(owner, _TRIES):
                held = self._block([*owner.orelse, *owner.finalbody], held)

    def _is_read_elsewhere(self, scope: ast.AST) -> bool:
        """Whether a function within reads one of the names that held it."""
        for node in ast.walk(scope):
            if isinstance(node, (*FUNCTIONS, ast.Lambda)) and node is not scope:
                names = [part for part in ast.walk(node) if isinstance(part, ast.Name) and part.id in self._ever]
                bound = {part.id for part in names if isinstance(part.ctx, ast.Store)}
                bound |= {one.arg for one in ast.walk(node.args) if isinstance(one, ast.arg)}
                given = {name for part in ast.walk(node) if isinstance(part, _OUTER) for name in part.names}
                if given & self._ever or any(part.id not in bound for part in names):
                    return True
        return False

    # Statements

    def _block(self, body: Sequence[ast.stmt], held: Held) -> Held:
        for node in body:
            if self._escapes:
                break
            held = self._statement(node, held)
        return held

    def _turns(self, loop: ast.For | ast.AsyncFor | ast.While, held: Held) -> Held:
        """What is held after any number of further turns."""
        before: Held | None = None
        while before != held and not self._escapes:
            before = held
            inside = held
            if isinstance(loop, ast.While):
                self._look(loop.test, held)
            else:
                self._look(loop.iter, held)
                for target in (part for part, _ in parts_of(loop.target, loop.iter)):
                    inside = self._store(target, inside, flows(loop.iter, self._function, set(held)))
            held = held | self._block(loop.body, inside) | self._left
        self._left = NOTHING
        return self._block(loop.orelse, held)

    def _statement(self, node: ast.stmt, held: Held) -> Held:
        if isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign)):
            if node.value is None:
                return held
            before = set(held := self._look(node.value, held))
            for target, value in _pairs(node, node.value):
                carries = flows(value, self._function, before)
                held = self._store(target, held, carries, keeps=isinstance(node, ast.AugAssign))
            return held
        if isinstance(node, ast.Delete):
            return held - {part.id for part in node.targets if isinstance(part, ast.Name)}
        if isinstance(node, _LOOPS):
            outer, self._left = self._left, NOTHING
            held = self._turns(node, held)
            self._left = outer
            return held
        if isinstance(node, (ast.Break, ast.Continue)):
            self._left |= held
            return held
        if isinstance(node, ast.Expr):
            return self._look(node.value, held, alone=True)
        return self._branches(node, held)

    def _branches(self, node: ast.stmt, held: Held) -> Held:
        if isinstance(node, ast.If):
            held = self._look(node.test, held)
            return self._block(node.body, held) | self._block(node.orelse, held)
        if isinstance(node, (ast.With, ast.AsyncWith)):
            for item in node.items:
                held = self._look(item.context_expr, held)
            return self._block(node.body, held)
        if isinstance(node, _TRIES):
            done = held | self._block(node.body, held)
            handled = [self._block(handler.body, done) for handler in node.handlers]
            held = self._block(node.orelse, done).union(*handled)
            return self._block(node.finalbody, held)
        if isinstance(node, ast.Return):
            if node.value is not None and flows(node.value, self._function, set(held)):
                self._escapes = True
        elif isinstance(node, (ast.Assert, ast.Raise)):
            for part in ast.iter_child_nodes(node):
                if isinstance(part, ast.expr):
                    self._look(part, held)
        elif not isinstance(node, (*FUNCTIONS, ast.ClassDef)):
            self._escapes = self._escapes or any(
                isinstance(part, ast.Name) and part.id in held for part in ast.walk(node)
            )
        return held

    def _store(self, target: ast.expr, held: Held, carries: bool, *, keeps: bool = False) -> Held:
        """What is held after an assignment: a plain one to a name takes away what the name held."""
        base = target
        while isinstance(base, ast.Subscript):
            base = base.value
        if not isinstance(base, ast.Name):
            self._escapes = self._escapes or carries
        elif carries:
            held = held | {base.id}
        elif base is target and not keeps:
            held = held - {base.id}
        self._ever |= held
        return held

    # Expressions

    def _look(self, node: ast.expr, held: Held, *, alone: bool = False) -> Held:
        """Looks for what an expression may do with the graph; what is held after it."""
        seen = set(held)
        for part in ast.walk(node):
            if isinstance(part, ast.comprehension) and flows(part.iter, self._function, seen):
                seen.update(names_in(part.target))
        for part in ast.walk(node):
            if isinstance(part, ast.Call):
                held = self._call(part, held, seen, alone=alone and part is node)
            elif isinstance(part, (ast.Yield, ast.YieldFrom, ast.Await, ast.NamedExpr)):
                self._escapes = self._escapes or bool(seen.intersection(names_in(part)))
        return held

    def _call(self, node: ast.Call, held: Held, seen: set[str], *, alone: bool) -> Held:
        name = last_name(node.func) or ""
        method = node.func if isinstance(node.func, ast.Attribute) else None
        arguments = [*node.args, *(item.value for item in node.keywords)]
        given = any(flows(one, self._function, seen) for one in arguments)
        if not given and (method is None or not flows(method.value, self._function, seen)):
            return held
        self._differentiated = self._differentiated or _is_backward(node)
        if name not in READIES and (any(word in name.lower() for word in TRAINS) or self._trains(name)):
            self._escapes = True
        if given and method is not None and name in FILLS:
            return self._store(method.value, held, True)
        if given and alone and name not in _SHOWS:
            self._escapes = True  # what it does it does with the graph
        return held

    def _trains(self, name: str) -> bool:
        """Whether a function of the file with that name calls something that trains."""
        for node in ast.walk(self._tree):
            if isinstance(node, FUNCTIONS) and node.name == name:
                called = (last_name(part.func) or "" for part in ast.walk(node) if isinstance(part, ast.Call))
                if any(word in one.lower() for one in called for word in TRAINS if one not in READIES):
                    return True
        return False


def _pairs(node: ast.Assign | ast.AnnAssign | ast.AugAssign, value: ast.expr) -> Iterator[tuple[ast.expr, ast.expr]]:
    """What an assignment stores into, each with what it takes."""
    for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
        yield from parts_of(target, value)


def _way_to(scope: ast.AST, line: int) -> _Way:
    """The blocks around a line from a scope's inwards: what each belongs to, its statements, which one it is."""
    way: _Way = []
    owner: ast.AST | None = scope
    while owner is not None:
        inner: ast.AST | None = None
        for field in ("body", "orelse", "finalbody"):
            block = getattr(owner, field, None)
            if not isinstance(block, list):
                continue  # that of a conditional expression, of a lambda
            for index, node in enumerate(block):
                if isinstance(node, ast.stmt) and node.lineno <= line <= (node.end_lineno or 0):
                    way.append((owner, block, index))
                    inner = node
        owner = inner
    return way
