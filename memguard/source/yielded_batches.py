"""Where a sampler's ``__iter__`` gives a batch that it puts together itself: read from the syntax tree; never run."""

from __future__ import annotations

import ast
import linecache
from collections.abc import Iterator

from memguard.source.parsing import parse_file

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_SCOPES = (*_FUNCTIONS, ast.ClassDef, ast.Lambda)


def yielded_batch(file: str, first_line: int) -> tuple[int, str] | None:
    """The first statement of a function that yields what it makes, and its text; None where there is none.

    What it only passes on, as the variable of a loop, was put together elsewhere.

    Args:
        file: The function's file.
        first_line: Its first line, decorators included.
    """
    tree = parse_file(file)
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, _FUNCTIONS) and min([node.lineno, *(d.lineno for d in node.decorator_list)]) == first_line:
            parts = list(_own(node))
            passed = {name for part in parts if isinstance(part, ast.For) for name in _names(part.target)}
            lines = [part.lineno for part in parts if isinstance(part, ast.Yield) and _makes(part.value, passed)]
            return (min(lines), linecache.getline(file, min(lines)).strip()) if lines else None
    return None


def _makes(value: ast.expr | None, passed: set[str]) -> bool:
    return value is not None and not (isinstance(value, ast.Name) and value.id in passed)


def _names(target: ast.expr) -> set[str]:
    return {part.id for part in ast.walk(target) if isinstance(part, ast.Name)}


def _own(function: ast.AST) -> Iterator[ast.AST]:
    """What stands in a function, without the functions in it."""
    for child in ast.iter_child_nodes(function):
        if not isinstance(child, _SCOPES):
            yield child
            yield from _own(child)
