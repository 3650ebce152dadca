"""The statements that close a circle of references: into a dict under a key, into an attribute that leads back."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Iterator, Sequence
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
    names_in,
)
from memguard.source.model import SourceModel, Sources
from memguard.source.vocabulary import ADDS

CLOSES, CALLS, STORES, FILLS, ELSEWHERE = 5.0, 4.0, 2.0, 1.0, 0.5
"""How well a statement explains it: it puts a container into itself, or stores the method or closure itself; it gives
that to a call; it stores something into one that is there, or ``self``; it begins a new one, or stores anything at all;
it does so from outside the class.
"""
LIKELY = 0.4
"""Share of a new dict's other keys that the function must name as well."""
_MAKES = frozenset({"dict", "OrderedDict", "defaultdict", "SimpleNamespace"})
_FACTORIES = frozenset({"list", "dict", "set", "int", "float"})
_SIMPLE = (*ASSIGNMENTS, ast.Expr, ast.Return)


class KeyStatement(NamedTuple):
    """A statement of the user's, and how well it explains what lies under a key."""

    place: Place
    score: float


def find_key_statements(
    keys: Sequence[str], others: Collection[str], files: Iterable[str], sources: Sources, *, by_attribute: bool
) -> dict[str, KeyStatement]:
    """The best statement for each key, in the files that name all of them.

    Such as ``node["parent"] = node``, ``{"parent": parent}``, ``dict(parent=p)``.

    Args:
        keys: The keys.
        others: Further keys of the same dicts: a function that names them as well is likelier.
        files: The user's files.
        sources: Parsed files.
        by_attribute: Whether a key may be an attribute: ``node.parent = node``.
    """
    best: dict[str, KeyStatement] = {}
    for file in files:
        model = sources.get(file) if all(sources.mention(file, (key,)) for key in keys) else None
        for stored in _stored(model, by_attribute) if model is not None else ():
            key, line = stored.key, stored.at.lineno
            if model is None or key not in keys or not any(True for _ in names_in(stored.value)):
                continue
            scope = model.scope_at(line)
            first, last = getattr(scope.node, "lineno", 1), getattr(scope.node, "end_lineno", None)
            text = "".join(model.lines[first - 1 : last])
            share = sum(other in text for other in others) / (len(others) + 1) if others else LIKELY
            if stored.score == FILLS and share < LIKELY:
                continue
            base = _base(stored.owner) if stored.score == STORES else None
            score = share + (CLOSES if base is not None and _holds(stored.value, base) else stored.score)
            known = best.get(key)
            # Of equal statements the later one closes what the earlier one has begun.
            later = known is not None and (known.place.file, score) == (file, known.score)
            if known is None or score > known.score or (later and line > (known.place.line or 0)):
                owner = ast.unparse(stored.owner) if stored.owner is not None else "dict"
                holder = f"{owner}.{key}" if stored.dotted else f"{owner}[{key!r}]"
                best[key] = KeyStatement(_place(model, stored.at, scope.path, holder), score)
    return best


def _place(model: SourceModel, node: ast.expr, function: str, holder: str) -> Place:
    text = model.text(node.lineno, node.end_lineno)
    return Place(file=model.file, line=node.lineno, function=function, holder=holder, source=text)


class _Stored(NamedTuple):
    """What is put under a key somewhere."""

    key: str
    owner: ast.expr | None
    """The expression of the dict, if it has one."""
    value: ast.expr
    at: ast.expr
    score: float
    dotted: bool = False
    """Whether the key is written as an attribute."""


def _stored(model: SourceModel, by_attribute: bool) -> Iterator[_Stored]:
    """All that is put under keys in a file."""
    names: dict[int, ast.expr] = {}
    """The names that new dicts get."""
    for node in model.nodes:
        for target, value in assigned_pairs(node) if isinstance(node, ASSIGNMENTS) else ():
            names[id(value)] = target
            for owner, key, dotted in _keys_in(target, by_attribute):
                yield _Stored(key, owner, value, target, STORES, dotted)
        if isinstance(node, ast.Dict):
            for name, value in zip(node.keys, node.values, strict=True):
                if isinstance(name, ast.Constant) and isinstance(name.value, str):
                    yield _Stored(name.value, names.get(id(node)), value, name, FILLS)
        elif isinstance(node, ast.Call):
            called, base = called_name(node), method_base(node)
            for word in node.keywords if called in _MAKES or called == "update" else ():
                if word.arg is not None and called == "update" and base is not None:
                    yield _Stored(word.arg, base, word.value, node, STORES)
                elif word.arg is not None:
                    yield _Stored(word.arg, names.get(id(node)), word.value, word.value, FILLS)
            if base is None or not node.args:
                continue
            first = node.args[0]
            if called == "setdefault" and isinstance(first, ast.Constant) and len(node.args) > 1:
                yield _Stored(str(first.value), base, node.args[1], node, STORES)
            elif called in ADDS:
                for owner, key, dotted in _keys_in(base, by_attribute):
                    yield _Stored(key, owner, node.args[-1], node, STORES, dotted)


def _keys_in(target: ast.expr, by_attribute: bool) -> Iterator[tuple[ast.expr, str, bool]]:
    """The keys that an expression goes through: of ``a["b"]["c"][0]`` b and c, with what has them; whether by dots."""
    while isinstance(target, (ast.Subscript, ast.Attribute, ast.Call)):
        if isinstance(target, ast.Call):
            target = target.func
            continue
        if isinstance(target, ast.Attribute) and by_attribute:
            yield target.value, target.attr, True
        key = target.slice if isinstance(target, ast.Subscript) else None
        if isinstance(key, ast.Constant) and isinstance(key.value, str):
            yield target.value, key.value, False
        target = target.value


def _base(owner: ast.expr | None) -> str | None:
    while isinstance(owner, (ast.Subscript, ast.Attribute)):
        owner = owner.value
    return owner.id if isinstance(owner, ast.Name) else None


def _holds(value: ast.expr, name: str) -> bool:
    """Whether a variable itself, no part of it and nothing made of it, is in an expression."""
    if isinstance(value, (ast.Tuple, ast.List, ast.Set, ast.Dict)):
        return any(_holds(part, name) for part in (value.values if isinstance(value, ast.Dict) else value.elts))
    return isinstance(value, ast.Name) and value.id == name


# Attributes


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
        if (
            lines
            if isinstance(node, ast.Name)
            else isinstance(node.ctx, ast.Load) and _base(node.value) == me and isinstance(node.value, ast.Name)
        ):
            return True
    return False


def _made_with_object(body: ast.ClassDef, model: SourceModel, line: int) -> Iterator[str]:
    """What a statement calls with the object: ``Part`` of ``self.part = Part(self)``, of ``one.boxes = Boxes(one)``."""
    methods = list(_methods(body))
    inside = [(node, m.args.args[0].arg) for m in methods for node in _statements(m) if node.lineno == line]
    for statement, me in inside:
        yield from (called_name(c) for c in calls_in(statement) if any(me == _base(one) for one in _names_given(c)))
    for statement in _statements(model.tree) if not inside else ():
        if statement.lineno == line and isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Call):
            owners = {_base(target.value) for target in statement.targets if isinstance(target, ast.Attribute)}
            if any(_base(one) in owners for one in _names_given(statement.value)):
                yield called_name(statement.value)


def _names_given(call: ast.Call) -> list[ast.expr]:
    return [one for one in arguments(call) if isinstance(one, ast.Name)]


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
