"""The statement that closes a circle of references, by the syntax tree of the class that it is in."""

from __future__ import annotations

import ast
import linecache
import sys
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any, final

from memguard.facts import NOWHERE, Place
from memguard.probes.objects.attributes import attributes_of, is_user_class, mro_of, namespace_of
from memguard.source.chains import last_name
from memguard.source.parsing import parse_file
from memguard.source.targets import parts_of

CLOSES, CALLS, HANDS_OUT, FILLS, ELSEWHERE = 5.0, 4.0, 2.0, 1.0, 0.5
"""How well a statement explains it: it stores the method or closure itself, or what a method returns that
makes it, or gives that to a call; it gives away ``self``; it stores anything at all; it does so from outside the class.
"""
_FACTORIES = frozenset({"list", "dict", "set", "int", "float"})
_SIMPLE = (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Expr, ast.Return)


@final
@dataclass(frozen=True, slots=True)
class Closing:
    """Where an attribute takes what leads back to its object."""

    place: Place
    score: float
    """0.0 where no statement was found that stores anything."""
    made: frozenset[str] = frozenset()
    """Names of what is called with the object itself: ``Part`` of ``self.part = Part(self)``."""
    is_given: bool = False
    """Whether it is what the object was given when it was made: ``self.owner = owner`` in its ``__init__``."""


def find_closing(kind: type, attribute: str, methods: Collection[str] = (), lines: Collection[int] = ()) -> Closing:
    """The statement that makes an attribute of a user's class lead back to its object.

    Args:
        kind: The class.
        attribute: Name of the attribute.
        methods: Names of bound methods, and of functions, on the way back.
        lines: First lines of closures on the way back.
    """
    found: list[Closing] = []
    for base in mro_of(kind):
        if base is object or not is_user_class(base):
            continue
        file, tree = _tree_of(base)
        body = _class_in(tree, base) if tree is not None else None
        if file is None or tree is None or body is None:
            continue
        written = attribute.removeprefix(f"_{body.name.lstrip('_')}") if "__" in attribute else attribute
        scored = list(_in_class(body, written, methods, lines))
        if not scored or max(scored)[0] <= 0:
            scored += _elsewhere(tree, written)
        score, line = max(scored, key=lambda one: (one[0], -one[1]), default=(0.0, body.lineno))
        place = Place(file=file, line=line, function=kind.__name__, source=linecache.getline(file, line).strip())
        makes = {HANDS_OUT: _made_on(body, line), ELSEWHERE: _made_elsewhere(tree, line)}
        made = frozenset(makes.get(score, ()))
        found.append(Closing(place, score, made, score == FILLS and _is_given(body, written, line)))
    return max(found, key=lambda one: one.score, default=Closing(NOWHERE, 0.0))


def _in_class(
    body: ast.ClassDef, attribute: str, methods: Collection[str], lines: Collection[int]
) -> Iterator[tuple[float, int]]:
    for part in body.body:
        if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name) and part.target.id == attribute:
            yield 0.0, part.lineno
    makers = set(_makers(body, methods, lines))
    for part in _methods(body):
        me = part.args.args[0].arg
        for statement in _statements(part):
            given = _stored_in(statement, attribute, me)
            if given is not None:
                made = any(_is_own_call(value, me, makers) for value in given)
                yield CLOSES if made else _worth(given, me, methods, lines), statement.lineno
            elif _closes([statement], me, methods, lines):
                yield CALLS, statement.lineno


def _makers(body: ast.ClassDef, methods: Collection[str], lines: Collection[int]) -> Iterator[str]:
    """Methods that return such a closure or method itself: what stores their answer stores that."""
    for part in _methods(body):
        returned = (node.value for node in _statements(part) if isinstance(node, ast.Return) and node.value is not None)
        me, plain = part.args.args[0].arg, (ast.Name, ast.Attribute, ast.Lambda)
        if any(isinstance(value, plain) and _closes([value], me, methods, lines) for value in returned):
            yield part.name


def _is_own_call(value: ast.expr, me: str, names: Collection[str]) -> bool:
    """Whether it is a call of one of some methods on the object itself."""
    if not isinstance(value, ast.Call) or not isinstance(value.func, ast.Attribute) or value.func.attr not in names:
        return False
    return isinstance(value.func.value, ast.Name) and value.func.value.id == me


def _elsewhere(tree: ast.Module, attribute: str) -> Iterator[tuple[float, int]]:
    """Statements like ``child.parent = node`` or ``engine.agent = self`` anywhere in the file."""
    for statement in _statements(tree):
        given = _stored_in(statement, attribute, None)
        if given is not None and any(not _is_empty(value) for value in given):
            away = any(isinstance(value, ast.Name) and value.id == "self" for value in given)
            yield HANDS_OUT if away else ELSEWHERE, statement.lineno


def _statements(part: ast.AST) -> Iterator[Any]:
    return (node for node in ast.walk(part) if isinstance(node, _SIMPLE))


def _stored_in(statement: Any, attribute: str, me: str | None) -> list[ast.expr] | None:
    """What a statement puts into an attribute: by an assignment, into its elements, or by a call on it."""
    if isinstance(statement, ast.Assign):
        pairs = [pair for target in statement.targets for pair in parts_of(target, statement.value)]
        given = [value for target, value in pairs if _leads_to(target, attribute, me)]
        if given:
            return given
        call: ast.expr | None = statement.value
    elif isinstance(statement, (ast.AnnAssign, ast.AugAssign)):
        stored = statement.value is not None and _leads_to(statement.target, attribute, me)
        return [statement.value] if stored else None  # type: ignore[list-item]
    else:
        call = statement.value
    if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute):
        values = _given_to(call)
        if values and _leads_to(call.func.value, attribute, me):
            return values
    return None


def _leads_to(target: ast.expr, attribute: str, me: str | None) -> bool:
    """Whether an expression is ``self.attribute``, or a part of it; without a `me`, that of any other object."""
    while True:
        if isinstance(target, ast.Attribute):
            if target.attr == attribute:
                owner = target.value.id if isinstance(target.value, ast.Name) else None
                return owner == me if me is not None else owner != "self"
            target = target.value
        elif isinstance(target, (ast.Subscript, ast.Starred)):
            target = target.value
        elif isinstance(target, ast.Call):
            target = target.func
        else:
            return False


def _worth(given: list[ast.expr], me: str, methods: Collection[str], lines: Collection[int]) -> float:
    if _closes(given, me, methods, lines):
        return CLOSES
    parts = [node for value in given for node in ast.walk(value)]
    owners = {id(node.value) for node in parts if isinstance(node, ast.Attribute)}
    if any(isinstance(node, ast.Name) and node.id == me and id(node) not in owners for node in parts):
        return HANDS_OUT
    return 0.0 if all(map(_is_empty, given)) else FILLS


def _made_on(body: ast.ClassDef, line: int) -> Iterator[str]:
    """What a statement of a method calls with the object itself."""
    for method in _methods(body):
        me = method.args.args[0].arg
        for call in (node for part in _statements(method) if part.lineno == line for node in ast.walk(part)):
            if not isinstance(call, ast.Call):
                continue
            if any(isinstance(given, ast.Name) and given.id == me for given in _given_to(call)):
                yield last_name(call.func) or ""


def _made_elsewhere(tree: ast.Module, line: int) -> Iterator[str]:
    """What ``record.boxes = Boxes(record)`` calls: the object is given to what becomes its part."""
    for statement in _statements(tree):
        is_one = statement.lineno == line and isinstance(statement, ast.Assign)
        if not is_one or not isinstance(statement.value, ast.Call):
            continue
        owners = [target.value for target in statement.targets if isinstance(target, ast.Attribute)]
        names = {owner.id for owner in owners if isinstance(owner, ast.Name)}
        if any(isinstance(given, ast.Name) and given.id in names for given in _given_to(statement.value)):
            yield last_name(statement.value.func) or ""


def _is_given(body: ast.ClassDef, attribute: str, line: int) -> bool:
    """Whether a statement of ``__init__`` stores one of its arguments as it is."""
    for method in _methods(body):
        if method.name == "__init__":
            me, *names = (argument.arg for argument in [*method.args.args, *method.args.kwonlyargs])
            for statement in _statements(method):
                if statement.lineno == line:
                    given = _stored_in(statement, attribute, me) or []
                    return bool(given) and all(isinstance(one, ast.Name) and one.id in names for one in given)
    return False


def _methods(body: ast.ClassDef) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for part in body.body:
        if isinstance(part, (ast.FunctionDef, ast.AsyncFunctionDef)) and part.args.args:
            yield part


def _given_to(call: ast.Call) -> list[ast.expr]:
    return [*call.args, *(keyword.value for keyword in call.keywords)]


def _closes(given: list[Any], me: str, methods: Collection[str], lines: Collection[int]) -> bool:
    """Whether a bound method (not its call), a function by its name, or a lambda on one of some lines is in it."""
    parts = [node for value in given for node in ast.walk(value)]
    called = {id(node.func) for node in parts if isinstance(node, ast.Call)}
    for node in parts:
        if isinstance(node, ast.Lambda) and node.lineno in lines:
            return True
        if isinstance(node, ast.Name) and node.id in methods and lines and id(node) not in called:
            return True
        if isinstance(node, ast.Attribute) and node.attr in methods and id(node) not in called:
            own = isinstance(node.value, ast.Name) and node.value.id == me
            if own and isinstance(node.ctx, ast.Load):
                return True
    return False


def _is_empty(value: ast.expr) -> bool:
    """Whether it is a constant, or an empty container that will be filled later."""
    if isinstance(value, (ast.List, ast.Tuple, ast.Set)):
        return not value.elts
    if isinstance(value, ast.Dict):
        return not value.keys
    if isinstance(value, ast.Call):
        parts = [node for part in value.args for node in ast.walk(part)]
        names = [node.id for node in parts if isinstance(node, ast.Name) and node.id not in _FACTORIES]
        return not names and not any(isinstance(node, ast.Attribute) for node in parts)
    return isinstance(value, ast.Constant)


def _tree_of(kind: type) -> tuple[str | None, ast.Module | None]:
    module = sys.modules.get(str(namespace_of(kind).get("__module__")))
    file = attributes_of(module).get("__file__") if module is not None else None
    if type(file) is not str:
        return None, None
    tree = parse_file(file)
    return (file, tree) if tree is not None else (None, None)


def _class_in(tree: ast.Module, kind: type) -> ast.ClassDef | None:
    named = (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef) and node.name == kind.__name__)
    return next(named, None)
