"""The statements that close a circle of references: those that put what leads back into an attribute."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Sequence
from typing import Any, NamedTuple, final

from memguard.records.facts import Place
from memguard.source.expressions import (
    ASSIGNMENTS,
    FUNCTIONS,
    FunctionNode,
    arguments,
    assigned_pairs,
    called_name,
    calls_in,
    is_self,
    last_name,
    method_base,
    root_of,
)
from memguard.source.model import SourceModel

CLOSES, CALLS, STORES, FILLS, ELSEWHERE = 5.0, 4.0, 2.0, 1.0, 0.5
"""How well a statement explains it: it stores the method or closure itself; it gives that to a call; it stores
``self``; it stores anything at all; it does so from outside the class.
"""
_FACTORIES = frozenset({"list", "dict", "set", "int", "float"})
_SIMPLE = (*ASSIGNMENTS, ast.Expr, ast.Return)


@final
class Closing(NamedTuple):
    """The statement by which an attribute takes what leads back to its object."""

    place: Place
    score: float
    """0.0 where no statement was found that stores anything."""
    made: frozenset[str] = frozenset()
    """Names of what is called with the object itself: ``Part`` of ``self.part = Part(self)``."""
    is_given: bool = False
    """Whether it is what the object was given when it was made: ``self.owner = owner`` in its ``__init__``."""


def find_attribute_closing(
    model: SourceModel, kind: str, attribute: str, methods: Collection[str], lines: Collection[int]
) -> Closing | None:
    """The statement that makes an attribute of a class lead back to its object; None where the file has no such class.

    Args:
        model: The class's file.
        kind: Its name.
        attribute: The attribute, as Python names it: a private one with the class's name.
        methods: Names of bound methods, and of functions, on the way back.
        lines: First lines of closures on the way back.
    """
    body = next((node for node in model.all_of(ast.ClassDef) if node.name == kind), None)
    if body is None:
        return None
    written = attribute.removeprefix(f"_{kind.lstrip('_')}") if "__" in attribute else attribute
    scored = list(_in_class(body, written, methods, lines))
    if not scored or max(scored)[0] <= 0:
        for statement in _statements(model.tree):  # child.parent = node, engine.agent = self
            given = [value for value in _given_to_attribute(statement, written, None) if not _is_empty(value)]
            if given:
                scored.append((STORES if any(map(is_self, given)) else ELSEWHERE, statement.lineno))
    score, line = max(scored, key=lambda one: (one[0], -one[1]), default=(0.0, body.lineno))
    made = frozenset(_made_with_object(body, model, line) if score in (STORES, ELSEWHERE) else ())
    is_given = score == FILLS and _is_argument(body, written, line)
    return Closing(model.place(line, kind), score, made, is_given)


def _in_class(
    body: ast.ClassDef, attribute: str, methods: Collection[str], lines: Collection[int]
) -> Iterator[tuple[float, int]]:
    for part in body.body:
        if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name) and part.target.id == attribute:
            yield 0.0, part.lineno
    own = [(part, part.args.args[0].arg) for part in _methods(body)]
    makers = set()  # what stores the answer of one stores a closure or method itself
    for part, me in own:
        returned = (node.value for node in _statements(part) if isinstance(node, ast.Return))
        plain = [value for value in returned if isinstance(value, (ast.Name, ast.Attribute, ast.Lambda))]
        if _closes(plain, me, methods, lines):
            makers.add(part.name)
    for part, me in own:
        for statement in _statements(part):
            given = _given_to_attribute(statement, attribute, me)
            made = (value for value in given if called_name(value) in makers)
            if any(isinstance(base := method_base(value), ast.Name) and base.id == me for value in made):
                yield CLOSES, statement.lineno
            elif given:
                yield _score(given, me, methods, lines), statement.lineno
            elif _closes([statement], me, methods, lines):
                yield CALLS, statement.lineno


def _statements(part: ast.AST) -> Iterator[Any]:
    return (node for node in ast.walk(part) if isinstance(node, _SIMPLE))


def _methods(body: ast.ClassDef) -> Iterator[FunctionNode]:
    return (part for part in body.body if isinstance(part, FUNCTIONS) and part.args.args)


def _given_to_attribute(statement: Any, attribute: str, me: str | None) -> list[ast.expr]:
    """What a statement puts into an attribute: by an assignment, into its elements, or by a call on it."""
    given = [value for target, value in assigned_pairs(statement) if _leads_to(target, attribute, me)]
    base = method_base(statement.value) if not isinstance(statement, (ast.AnnAssign, ast.AugAssign)) else None
    if not given and base is not None and _leads_to(base, attribute, me):
        return arguments(statement.value)
    return given


def _leads_to(target: ast.expr, attribute: str, me: str | None) -> bool:
    """Whether an expression is ``self.attribute``, or a part of it; without a `me`, that of any other object."""
    while isinstance(target, (ast.Attribute, ast.Subscript, ast.Starred, ast.Call)):
        if isinstance(target, ast.Attribute) and target.attr == attribute:
            owner = target.value.id if isinstance(target.value, ast.Name) else None
            return owner == me if me is not None else owner != "self"
        target = target.func if isinstance(target, ast.Call) else target.value
    return False


def _score(given: list[ast.expr], me: str, methods: Collection[str], lines: Collection[int]) -> float:
    if _closes(given, me, methods, lines):
        return CLOSES
    parts = [node for value in given for node in ast.walk(value)]
    owners = {id(node.value) for node in parts if isinstance(node, ast.Attribute)}
    if any(isinstance(node, ast.Name) and node.id == me and id(node) not in owners for node in parts):
        return STORES
    return 0.0 if all(map(_is_empty, given)) else FILLS


def _closes(given: Sequence[ast.AST], me: str, methods: Collection[str], lines: Collection[int]) -> bool:
    """Whether a bound method (not its call), a function by its name, or a lambda on one of some lines is in it."""
    parts = [node for value in given for node in ast.walk(value)]
    called = {id(node.func) for node in parts if isinstance(node, ast.Call)}
    for node in parts:
        if isinstance(node, ast.Lambda) and node.lineno in lines:
            return True
        if not isinstance(node, (ast.Name, ast.Attribute)) or id(node) in called or last_name(node) not in methods:
            continue
        own = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == me
        if lines if isinstance(node, ast.Name) else own and isinstance(node.ctx, ast.Load):
            return True
    return False


def _made_with_object(body: ast.ClassDef, model: SourceModel, line: int) -> Iterator[str]:
    """What a statement calls with the object: ``Part`` of ``self.part = Part(self)``, of ``one.boxes = Boxes(one)``."""
    methods = list(_methods(body))
    inside = [(node, m.args.args[0].arg) for m in methods for node in _statements(m) if node.lineno == line]
    for statement, me in inside:
        yield from (called_name(call) for call in calls_in(statement) if me in _names_given(call))
    for statement in _statements(model.tree) if not inside else ():
        if statement.lineno == line and isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Call):
            owners = {root_of(target) for target in statement.targets if isinstance(target, ast.Attribute)}
            if not owners.isdisjoint(_names_given(statement.value)):
                yield called_name(statement.value)


def _names_given(call: ast.Call) -> list[str]:
    return [one.id for one in arguments(call) if isinstance(one, ast.Name)]


def _is_argument(body: ast.ClassDef, attribute: str, line: int) -> bool:
    """Whether a statement of ``__init__`` stores one of its arguments as it is."""
    for method in _methods(body):
        me, *names = (argument.arg for argument in [*method.args.args, *method.args.kwonlyargs])
        for statement in _statements(method) if method.name == "__init__" else ():
            if statement.lineno == line:
                given = _given_to_attribute(statement, attribute, me)
                return bool(given) and all(isinstance(one, ast.Name) and one.id in names for one in given)
    return False


def _is_empty(value: ast.expr) -> bool:
    """Whether it is a constant, or an empty container that will be filled later."""
    if isinstance(value, (ast.List, ast.Tuple, ast.Set, ast.Dict)):
        return not (value.values if isinstance(value, ast.Dict) else value.elts)
    if isinstance(value, ast.Call):
        parts = [node for part in value.args for node in ast.walk(part)]
        names = [node.id for node in parts if isinstance(node, ast.Name) and node.id not in _FACTORIES]
        return not names and not any(isinstance(node, ast.Attribute) for node in parts)
    return isinstance(value, ast.Constant)
