"""Where a program makes loaders and batches, compiles, captures graphs, enters autocast, cuts samples, has hooks."""

from __future__ import annotations

import ast
import linecache
import re
from collections.abc import Iterable, Iterator
from typing import Any, final

from memguard.records.facts import NOWHERE, Place
from memguard.source.expressions import (
    FUNCTIONS,
    LOOPS,
    FunctionNode,
    block_spans,
    called_name,
    calls_in,
    last_name,
    last_part,
    names_in,
    own_nodes,
    targets_of,
)
from memguard.source.model import SourceModel
from memguard.source.resets import begins_attribute, is_called_on, removes

_CAPTURES = frozenset({"torch.cuda.graph", "cuda.graph", "torch.cuda.make_graphed_callables", "make_graphed_callables"})
_ENTERS = frozenset({"__enter__", "enter_context"})
_MAKES_CONTEXT = frozenset({"contextmanager", "asynccontextmanager"})
_CUTS = ("trunc", "max_len", "maxlen", "max_length", "crop", "clip", "block_size", "context")
_ROUNDS = 2
"""Helpers that call helpers are followed so far."""


def loader_calls(files: Iterable[str]) -> Iterator[Place]:
    """The calls of classes whose name ends in ``Loader``, in statements that keep or return what they make.

    Their holder is the variable or attribute that the loader is given to.
    """
    for file in dict.fromkeys(files):
        if not any("Loader(" in line for line in linecache.getlines(file)):
            continue  # to parse a large project would take seconds
        model = SourceModel.of(file)
        keeping = model.all_of(ast.Assign, ast.AnnAssign, ast.Return, ast.For)
        for node in sorted(keeping, key=lambda node: node.lineno):
            made = node.iter if isinstance(node, ast.For) else node.value
            if made is None or not any(called_name(c).endswith("Loader") for c in calls_in(made)):
                continue
            function, targets = model.function_at(made.lineno), targets_of(node)
            name = last_name(targets[0]) if len(targets) == 1 and not isinstance(node, ast.For) else None
            around = "<module>" if isinstance(function, ast.Module) else function.name
            text = linecache.getline(file, made.lineno).strip()
            yield Place(file=file, line=made.lineno, function=around, holder=name, source=text)


def yielded_batch(file: str, first: int) -> tuple[int, str] | None:
    """The first statement of a function that yields what it makes, and its text; None where there is none.

    What it only passes on, as the variable of a loop, was put together elsewhere.
    """
    parts = list(own_nodes(SourceModel.of(file).function_of(first)))
    passed = {name for part in parts if isinstance(part, ast.For) for name in names_in(part.target)}
    values = [part.value for part in parts if isinstance(part, ast.Yield) and part.value is not None]
    lines = [value.lineno for value in values if not (isinstance(value, ast.Name) and value.id in passed)]
    return (min(lines), linecache.getline(file, min(lines)).strip()) if lines else None


def compile_site(files: Iterable[str], *, captures: bool = False) -> Place:
    """The line that calls ``torch.compile``, as a function or as a decorator; nowhere without one.

    Args:
        files: Source files, the likeliest first.
        captures: Whether the line that captures a CUDA graph is wanted instead.
    """
    for model in map(SourceModel.of, dict.fromkeys(files)):
        for node in model.nodes:
            called: list[Any] = [node.func] if isinstance(node, ast.Call) else []
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                called = [one for one in node.decorator_list if not isinstance(one, ast.Call)]
            for function in called:
                if (ast.unparse(function) in _CAPTURES) if captures else _compiles(function):
                    return model.place(function.lineno)
    return NOWHERE


def _compiles(function: ast.expr) -> bool:
    if isinstance(function, ast.Attribute):  # model.compile(), torch's own
        return function.attr == "compile" and ast.unparse(function.value) != "re"
    return isinstance(function, ast.Name) and function.id == "compile"


def calls_backward(place: Place | None) -> bool:
    """Whether a line calls ``backward``: ``autograd.grad`` gives its gradients back."""
    if place is None or place.file is None or place.line is None:
        return False
    return re.search(r"\b(manual_)?backward\s*\(", linecache.getline(place.file, place.line)) is not None


def handler_at(file: str, line: int) -> int | None:
    """Where the outermost ``except`` around a line begins."""
    handler = SourceModel.of(file).node_at(line, ast.ExceptHandler)
    return handler.lineno if handler is not None else None


def cuts_samples(file: str, first: int) -> bool:
    """Whether a function that begins on a line may cut what it takes: by a slice with an end, or words for it."""
    model = SourceModel.of(file)
    if not model.is_read:
        return True  # it cannot be read, so nothing is concluded
    for node in model.all_of(ast.FunctionDef, ast.Lambda):
        if node.lineno != first:
            continue
        inside = list(ast.walk(node))
        # ``out[i, : len(item)] = item`` pads, and cuts nothing.
        assigned = {id(p) for n in inside if isinstance(n, ast.Assign) for t in n.targets for p in ast.walk(t)}
        for part in inside:
            if isinstance(part, ast.Slice) and part.upper is not None and id(part) not in assigned:
                return True
            name = getattr(part, "attr", None) or getattr(part, "id", None) or getattr(part, "arg", None)
            if isinstance(name, str) and name != "clip" and any(word in name.lower() for word in _CUTS):
                return True  # numpy's and torch's `clip` bounds numbers
    return False


# Autocast


@final
class AutocastRegions:
    """The autocast regions that a file opens: also through a helper that makes them, or under a name given before."""

    def __init__(self, model: SourceModel) -> None:
        self._model = model
        self._makers, self._names = {"autocast"}, set[str]()
        for _ in range(_ROUNDS):
            self._makers.update(node.name for node in model.functions if self._makes(node))
            given = (node for node in model.all_of(ast.Assign) if self.is_one(node.value))
            self._names.update(name for node in given for one in node.targets if (name := last_name(one)) is not None)

    def is_one(self, expression: ast.expr) -> bool:
        """Whether an expression is such a region: ``torch.autocast("cuda")``, ``self.amp`` that was set to one."""
        called = (last_name(call.func) for call in calls_in(expression))
        return last_name(expression) in self._names or not self._makers.isdisjoint(called)

    def entered_at(self, first: int | None, until: int) -> int | None:
        """The line on which a function enters a region, the last one before a line; None where it enters none.

        Args:
            first: The function's first line, its decorators included; None for the file's own code.
            until: The line that runs.
        """
        scope = self._model.function_of(first) if first is not None else None
        entries = (expression.lineno for expression in self._entries(scope or self._model.tree))
        return max((line for line in entries if line <= until), default=None)

    def left_open(self) -> list[tuple[str | None, int]]:
        """Functions and lines that enter a region without a ``with``: it outlives them, as a resource of a run does."""
        scopes: list[FunctionNode | ast.Module] = [self._model.tree, *self._model.functions]
        return [
            (None if isinstance(scope, ast.Module) else scope.name, expression.lineno)
            for scope in scopes
            for expression in self._entries(scope, blocks=False)
        ]

    def loop_inside(self, first: int, line: int) -> tuple[bool, bool]:
        """Whether a function enters a region around a line, and whether a loop lies between that and the line."""
        around = [node for node in self._model.all_of(ast.With, *LOOPS) if node.lineno >= first]
        around = [node for node in around if block_spans(node.body, line)]
        loops = False
        for node in reversed(around):
            if isinstance(node, ast.With) and any(self.is_one(item.context_expr) for item in node.items):
                return True, loops
            loops = loops or isinstance(node, LOOPS)
        return False, loops

    def _entries(self, scope: FunctionNode | ast.Module, *, blocks: bool = True) -> Iterator[ast.expr]:
        if blocks and not isinstance(scope, ast.Module):
            yield from filter(self.is_one, scope.decorator_list)
        for node in own_nodes(scope):
            if isinstance(node, (ast.With, ast.AsyncWith)) and blocks:
                yield from (item.context_expr for item in node.items if self.is_one(item.context_expr))
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _ENTERS:
                yield from filter(self.is_one, node.args or [node.func.value])

    def _makes(self, function: FunctionNode) -> bool:
        """Whether a function gives back a region, or is a context manager around one."""
        if any(called_name(item) in _MAKES_CONTEXT for item in function.decorator_list):
            return any(True for _ in self._entries(function))
        returned = (node.value for node in own_nodes(function) if isinstance(node, ast.Return))
        return any(value is not None and self.is_one(value) for value in returned)


# What empties a holder: a method of its class, or of two hooks (``saved_tensors_hooks(pack, unpack)``) the second one

_EMPTIES = frozenset({"reset", "clear"})
_METRIC = "Metric"
_HOOKS = "saved_tensors_hooks"


def remedy_at(place: Place) -> str | None:
    """What to do about a holder that keeps filling from batch to batch, where the code has what would empty it."""
    return remedy_of_stash(place) or _remedy_of_class(place)


def _remedy_of_class(place: Place) -> str | None:
    """The method that begins an attribute anew: its class may have one, and each metric inherits one."""
    model, (owner, _, stash) = SourceModel.of(place.file), (place.holder or "").rpartition(".")
    if not owner:
        return None
    for kind in model.all_of(ast.ClassDef):
        if kind.name != owner:
            continue
        own = [node for node in kind.body if isinstance(node, FUNCTIONS) and node.name in _EMPTIES]
        emptying = (one for one in own if begins_attribute(one, stash) or _takes_out(one, stash))
        method = next((node.name for node in emptying), None)
        if method is None and any((last_part(base) or "").endswith(_METRIC) for base in kind.bases):
            method = "reset"
        if method is not None and not is_called_on(model, owner, method):
            return f"call {method}() on the {owner} once an epoch is over and its value is known."
    return None


def remedy_of_stash(place: Place) -> str | None:
    """What to change where a statement is part of a pack hook, and nothing takes out what it puts aside; else None."""
    model, name = SourceModel.of(place.file), (place.function or "").rpartition(".")[2]
    stash = (place.holder or "").rpartition(".")[2]
    if not name or not stash:
        return None
    for call in model.all_of(ast.Call):
        hooks = [last_part(arg) for arg in (*call.args, *(keyword.value for keyword in call.keywords))][:2]
        if len(hooks) == 2 and hooks[0] == name and (last_part(call.func) == _HOOKS or _is_constructor(model, call)):
            if any(_takes_out(function, stash) for function in model.functions_named(hooks[1] or "")):
                return None
            return (
                f"take each out of `{stash}` when backward reads it: {stash}.pop(key) in {hooks[1]}(), or del what the "
                "step has put there when its backward is over."
            )
    return None


def _is_constructor(model: SourceModel, call: ast.Call) -> bool:
    """Whether a call is ``super().__init__(...)`` in a class made of the hooks."""
    if last_part(call.func) != "__init__":
        return False
    kinds = (node for node in model.all_of(ast.ClassDef) if node.lineno <= call.lineno <= (node.end_lineno or 0))
    return any(last_part(base) == _HOOKS for node in kinds for base in node.bases)


def _takes_out(function: ast.AST, stash: str) -> bool:
    """Whether a function removes something from what has that name."""
    return any(removes(node, stash, True) for node in ast.walk(function))
