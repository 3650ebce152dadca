"""The line that makes float32 copies of a model's output, found by following the output's name down the source."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace

from memguard.records.facts import Place
from memguard.source.expressions import arguments, called_name, mentions, method_base, names_in
from memguard.source.model import SourceModel
from memguard.source.scopes import Call, Scope
from memguard.source.vocabulary import CASTS, JUDGES

_LOSSES = JUDGES[:4]
MAX_HOPS = 3
"""Functions that are entered one from another."""


def find_upcast(site: Place) -> Place | None:
    """The statement that casts, or takes the loss of, what a call gave; None if the source does not show it."""
    model = SourceModel.of(site.file)
    if site.line is None or not model.lines:
        return None
    scope, line = model.scope_at(site.line), site.line
    stores = (store for store in scope.stores if store.line <= line <= store.end_line)
    names = {name for store in stores for name in names_in(store.target)}
    found = _follow(model, scope, names, line, MAX_HOPS)
    if found is None:
        return None
    return replace(site, line=found[0], function=found[1], source=model.code(found[0]), holder=None)


def find_loss(
    model: SourceModel, scope: Scope, before: int | None = None, hops: int = MAX_HOPS
) -> tuple[int, str] | None:
    """The line that casts something wide to float32 or takes the loss of it, and its function; None without one.

    A cast to float32 counts before a loss: without it there would be one copy less. What is called as a loss and
    is in the same file is looked into.
    """
    calls = [call for call in _in_order(scope) if before is None or call.line <= before]
    casts = [call.line for call in calls if is_cast(call.node)]
    if casts:
        return casts[-1], scope.path
    for call in calls:
        called = called_name(call.node)
        if called in CASTS:
            return call.line, scope.path
        if _is_loss(called):
            inner = [one for one in model.scopes if one.name == called and not one.is_class] if hops else []
            found = find_loss(model, inner[0], None, hops - 1) if inner else None
            return found if found is not None else (call.line, scope.path)
    return None


def cast_name(scope: Scope, line: int) -> str | None:
    """The name that a line gives a cast tensor: ``shift`` of ``shift = logits.float().flatten(0, 1)``."""
    for store in scope.stores:
        value = store.value if store.line <= line <= store.end_line else None
        while isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
            if is_cast(value) and isinstance(store.target, (ast.Name, ast.Attribute)):
                return ast.unparse(store.target)
            value = value.func.value
    return None


def is_cast(call: ast.Call) -> bool:
    """Whether a call is ``x.float()``, ``x.to(torch.float32)``, ``x.to(dtype=torch.float)``."""
    called = called_name(call)
    if called == "float":
        return method_base(call) is not None
    given = [*call.args, *(item.value for item in call.keywords if item.arg == "dtype")]
    wide = any(isinstance(arg, ast.Attribute) and arg.attr in ("float32", "float") for arg in given)
    return called in ("to", "type") and wide


def _is_loss(called: str) -> bool:
    return any(word in called.lower() for word in _LOSSES)


def _in_order(scope: Scope) -> list[Call]:
    return sorted(scope.calls, key=lambda call: (call.line, call.node.col_offset))


def _follow(model: SourceModel, scope: Scope, names: set[str], line: int, hops: int) -> tuple[int, str] | None:
    """Follows names down a function from a line on, and into those that they are handed to."""
    names = set(names)
    for store in sorted(scope.stores, key=lambda store: store.line):
        if store.line > line and mentions(store.value, names):
            names.update(names_in(store.target))
    loss: tuple[int, str] | None = None
    for call in _in_order(scope):
        base, called = method_base(call.node), called_name(call.node)
        same = call.line <= line <= call.end_line  # loss = criterion(model(x), y)
        given = arguments(call.node)
        used = any(mentions(part, names) for part in [*([base] if base is not None else []), *given])
        if call.line < line or not (used or (same and any(isinstance(arg, ast.Call) for arg in given))):
            continue
        if called in CASTS or is_cast(call.node):
            return call.line, scope.path
        for inner, taken in _entered(model, call, called, names, same) if hops else ():
            found = _follow(model, inner, taken, inner.first_line, hops - 1)
            if found is not None:
                return found
        if loss is None and _is_loss(called):
            loss = call.line, scope.path
    return loss


def _entered(
    model: SourceModel, call: Call, called: str, names: set[str], same: bool
) -> Iterator[tuple[Scope, set[str]]]:
    """The functions of this file that a call may enter, and what the names are called there.

    On the same line as the model's call (`same`) it may be what the model answered: ``loss_of(model(x), y)``.
    """
    for scope in model.scopes:
        if scope.name == called and not scope.is_class and scope.params:
            first = int(scope.owner is not None and "staticmethod" not in scope.decorators)
            given = list(zip(call.node.args, scope.params[first:], strict=False))
            taken = {param for arg, param in given if mentions(arg, names) or (same and isinstance(arg, ast.Call))}
            taken |= {item.arg for item in call.node.keywords if item.arg and mentions(item.value, names)}
            if taken:
                yield scope, taken
