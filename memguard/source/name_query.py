"""What a name search looks for, what it knows, what it finds."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple, final

from memguard.records.facts import Place
from memguard.source.expressions import Chain, called_name
from memguard.source.model import SourceModel
from memguard.source.scopes import Scope, method_called


@final
@dataclass(frozen=True, slots=True)
class NameQuery:
    """A name that holds something, and what lies between the name and the tensors."""

    name: str
    attribute: bool = False
    """Whether the name is an object's attribute, else it is a variable."""
    file: str | None = None
    """For a variable: the file of its function or module."""
    first_line: int = 0
    function: str | None = None
    """For a variable: its function, None for a module's global."""
    classes: tuple[str, ...] = ()
    """For an attribute: names of the owner's classes, in the order of inheritance."""
    base: str | None = None
    """For an attribute: the name under which its owner was met."""
    own_classes: tuple[str, ...] = ()
    """Names of the user's classes of the value itself: a list that logs in methods of its own."""
    kinds: tuple[str, ...] = ()
    """Kinds of the objects from the name's own value down to the tensor, like ("dict", "list", "tensor")."""
    keys: tuple[str | int | None, ...] = ()
    """The key that leads from each of these to the next, None where it has no constant one."""
    grows: int = 0
    """Position of the longest container among `kinds`."""
    beside: tuple[tuple[int, object], ...] = ()
    """Plain parts of the tuple that has the tensor, by position: a flag, a number, a text."""


@final
@dataclass(frozen=True, slots=True)
class SearchContext:
    """What is known of the run beside the name."""

    graph: bool = True
    """Whether a graph is kept (a detached value cannot), else any tensor."""
    numbers: bool = False
    """Whether plain values count as well."""
    running: Mapping[tuple[str, int], int] = field(default_factory=dict)
    """(file, first line) of the functions on the stack, and the line that runs."""
    calling: frozenset[tuple[str, int]] = frozenset()
    """Those that were seen to call a model while graphs piled up."""
    cells: tuple[frozenset[str], ...] = ()
    """Files that share their globals, like the cells of a notebook."""
    names: frozenset[str] = frozenset()
    """Variables that refer to the same tensors."""
    evaluates: bool | None = None
    """Whether the tensors come from an evaluation stage, if known."""


@final
@dataclass(frozen=True, slots=True)
class Statement:
    """A statement that makes the holder grow, or gives it its value."""

    file: str
    line: int
    function: str
    source: str
    grows: bool
    """Whether it adds to what was there; False for a plain assignment."""
    loops: bool = False
    """Whether it lies in a loop."""
    quiet: bool = False
    """Whether it lies in a function that prepares, like ``__init__``."""
    certain: bool = True
    """False for a call that only may store what it is given, like ``metric(output)`` of an installed class."""
    score: float = field(default=0.0, compare=False)
    also: tuple[int, ...] = field(default=(), compare=False)
    """Further lines of the same function that add to the same name."""

    def place(self, holder: str | None) -> Place:
        """It as a place, with the name that it fills."""
        place = Place(file=self.file, line=self.line, function=self.function, holder=holder, source=self.source)
        return replace(place, also=self.also) if self.also else place


class Anchor(NamedTuple):
    """How the name looks in one function."""

    name: str
    attribute: bool


def expand(chain: Chain, aliases: dict[str, list[Chain]], depth: int = 0) -> Iterator[Chain]:
    """A chain, and what it is if it begins at an alias."""
    yield chain
    if depth < 3 and chain[0][0] == "name":
        for other in aliases.get(str(chain[0][1]), ()):
            yield from expand((*other, *chain[1:]), aliases, depth + 1)


def depends(value: ast.expr, line: int, anchor: Anchor, model: SourceModel, scope: Scope, seen: set[str]) -> bool:
    """Whether an expression on a line uses the anchor, directly or through variables set on lines before it."""
    names = set()
    for node in ast.walk(value):
        if isinstance(node, ast.Attribute) and anchor.attribute and node.attr == anchor.name:
            return True
        if isinstance(node, ast.Name):
            if not anchor.attribute and node.id == anchor.name:
                return True
            names.add(node.id)
        elif isinstance(node, ast.Call) and anchor.attribute and _method_uses(node, anchor, model, scope):
            return True  # self.h = self.step(x)
    for name in names - seen:
        seen.add(name)
        for fed, before, from_loop in scope.feeds(name):
            if (before < line or from_loop) and depends(fed, before, anchor, model, scope, seen):
                return True
    return False


def _method_uses(call: ast.Call, anchor: Anchor, model: SourceModel, scope: Scope) -> bool:
    """Whether a method of the same class mentions the anchor's attribute."""
    for other in method_called(model.scopes, scope, called_name(call)):
        parts = [*(s.value for s in other.stores), *other.returns, *(site.node for site in other.calls)]
        inside = (node for part in parts for node in ast.walk(part) if isinstance(node, ast.Attribute))
        if any(node.attr == anchor.name for node in inside):
            return True
    return False


def forwarded(call: ast.Call) -> ast.Call:
    """The call that ``partial(f, x)``, ``submit(f, x)`` or ``Thread(target=f, args=(x,))`` will make."""
    name = called_name(call)
    if name in ("partial", "submit", "apply_async", "call_soon") and call.args:
        return ast.Call(call.args[0], call.args[1:], call.keywords)
    named = {item.arg: item.value for item in call.keywords}
    target, args = named.get("target"), named.get("args")
    if name in ("Thread", "Process") and target is not None and isinstance(args, (ast.Tuple, ast.List)):
        return ast.Call(target, args.elts, [])
    return call
