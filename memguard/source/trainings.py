"""What running functions are for, by names: whether they can come to a backward, and whether they say they evaluate."""

from __future__ import annotations

import ast
import functools
import inspect
import linecache
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import CodeType

from memguard.source.model import SourceModel
from memguard.source.vocabulary import STAGES

_ENGINE = frozenset({"backward", "manual_backward", "autograd", "grad", "grad_and_value", "value_and_grad", "vjp"})
_OF_OBJECTS = frozenset({"__init__", "__call__"})
MOST_LINES = 20_000
"""Of all files together; of a larger program nothing is said."""


def may_train(running: Iterable[tuple[CodeType, int]], files: Iterable[str]) -> bool:
    """Whether any function that the running ones may still call names PyTorch's engine; True where that is not known.

    A name counts as every function of that name: it finds too many rather than too few.

    Args:
        running: The code of each running function, and the line that runs.
        files: The program's.
    """
    functions: dict[str, list[CodeType]] = {}
    lines = 0
    for file in files:
        text = linecache.getlines(file)
        lines += len(text)
        if (not text and not _is_empty(file)) or lines > MOST_LINES:
            return True
        try:
            module = compile("".join(text), file, "exec", dont_inherit=True)
        except (SyntaxError, ValueError):
            return True
        for code in _functions_in(module):
            functions.setdefault(code.co_name, []).append(code)
    waiting, seen = [], set[str]()
    for code, line in running:
        ahead, called = _names_ahead(code, line)
        waiting.append(ahead)
        # What an object was made with, or what its call runs, may come later under any name.
        bodies = [
            body for name in called for body in functions.get(name, ()) if not body.co_flags & inspect.CO_OPTIMIZED
        ]
        methods = [inner for body in bodies for inner in body.co_consts if isinstance(inner, CodeType)]
        waiting += [_names_in(inner) for inner in methods if inner.co_name in _OF_OBJECTS]
    while waiting:
        names = waiting.pop()
        if not _ENGINE.isdisjoint(names):
            return True
        for name in names - seen:
            seen.add(name)
            waiting += map(_names_in, functions.get(name, ()))
    return False


def _names_ahead(code: CodeType, line: int) -> tuple[set[str], set[str]]:
    """What a running function names and may still call, and what it has called and calls no more.

    What is ahead goes from the outermost loop around a line to the end. A name that is not called where it stands is
    handed on, and may be called later: ``run(step, loader)``, ``update = partial(step, net)``.
    """
    model = SourceModel.of(code.co_filename)
    scope = model.scope_of(code.co_firstlineno, code.co_name)
    if scope is None or scope.node is None:
        return _names_in(code), set()
    first = min([loop.lineno for loop in model.loops_in(scope.node, line)], default=line + 1)
    nodes = list(_own_parts(scope.node))
    over = {id(node.func) for node, waits in nodes if isinstance(node, ast.Call) and not waits and node.lineno < first}
    ahead, called = set[str](), set[str]()
    for node, _ in nodes:
        if isinstance(node, ast.Name | ast.Attribute):
            (called if id(node) in over else ahead).add(node.id if isinstance(node, ast.Name) else node.attr)
    return ahead, called


def _own_parts(node: ast.AST, *, waits: bool = False) -> Iterator[tuple[ast.AST, bool]]:
    """The nodes of a function without those of functions and classes in it; and whether each waits in a lambda."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield child, waits
            yield from _own_parts(child, waits=waits or isinstance(child, ast.Lambda))


def _is_empty(file: str) -> bool:
    """Whether a file has no text at all, as an ``__init__.py`` may."""
    path = Path(file)
    return path.is_file() and path.stat().st_size == 0


def _functions_in(code: CodeType) -> Iterator[CodeType]:
    """The functions that a module or class defines, and those inside of them; of a class, its name stands for all."""
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield inner
            yield from _functions_in(inner)


def _names_in(code: CodeType) -> set[str]:
    """What a function names, with its lambdas and comprehensions; a class that is named runs any of its methods."""
    return {*code.co_names, *code.co_freevars, *code.co_cellvars, *code.co_varnames} | _names_inside(code)


def _names_inside(code: CodeType) -> set[str]:
    """What its lambdas and comprehensions name; those of a module are functions, each of a name."""
    inside = [inner for inner in code.co_consts if isinstance(inner, CodeType) and code.co_name != "<module>"]
    return set().union(*map(_names_in, inside))


@functools.lru_cache(maxsize=1024)
def is_evaluation(file: str, first: int, function: str, line: int) -> bool:
    """Whether a function's name, or what a loop around a line in it goes over, speaks of evaluation."""
    if function != "<module>" and _speaks_of_evaluation(function):
        return True
    model = SourceModel.of(file)
    loops = model.loops_in(model.tree, line)
    over = [loop.iter for loop in loops if isinstance(loop, ast.For | ast.AsyncFor)]
    return any(
        _speaks_of_evaluation(name)
        for loop in over
        if function == "<module>" or loop.lineno >= first
        for node in ast.walk(loop)
        for name in (getattr(node, "id", ""), getattr(node, "attr", ""))
    )


def _speaks_of_evaluation(name: str) -> bool:
    return any(part in name.lower() for part in _EVALUATES)


_EVALUATES = (*STAGES, "val_", "_val", "dev_", "score", "metric", "accuracy")
