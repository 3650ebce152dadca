"""Statements that put something under a key: ``node["parent"] = node``, ``{"parent": parent}``, ``dict(parent=p)``."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

from memguard.facts import Place
from memguard.source.chains import last_name
from memguard.source.parsing import parse
from memguard.source.syntax import Source, Sources
from memguard.source.targets import parts_of
from memguard.source.upcasts import around

CLOSES, STORES, BEGINS = 3.0, 2.0, 1.0
"""How well a statement explains it: it puts a container into itself, something into one that is there, or a new one."""
LIKELY = 0.4
"""Share of a new dict's other keys that must stand in the function as well."""
_MAKES = frozenset({"dict", "OrderedDict", "defaultdict", "SimpleNamespace"})
_FILLS = frozenset({"append", "appendleft", "add", "insert", "extend"})


class KeyStatement(NamedTuple):
    """A statement of the user's, and how well it explains what stands under a key."""

    place: Place
    score: float


def find_key_statements(
    keys: Sequence[str], others: Collection[str], files: Iterable[str], sources: Sources, *, by_attribute: bool
) -> dict[str, KeyStatement]:
    """The best statement for each key, in the files that name all of them.

    Args:
        keys: The keys.
        others: Further keys of the same dicts: a function that names them as well is likelier.
        files: The user's files.
        sources: Parsed files.
        by_attribute: Whether a key may be an attribute: ``node.parent = node``.
    """
    best: dict[str, KeyStatement] = {}
    for file in files:
        if not all(sources.mention(file, (key,)) for key in keys):
            continue
        source = sources.get(file)
        for stored in _stored(source, by_attribute) if source is not None else ():
            key, at = stored.key, stored.at
            if source is None or key not in keys or _is_empty(stored.value):
                continue
            function = around(source, at.lineno)
            share = _share(others, _text_of(source, function.node))
            if stored.score == BEGINS and share < LIKELY:
                continue
            score = stored.score + share
            if stored.score == STORES and (base := _base(stored.owner)) is not None and _holds(stored.value, base):
                score += CLOSES - STORES
            if key not in best or _explains_better(score, at.lineno, file, best[key]):
                owner = ast.unparse(stored.owner) if stored.owner is not None else "dict"
                holder = f"{owner}.{key}" if stored.dotted else f"{owner}[{key!r}]"
                text = source.text(at.lineno, at.end_lineno or at.lineno)
                place = Place(file=file, line=at.lineno, function=function.path, holder=holder, source=text)
                best[key] = KeyStatement(place, score)
    return best


def find_self_filling(files: Iterable[str], sources: Sources) -> KeyStatement | None:
    """The only statement of the user's that puts a list into itself, or into what it takes."""
    found = []
    for file in files:
        source = sources.get(file)
        for node in _nodes(source) if source is not None else ():
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or source is None:
                continue
            base = _base(node.func.value)
            if base is None or node.func.attr not in _FILLS or not any(_holds(arg, base) for arg in node.args):
                continue
            text = source.text(node.lineno, node.end_lineno or node.lineno)
            function = around(source, node.lineno).path
            found.append(Place(file=file, line=node.lineno, function=function, holder=base, source=text))
    return KeyStatement(found[0], CLOSES) if len(found) == 1 else None


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


def _stored(source: Source, by_attribute: bool) -> Iterator[_Stored]:
    """All that is put under keys in a file."""
    names: dict[int, ast.expr] = {}
    """The names that new dicts get."""
    for node in _nodes(source):
        if isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign)) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target, value in (pair for one in targets for pair in parts_of(one, node.value)):
                names[id(value)] = target
                for owner, key, dotted in _keys_in(target, by_attribute):
                    yield _Stored(key, owner, value, target, STORES, dotted)
        elif isinstance(node, ast.Dict):
            for name, value in zip(node.keys, node.values, strict=True):
                if isinstance(name, ast.Constant) and isinstance(name.value, str):
                    yield _Stored(name.value, names.get(id(node)), value, name, BEGINS)
        elif isinstance(node, ast.Call):
            called = last_name(node.func)
            for keyword in node.keywords if called in _MAKES or called == "update" else ():
                if keyword.arg is not None and called == "update" and isinstance(node.func, ast.Attribute):
                    yield _Stored(keyword.arg, node.func.value, keyword.value, node, STORES)
                elif keyword.arg is not None:
                    yield _Stored(keyword.arg, names.get(id(node)), keyword.value, keyword.value, BEGINS)
            if not isinstance(node.func, ast.Attribute) or not node.args:
                continue
            first = node.args[0]
            if node.func.attr == "setdefault" and isinstance(first, ast.Constant) and len(node.args) > 1:
                yield _Stored(str(first.value), node.func.value, node.args[1], node, STORES)
            elif node.func.attr in _FILLS:
                for owner, key, dotted in _keys_in(node.func.value, by_attribute):
                    yield _Stored(key, owner, node.args[-1], node, STORES, dotted)


def _keys_in(target: ast.expr, by_attribute: bool) -> Iterator[tuple[ast.expr, str, bool]]:
    """The keys that an expression goes through: of ``a["b"]["c"][0]`` b and c, with what has them; whether by dots."""
    while isinstance(target, (ast.Subscript, ast.Attribute, ast.Call)):
        if isinstance(target, ast.Call):
            target = target.func
            continue
        if isinstance(target, ast.Attribute):
            if by_attribute:
                yield target.value, target.attr, True
        elif isinstance(target.slice, ast.Constant) and isinstance(target.slice.value, str):
            yield target.value, target.slice.value, False
        target = target.value


def _base(owner: ast.expr | None) -> str | None:
    while isinstance(owner, (ast.Subscript, ast.Attribute)):
        owner = owner.value
    return owner.id if isinstance(owner, ast.Name) else None


def _holds(value: ast.expr, name: str) -> bool:
    """Whether a variable itself, no part of it and nothing made of it, stands in an expression."""
    if isinstance(value, (ast.Tuple, ast.List, ast.Set)):
        return any(_holds(part, name) for part in value.elts)
    if isinstance(value, ast.Dict):
        return any(_holds(part, name) for part in value.values)
    return isinstance(value, ast.Name) and value.id == name


def _is_empty(value: ast.expr) -> bool:
    """Whether it refers to nothing."""
    return not any(isinstance(node, ast.Name) for node in ast.walk(value))


def _nodes(source: Source) -> Iterator[ast.AST]:
    tree = parse("".join(source.lines))
    return ast.walk(tree) if tree is not None else iter(())


def _explains_better(score: float, line: int, file: str, best: KeyStatement) -> bool:
    """Of equal statements the later one closes what the earlier one has begun."""
    place = best.place
    return score > best.score or (score == best.score and file == place.file and line > (place.line or 0))


def _share(keys: Collection[str], text: str) -> float:
    """How many of some keys a text has; a little less than 1.0 where it has all."""
    return sum(key in text for key in keys) / (len(keys) + 1) if keys else LIKELY


def _text_of(source: Source, node: ast.AST | None) -> str:
    first, last = getattr(node, "lineno", 1), getattr(node, "end_lineno", None)
    return "".join(source.lines[first - 1 : last])
