"""Graphs that a function keeps though it needs one at a time, or none at all: read from the function's syntax.

Before an optimizer step nothing says that a graph is out of date: a roll-out, an inner loop, micro-batches keep many.
What the function does with them may say it: it differentiates their sum, which is the sum of their gradients, or none
of them.
"""

from __future__ import annotations

import ast
import enum
from collections.abc import Iterable
from typing import final

from memguard.records.facts import Place
from memguard.source.expressions import (
    COMPREHENSIONS,
    FUNCTIONS,
    FunctionNode,
    arguments,
    called_name,
    calls_in,
    flat_targets,
    item_base,
    mentions,
    method_base,
    parse_statement,
    root_of,
    targets_of,
)
from memguard.source.model import SourceModel
from memguard.source.vocabulary import ADDS, BACKWARD, CUT_ATTRIBUTES, LIBRARIES, NUMBER_FUNCTIONS, SHOWS, SUMS, TRAINS

_VALUES = frozenset({"item", "tolist", "numel", "size", "detach", "numpy", "argmax", "argmin"})
"""Methods whose result has no graph."""
_NO_GRAPH = (ast.Yield, ast.YieldFrom, ast.Await, ast.Lambda)


class _Graph(enum.IntEnum):
    """What an expression has of the graphs that are kept."""

    NONE = 0
    SUM = 1
    """Themselves, or a sum of them."""
    MADE = 2
    """Something else that was made from them."""


def is_unneeded(place: Place, *, used: bool) -> bool:
    """Whether the function that keeps graphs in a variable of its own needs only one of them at a time, or none.

    Args:
        place: The statement that keeps them.
        used: Whether each of them was differentiated already, with a graph of its own (``create_graph``).
    """
    uses = _uses_at(place)
    if uses is None:
        return False
    if used:  # and none will be taken of them any more
        return not uses.gradients and not uses.given
    return bool(uses.gradients) and uses.only_sums and not uses.trains and min(uses.gradients) > uses.end


def is_differentiated(place: Place) -> bool:
    """Whether the function that keeps graphs in a variable of its own takes gradients of them: they are no waste."""
    uses = _uses_at(place)
    return uses is not None and bool(uses.gradients)


def is_made_of_itself(place: Place) -> bool:
    """Whether the statement gives a variable a value that it makes from the old one: a state; a sum just grows."""
    node = parse_statement(place.source)
    if not isinstance(node, ast.Assign) or isinstance(node.value, ast.BinOp):
        return False
    return place.holder is not None and mentions(node.value, {place.holder})


def _uses_at(place: Place) -> _Uses | None:
    """What a function does with graphs; None where they may get out of it, or no function alone keeps them."""
    name = place.holder or _collected_into(place.source)
    model = SourceModel.of(place.file) if name.isidentifier() else None
    if model is None or place.line is None:
        return None
    function, loops = model.around(place.line)
    uses = _Uses(function, name, loops[-1] if loops else None) if isinstance(function, FUNCTIONS) else None
    return uses if uses is not None and uses.stay_inside() else None


def _collected_into(source: str | None) -> str:
    """The variable of a list which a comprehension is still making."""
    node = parse_statement(source)
    plain = isinstance(node, ast.Assign) and isinstance(node.value, (ast.ListComp, ast.SetComp))
    target = node.targets[0] if isinstance(node, ast.Assign) and plain else None
    return target.id if isinstance(target, ast.Name) else ""


@final
class _Uses:
    """What a function does with what one of its variables holds.

    Attributes:
        gradients: Lines that differentiate it.
        only_sums: Whether nothing but sums were made of it.
        given: Whether it goes to a function that may do anything with it.
        trains: Whether the function makes optimizer steps.
        end: Where the loop ends that fills it.
    """

    def __init__(self, function: FunctionNode, name: str, loop: ast.AST | None) -> None:
        self._function, self._held = function, {name}
        self._steady = {id(node) for node in _always_run(loop)}
        self._escapes = False
        self.gradients: set[int] = set()
        self.only_sums, self.given = True, False
        self.end = getattr(loop, "end_lineno", 0) or 0
        calls = map(called_name, calls_in(function))
        self.trains = any(word in call.lower() for call in calls if call != "train" for word in TRAINS)

    def stay_inside(self) -> bool:
        """Whether all that has a graph of it is gone when the function ends, as far as its source tells."""
        before = 0
        while len(self._held) > before and not self._escapes:
            before = len(self._held)
            self._block(self._function.body)
        arguments = self._function.args
        given = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
        outside = {one.arg for one in given if one is not None}
        for node in ast.walk(self._function):
            outside.update(node.names if isinstance(node, (ast.Global, ast.Nonlocal)) else ())
        return not self._escapes and not self._held & outside

    def _block(self, body: Iterable[ast.AST]) -> None:
        for node in body:
            self._statement(node)

    def _statement(self, node: ast.AST) -> None:
        if isinstance(node, (*FUNCTIONS, ast.ClassDef)):
            self._escapes = self._escapes or mentions(node, self._held)
        elif isinstance(node, ast.expr):
            self._of(node)
        elif isinstance(node, ast.Return):
            self._escapes = self._escapes or (node.value is not None and bool(self._of(node.value)))
        elif isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign)):
            if node.value is not None:
                self._store(targets_of(node), self._of(node.value))
        elif isinstance(node, (ast.For, ast.AsyncFor)):
            self._store([node.target], self._of(node.iter))
            self._block([*node.body, *node.orelse])
        elif isinstance(node, ast.withitem):
            self._of(node.context_expr)
        else:
            self._block(ast.iter_child_nodes(node))

    def _store(self, targets: list[ast.expr], graph: _Graph) -> None:
        for target in flat_targets(targets) if graph else ():
            base = item_base(target)
            if isinstance(base, ast.Name):
                self._held.add(base.id)
            else:
                self._escapes = True

    def _of(self, node: ast.AST) -> _Graph:
        """What an expression has of the graphs; notes gradients, and where they get out of sight."""
        if isinstance(node, ast.Name):
            return _Graph.SUM if node.id in self._held else _Graph.NONE
        if isinstance(node, ast.Call):
            return self._of_call(node)
        if isinstance(node, COMPREHENSIONS):
            for clause in node.generators:
                self._store([clause.target], self._of(clause.iter))
            parts = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
            return max(self._of(part) for part in parts)
        if isinstance(node, _NO_GRAPH):
            self._escapes = self._escapes or mentions(node, self._held)
            return _Graph.NONE
        graph = max(found := [self._of(part) for part in ast.iter_child_nodes(node)], default=_Graph.NONE)
        if isinstance(node, ast.Compare) or (
            isinstance(node, ast.Attribute) and node.attr in CUT_ATTRIBUTES | {"grad"}
        ):
            return _Graph.NONE
        if graph and isinstance(node, ast.BinOp) and not isinstance(node.op, (ast.Add, ast.Sub)):
            left, _, right = found
            if (left and right) or (right and not isinstance(node.op, ast.Mult)) or isinstance(node.op, ast.Pow):
                return self._made()
        return graph

    def _of_call(self, node: ast.Call) -> _Graph:
        name, base = called_name(node), method_base(node)
        own = self._of(base) if base is not None else _Graph.NONE
        given = max(map(self._of, arguments(node)), default=own)
        if base is not None and name in ADDS:
            self._store([base], given)
            return _Graph.NONE
        if not own and not given:
            return _Graph.NONE
        if name in BACKWARD:
            self.gradients.add(node.lineno)
            return self._made() if any(item.arg == "create_graph" for item in node.keywords) else _Graph.NONE
        if name in _VALUES or name in SHOWS or (base is None and name in NUMBER_FUNCTIONS):
            return _Graph.NONE
        if name in SUMS:
            return max(own, given)
        of_library = isinstance(node.func, ast.Name) or not isinstance(base, ast.Call)
        if not own and id(node) not in self._steady and not (of_library and root_of(node.func) in LIBRARIES):
            self.given = True
        return self._made()

    def _made(self) -> _Graph:
        self.only_sums = False
        return _Graph.MADE


def _always_run(loop: ast.AST | None) -> Iterable[ast.AST]:
    """What runs in every turn of a loop: what it does with older graphs was seen by now."""
    for statement in getattr(loop, "body", ()):
        if isinstance(statement, (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Expr)):
            yield from ast.walk(statement)
