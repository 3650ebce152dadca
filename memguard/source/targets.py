"""What the targets of assignments and loops take: names that are bound, each target with its own part."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from memguard.source.chains import last_name
from memguard.source.functions import Function


def bind(target: ast.expr, function: Function) -> None:
    """Notes the names that a target binds in a function."""
    if isinstance(target, ast.Name):
        function.bound.add(target.id)
        return
    for node in ast.walk(target):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            function.bound.add(node.id)


def parts_of(target: ast.expr, value: ast.expr) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Each single target of an assignment with what it takes."""
    if isinstance(target, ast.Starred):
        yield target.value, value
    elif isinstance(target, (ast.Tuple, ast.List)):
        same = isinstance(value, (ast.Tuple, ast.List)) and len(value.elts) == len(target.elts)
        for index, part in enumerate(target.elts):
            yield from parts_of(part, value.elts[index] if same and isinstance(value, (ast.Tuple, ast.List)) else value)
    else:
        yield target, value


def parts_of_loop(target: ast.expr, iterable: ast.expr) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Each variable of a loop with what it runs over: ``enumerate``, ``zip`` and ``.items()`` are seen through."""
    if isinstance(target, (ast.Tuple, ast.List)):
        if isinstance(iterable, ast.Call):
            name = last_name(iterable.func)
            if name == "zip" and len(iterable.args) == len(target.elts):
                for part, source in zip(target.elts, iterable.args, strict=True):
                    yield from parts_of_loop(part, source)
                return
            if name == "enumerate" and iterable.args and len(target.elts) == 2:
                yield from parts_of_loop(target.elts[1], iterable.args[0])
                return
            if name == "items" and isinstance(iterable.func, ast.Attribute) and len(target.elts) == 2:
                yield from parts_of_loop(target.elts[1], iterable.func.value)
                return
        for part in target.elts:
            yield part, iterable
        return
    if isinstance(iterable, ast.Call) and isinstance(iterable.func, ast.Attribute) and iterable.func.attr == "values":
        iterable = iterable.func.value
    yield target, iterable
