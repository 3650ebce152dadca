"""Where a program makes its data loaders: read from the syntax tree; never run."""

from __future__ import annotations

import ast
import linecache
from collections.abc import Iterable, Iterator
from typing import NamedTuple, final

from memguard.source.parsing import parse_file


@final
class LoaderCall(NamedTuple):
    """A call that makes a data loader."""

    file: str
    line: int
    function: str
    """The innermost function around it, ``"<module>"`` outside of any."""
    name: str | None
    """The variable or attribute that the loader is given to."""
    source: str


def loader_calls(files: Iterable[str]) -> Iterator[LoaderCall]:
    """The calls of classes whose name ends in ``Loader``, in statements that keep or return what they make."""
    for file in dict.fromkeys(files):
        if not any("Loader(" in line for line in linecache.getlines(file)):
            continue  # to parse a large project would take seconds
        tree = parse_file(file)
        if tree is not None:
            yield from _calls(file, tree, "<module>")


def _calls(file: str, node: ast.AST, function: str) -> Iterator[LoaderCall]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield from _calls(file, child, child.name)
        elif isinstance(child, (ast.Assign, ast.AnnAssign, ast.Return, ast.For)):
            made = child.iter if isinstance(child, ast.For) else child.value
            if made is not None and any(map(_makes_loader, ast.walk(made))):
                text = linecache.getline(file, made.lineno).strip()
                yield LoaderCall(file, made.lineno, function, _name(child), text)
            if isinstance(child, ast.For):
                yield from _calls(file, child, function)
        else:
            yield from _calls(file, child, function)


def _makes_loader(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call):
        return False
    called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    return str(called).endswith("Loader")


def _name(statement: ast.AST) -> str | None:
    targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
    if isinstance(statement, ast.For) or len(targets) != 1:
        return None
    target = targets[0]
    return target.attr if isinstance(target, ast.Attribute) else getattr(target, "id", None)
