"""The line that makes float32 copies of a model's output, found by following the output's name down the source."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import replace

from memguard.facts import Place
from memguard.source.chains import last_name
from memguard.source.functions import Function, Site
from memguard.source.syntax import Source, Sources

_CASTS = frozenset({"cross_entropy", "log_softmax", "softmax"})
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_LOSSES = ("loss", "criterion", "crit", "objective")
MAX_HOPS = 3
"""Functions that are entered one from another."""


def find_upcast(site: Place) -> Place | None:
    """The statement that casts, or takes the loss of, what a call gave; None if the source does not show it.

    Args:
        site: The line that called the model.
    """
    if site.file is None or site.line is None:
        return None
    source = Sources().get(site.file)
    if source is None:
        return None
    function = around(source, site.line)
    names = {
        node.id
        for store in function.stores
        if store.line <= site.line <= store.end_line
        for node in ast.walk(store.target)
        if isinstance(node, ast.Name)
    }
    found = _follow(source, function, names, site.line, MAX_HOPS)
    if found is None:
        return None
    line, path = found
    return replace(site, line=line, function=path, source=source.lines[line - 1].strip(), holder=None)


def find_loss(
    source: Source, function: Function, before: int | None = None, hops: int = MAX_HOPS
) -> tuple[int, str] | None:
    """The line that casts something wide to float32 or takes the loss of it, and its function; None without one.

    A cast to float32 counts before a loss: without it there would be one copy less. What is called as a loss and
    stands in the same file is looked into.

    Args:
        source: The file.
        function: Where to look.
        before: The last line that counts.
        hops: Functions that may be entered one from another.
    """
    calls = sorted(function.calls, key=lambda site: (site.line, site.node.col_offset))
    calls = [site for site in calls if before is None or site.line <= before]
    casts = [site.line for site in calls if is_cast(site.node)]
    if casts:
        return casts[-1], function.path
    for site in calls:
        called = last_name(site.node.func) or ""
        if called in _CASTS:
            return site.line, function.path
        if any(word in called.lower() for word in _LOSSES):
            inner = [one for one in source.functions if one.name == called and not one.is_class] if hops else []
            found = find_loss(source, inner[0], None, hops - 1) if inner else None
            return found if found is not None else (site.line, function.path)
    return None


def around(source: Source, line: int) -> Function:
    """The innermost function that a line stands in; the module where it stands in none."""
    inside = [
        function
        for function in source.functions
        if isinstance(function.node, _FUNCTIONS) and function.node.lineno <= line <= (function.node.end_lineno or 0)
    ]
    return max(inside, key=lambda function: function.first_line, default=source.module)


def _follow(source: Source, function: Function, names: set[str], line: int, hops: int) -> tuple[int, str] | None:
    """Follows names down a function from a line on, and into those that they are handed to."""
    names = set(names)
    for store in sorted(function.stores, key=lambda store: store.line):
        if store.line > line and _mention(store.value, names):
            names.update(node.id for node in ast.walk(store.target) if isinstance(node, ast.Name))
    loss: tuple[int, str] | None = None
    for site in sorted(function.calls, key=lambda site: (site.line, site.node.col_offset)):
        called = last_name(site.node.func) or ""
        given = [site.node.func.value] if isinstance(site.node.func, ast.Attribute) else []
        same = site.line <= line <= site.end_line  # loss = criterion(model(x), y)
        used = any(_mention(part, names) for part in [*given, *site.arguments()])
        if site.line < line or not (used or (same and any(isinstance(arg, ast.Call) for arg in site.arguments()))):
            continue
        if called in _CASTS or is_cast(site.node):
            return site.line, function.path
        for inner, taken in _entered(source, site, called, names, same) if hops else ():
            found = _follow(source, inner, taken, inner.first_line, hops - 1)
            if found is not None:
                return found
        if loss is None and any(word in called.lower() for word in _LOSSES):
            loss = site.line, function.path
    return loss


def cast_name(function: Function, line: int) -> str | None:
    """The name that a line gives a cast tensor: ``shift`` of ``shift = logits.float().flatten(0, 1)``."""
    for store in function.stores:
        value = store.value if store.line <= line <= store.end_line else None
        while isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
            if is_cast(value) and isinstance(store.target, (ast.Name, ast.Attribute)):
                return ast.unparse(store.target)
            value = value.func.value
    return None


def is_cast(call: ast.Call) -> bool:
    """Whether a call is ``x.float()``, ``x.to(torch.float32)``, ``x.to(dtype=torch.float)``."""
    called = last_name(call.func)
    if called == "float":
        return isinstance(call.func, ast.Attribute)
    if called not in ("to", "type"):
        return False
    given = [*call.args, *(item.value for item in call.keywords if item.arg == "dtype")]
    return any(isinstance(arg, ast.Attribute) and arg.attr in ("float32", "float") for arg in given)


def _entered(
    source: Source, site: Site, called: str, names: set[str], same: bool
) -> Iterator[tuple[Function, set[str]]]:
    """The functions of this file that a call may enter, and what the names are called there.

    On the same line as the model's call (`same`) it may be what the model answered: ``loss_of(model(x), y)``.
    """
    for function in source.functions:
        if function.name != called or function.is_class or not function.params:
            continue
        first = int(function.owner is not None and "staticmethod" not in function.decorators)
        given = list(zip(site.node.args, function.params[first:], strict=False))
        taken = {param for arg, param in given if _mention(arg, names) or (same and isinstance(arg, ast.Call))}
        taken |= {item.arg for item in site.node.keywords if item.arg and _mention(item.value, names)}
        if taken:
            yield function, taken


def _mention(node: ast.AST, names: Iterable[str]) -> bool:
    return any(isinstance(part, ast.Name) and part.id in names for part in ast.walk(node))
