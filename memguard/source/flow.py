"""How values flow through the variables of a function: aliases, what depends on what, calls that are passed on."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import final

from memguard.source.chains import Accessor, Chain, chains_of, last_name
from memguard.source.functions import Function
from memguard.source.syntax import Source


@final
@dataclass(frozen=True, slots=True)
class Anchor:
    """How the sought name looks in one function."""

    name: str
    attribute: bool


Aliases = dict[str, list[Chain]]


def aliases_of(function: Function) -> Aliases:
    """Names in a function that stand for a chain: ``log = self.log``, ``for log in logs.values()``."""
    if function.aliases is not None:
        return function.aliases
    found: Aliases = {}
    function.aliases = found
    for outer in function.enclosing():
        for store in outer.stores:
            if store.augmented or not isinstance(store.target, ast.Name):
                continue
            if outer is not function and function.home_of(store.target.id) is not outer:
                continue
            for chain in chains_of(store.value):
                if chain == (("name", store.target.id),) or chain[-1][0] == "call":
                    continue
                item: tuple[Accessor, ...] = (("item", None),) if store.from_loop else ()
                chains = found.setdefault(store.target.id, [])
                if len(chains) < 4:
                    chains.append((*chain, *item))
    return found


def expand(chain: Chain, aliases: Aliases, depth: int = 0) -> Iterator[Chain]:
    """A chain, and what it stands for if it begins at an alias."""
    yield chain
    if depth < 3 and chain[0][0] == "name":
        for other in aliases.get(str(chain[0][1]), ()):
            yield from expand((*other, *chain[1:]), aliases, depth + 1)


def depends(
    value: ast.expr,
    line: int,
    anchor: Anchor,
    source: Source,
    function: Function,
    seen: set[str] | None = None,
    depth: int = 0,
) -> bool:
    """Whether an expression on a line uses the anchor, directly or through variables set on lines before it."""
    seen = set() if seen is None else seen
    if depth > 6:
        return False
    names = set()
    for node in ast.walk(value):
        if isinstance(node, ast.Attribute) and anchor.attribute and node.attr == anchor.name:
            return True
        if isinstance(node, ast.Name):
            if not anchor.attribute and node.id == anchor.name:
                return True
            names.add(node.id)
        elif isinstance(node, ast.Call) and anchor.attribute and _method_uses(node, anchor, source, function):
            return True  # self.h = self.step(x)
    for name in names - seen:
        seen.add(name)
        for fed, before, from_loop in function.feeds(name):
            if (before < line or from_loop) and depends(fed, before, anchor, source, function, seen, depth + 1):
                return True
    return False


def _method_uses(call: ast.Call, anchor: Anchor, source: Source, function: Function) -> bool:
    """Whether a method of the same class mentions the anchor's attribute."""
    for other in _methods(source, function, last_name(call.func)):
        parts = [*(s.value for s in other.stores), *other.returns, *(site.node for site in other.calls)]
        for part in parts:
            if any(isinstance(node, ast.Attribute) and node.attr == anchor.name for node in ast.walk(part)):
                return True
    return False


def forwarded(call: ast.Call) -> ast.Call:
    """The call that ``partial(f, x)``, ``submit(f, x)`` or ``Thread(target=f, args=(x,))`` will make."""
    name = last_name(call.func)
    if name in ("partial", "submit", "apply_async", "call_soon") and call.args:
        return ast.Call(call.args[0], call.args[1:], call.keywords)
    if name in ("Thread", "Process"):
        named = {item.arg: item.value for item in call.keywords}
        target, args = named.get("target"), named.get("args")
        if target is not None and isinstance(args, (ast.Tuple, ast.List)):
            return ast.Call(target, args.elts, [])
    return call


def _methods(source: Source, function: Function, name: str | None) -> Iterator[Function]:
    """Methods of the same class by name."""
    body = next((outer.parent for outer in function.enclosing() if outer.owner is not None), None)
    if body is not None and name is not None:
        for other in source.functions:
            if other.parent is body and other.name == name:
                yield other


def is_inside(inner: Function, outer: Function) -> bool:
    """Whether a function is another one or is defined within it."""
    function: Function | None = inner
    while function is not None:
        if function is outer:
            return True
        function = function.parent
    return False
