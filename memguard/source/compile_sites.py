"""Where a program compiles, or captures CUDA graphs: read from the syntax tree, once there are too many of them."""

from __future__ import annotations

import ast
import linecache
from collections.abc import Iterable, Iterator

from memguard.facts import NOWHERE, Place
from memguard.source.parsing import parse_file

_COMPILES = frozenset({"compile"})
_CAPTURES = frozenset({"torch.cuda.graph", "cuda.graph", "torch.cuda.make_graphed_callables", "make_graphed_callables"})


def compile_site(files: Iterable[str], *, captures: bool = False) -> Place:
    """The line that calls ``torch.compile``, as a function or as a decorator; nowhere without one.

    Args:
        files: Source files, the likeliest first.
        captures: Whether the line that captures a CUDA graph is sought instead.
    """
    for file in dict.fromkeys(files):
        tree = parse_file(file)
        if tree is None:
            continue
        for node in _calls(tree):
            if _is_wanted(node, _CAPTURES if captures else _COMPILES):
                return Place(file=file, line=node.lineno, source=linecache.getline(file, node.lineno).strip())
    return NOWHERE


def _calls(tree: ast.Module) -> Iterator[ast.expr]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield node.func
        elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            yield from (decorator for decorator in node.decorator_list if not isinstance(decorator, ast.Call))


def _is_wanted(function: ast.expr, names: frozenset[str]) -> bool:
    if names is _COMPILES and isinstance(function, ast.Attribute) and function.attr == "compile":
        return not (isinstance(function.value, ast.Name) and function.value.id == "re")  # model.compile(), torch's own
    return ast.unparse(function) in names
