"""Graphs that a function keeps though it needs one at a time, or none at all: read from the function's syntax.

Before an optimizer step nothing says that a graph is out of date: a roll-out, an inner loop, micro-batches keep many.
What the function does with them may say it: it differentiates their sum, which is the sum of their gradients, or none
of them.

Long because each statement of a function may let them get out of sight.
"""

from __future__ import annotations

import ast
import enum
from collections.abc import Iterable, Sequence
from typing import final

from memguard.facts import Place
from memguard.source.chains import last_name
from memguard.source.emptied.bounded import FUNCTIONS, around
from memguard.source.parsing import parse, parse_file

# fmt: off
_SUMS = frozenset({
    "cat", "concat", "concatenate", "stack", "hstack", "vstack", "sum", "mean", "nansum", "neg", "flatten", "view",
    "reshape", "squeeze", "unsqueeze", "unbind", "split", "chunk", "list", "tuple", "iter", "zip", "enumerate",
    "reversed",
})
"""Functions of several results whose gradient is made of the gradients of each."""
_VALUES = frozenset({
    "item", "tolist", "numel", "size", "detach", "numpy", "argmax", "argmin",
})
"""Methods whose result has no graph."""
_NUMBERS = frozenset({"float", "int", "len", "str", "bool", "range", "isinstance"})
"""Functions likewise; a tensor's ``float()`` is not that."""
_GRADIENTS = frozenset({"grad", "backward", "manual_backward"})
_FILLS = frozenset({"append", "extend", "add", "insert", "appendleft"})
_TORCH = frozenset({"torch", "F", "nn", "functional", "np", "math"})
_PRINTS = frozenset({"print", "set_postfix", "set_description", "info", "debug", "write"})
_TRAINS = ("step", "optim", "train", "fit", "learn", "adapt")
"""Parts of the names of calls in a function that trains."""
# fmt: on


class _Graph(enum.IntEnum):
    """What an expression has of the graphs that are kept."""

    NONE = 0
    SUM = 1
    """Themselves, or a sum of them."""
    MADE = 2
    """Something else that was made from them."""


def is_in_vain(place: Place, *, used: bool) -> bool:
    """Whether the function that keeps graphs in a variable of its own needs only one of them at a time, or none.

    Args:
        place: The statement that keeps them.
        used: Whether each of them was differentiated already, with a graph of its own (``create_graph``).
    """
    look = _look_at(place)
    if look is None:
        return False
    if used:  # and none will be taken of them any more
        return not look.gradients and not look.given
    return bool(look.gradients) and look.only_sums and not look.trains and min(look.gradients) > look.end


def is_differentiated(place: Place) -> bool:
    """Whether the function that keeps graphs in a variable of its own takes gradients of them: they are no waste."""
    look = _look_at(place)
    return look is not None and bool(look.gradients)


def _look_at(place: Place) -> _Look | None:
    """What a function does with graphs; None where they may get out of it, or no function alone keeps them."""
    name = place.holder or _target_of(place.source)
    if place.file is None or place.line is None or not name.isidentifier():
        return None
    tree = parse_file(place.file)
    function, loops = around(tree, place.line) if tree is not None else (None, [])
    if not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return None
    look = _Look(function, name, loops[-1] if loops else None)
    return look if look.stays_inside() else None


def _target_of(source: str | None) -> str:
    """The variable that a list is for which a comprehension is still making."""
    node = _statement(source)
    plain = isinstance(node, ast.Assign) and isinstance(node.value, (ast.ListComp, ast.SetComp))
    target = node.targets[0] if isinstance(node, ast.Assign) and plain else None
    return target.id if isinstance(target, ast.Name) else ""


def _statement(source: str | None) -> ast.stmt | None:
    tree = parse((source or "").strip())
    return tree.body[0] if tree is not None and len(tree.body) == 1 else None


def is_made_of_itself(place: Place) -> bool:
    """Whether the statement gives a variable a value that it makes from the old one: a state; a sum just grows."""
    node = _statement(place.source)
    if not isinstance(node, ast.Assign) or isinstance(node.value, ast.BinOp):
        return False
    return any(isinstance(part, ast.Name) and part.id == place.holder for part in ast.walk(node.value))


@final
class _Look:
    """One look at what a function does with what one of its variables holds.

    Attributes:
        gradients: Lines that differentiate it.
        only_sums: Whether nothing but sums were made of it.
        given: Whether it goes to a function that may do anything with it.
        trains: Whether the function makes optimizer steps.
        end: Where the loop ends that fills it.
    """

    def __init__(self, function: ast.FunctionDef | ast.AsyncFunctionDef, name: str, loop: ast.AST | None) -> None:
        self._function, self._held = function, {name}
        self._steady = {id(node) for node in _always_run(loop)} if loop is not None else set()
        self._escapes = False
        self.gradients: set[int] = set()
        self.only_sums, self.given = True, False
        self.end = getattr(loop, "end_lineno", 0) or 0
        calls = [last_name(node.func) or "" for node in ast.walk(function) if isinstance(node, ast.Call)]
        self.trains = any(word in call.lower() for call in calls if call != "train" for word in _TRAINS)

    def stays_inside(self) -> bool:
        """Whether all that has a graph of it is gone when the function ends, as far as its source tells."""
        arguments = self._function.args
        given = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
        before = 0
        while len(self._held) > before and not self._escapes:
            before = len(self._held)
            self._block(self._function.body)
        outside = {one.arg for one in given if one is not None}
        for node in ast.walk(self._function):
            outside.update(node.names if isinstance(node, (ast.Global, ast.Nonlocal)) else ())
        return not self._escapes and not self._held & outside

    def _block(self, body: Sequence[ast.stmt]) -> None:
        for statement in body:
            self._statement(statement)

    def _statement(self, node: ast.stmt) -> None:
        if isinstance(node, (*FUNCTIONS, ast.ClassDef)):
            self._escapes = self._escapes or self._mentions(node)
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            if node.value is not None:
                self._store(node.targets if isinstance(node, ast.Assign) else [node.target], self._of(node.value))
        elif isinstance(node, ast.AugAssign):
            self._store([node.target], self._of(node.value))
        elif isinstance(node, (ast.For, ast.AsyncFor)):
            self._store([node.target], self._of(node.iter))
            self._block(node.body + node.orelse)
        elif isinstance(node, ast.Return):
            if node.value is not None and self._of(node.value):
                self._escapes = True
        elif isinstance(node, ast.Expr):
            self._of(node.value)
        else:
            for field in ast.iter_child_nodes(node):
                if isinstance(field, ast.expr):
                    self._of(field)
                elif isinstance(field, ast.withitem):
                    self._of(field.context_expr)
                elif isinstance(field, ast.ExceptHandler):
                    self._block(field.body)
                elif isinstance(field, ast.stmt):
                    self._statement(field)

    def _store(self, targets: Iterable[ast.expr], graph: _Graph) -> None:
        if not graph:
            return
        for target in targets:
            for part in [target] if not isinstance(target, (ast.Tuple, ast.List)) else target.elts:
                while isinstance(part, (ast.Subscript, ast.Starred)):
                    part = part.value
                if isinstance(part, ast.Name):
                    self._held.add(part.id)
                else:
                    self._escapes = True

    def _of(self, node: ast.AST) -> _Graph:
        """What an expression has of the graphs; notes gradients, and where they get out of sight."""
        if isinstance(node, ast.Name):
            return _Graph.SUM if node.id in self._held else _Graph.NONE
        if isinstance(node, ast.Call):
            return self._of_call(node)
        if isinstance(node, (ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.DictComp)):
            for clause in node.generators:
                self._store([clause.target], self._of(clause.iter))
            parts = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
            return max(self._of(part) for part in parts)
        if isinstance(node, (ast.Yield, ast.YieldFrom, ast.Await, ast.Lambda)):
            self._escapes = self._escapes or self._mentions(node)
            return _Graph.NONE
        graph = max(found := [self._of(part) for part in ast.iter_child_nodes(node)], default=_Graph.NONE)
        if isinstance(node, ast.Compare) or (isinstance(node, ast.Attribute) and node.attr in ("shape", "device")):
            return _Graph.NONE
        if isinstance(node, ast.Attribute) and node.attr in ("data", "dtype", "grad"):
            return _Graph.NONE
        if graph and isinstance(node, ast.BinOp) and not isinstance(node.op, (ast.Add, ast.Sub)):
            left, _, right = found
            if (left and right) or (right and not isinstance(node.op, ast.Mult)) or isinstance(node.op, ast.Pow):
                return self._made()
        return graph

    def _of_call(self, node: ast.Call) -> _Graph:
        name = last_name(node.func) or ""
        method = node.func if isinstance(node.func, ast.Attribute) else None
        own = self._of(method.value) if method is not None else _Graph.NONE
        given = max((self._of(part) for part in [*node.args, *(item.value for item in node.keywords)]), default=own)
        if method is not None and name in _FILLS:
            if given:
                self._store([method.value], given)
            return _Graph.NONE
        if not own and not given:
            return _Graph.NONE
        if name in _GRADIENTS:
            self.gradients.add(node.lineno)
            return self._made() if any(item.arg == "create_graph" for item in node.keywords) else _Graph.NONE
        if name in _VALUES or name in _PRINTS or (method is None and name in _NUMBERS):
            return _Graph.NONE
        if name in _SUMS:
            return max(own, given)
        if not own and id(node) not in self._steady and not _is_of_torch(node.func):
            self.given = True
        return self._made()

    def _made(self) -> _Graph:
        self.only_sums = False
        return _Graph.MADE

    def _mentions(self, node: ast.AST) -> bool:
        return any(isinstance(part, ast.Name) and part.id in self._held for part in ast.walk(node))


def _is_of_torch(function: ast.expr) -> bool:
    while isinstance(function, ast.Attribute):
        function = function.value
    return isinstance(function, ast.Name) and function.id in _TORCH


def _always_run(loop: ast.AST) -> Iterable[ast.AST]:
    """What runs in every turn of a loop: what it does with older graphs was seen by now."""
    for statement in getattr(loop, "body", ()):
        if isinstance(statement, (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Expr)):
            yield from ast.walk(statement)
