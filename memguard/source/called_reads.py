"""Whether a statement, or a function of the same file that it may lead to, reads a name or an attribute."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from memguard.source.emptied.bounded import FUNCTIONS


def leads_to_read(tree: ast.Module, node: ast.AST, target: str) -> bool:
    """Whether what a variable or attribute holds is read; functions are told apart by name alone, so rather yes.

    Args:
        tree: The file.
        node: Where to begin.
        target: ``name``, or ``self.name`` for an attribute, of whatever object.
    """
    functions: dict[str, list[ast.AST]] = {}
    for part in ast.walk(tree):
        if isinstance(part, FUNCTIONS):
            functions.setdefault(part.name, []).append(part)
    attribute, name = "." in target, target.rpartition(".")[2]
    waiting, seen = [node], {id(node)}
    while waiting:
        body = waiting.pop()
        if _reads(body, name, attribute=attribute):
            return True
        for word in _loaded(body):
            for function in functions.get(word, ()):
                if id(function) not in seen:
                    seen.add(id(function))
                    waiting.append(function)
    return False


def _reads(body: ast.AST, name: str, *, attribute: bool) -> bool:
    if attribute:
        own = [node for node in ast.walk(body) if isinstance(node, ast.Attribute) and node.attr == name]
        return any(isinstance(node.ctx, ast.Load) for node in own)
    own_names = [node for node in ast.walk(body) if isinstance(node, ast.Name) and node.id == name]
    parameters = [node.arg for node in ast.walk(body) if isinstance(node, ast.arg)]
    if name in parameters or any(isinstance(node.ctx, ast.Store) for node in own_names):
        return False  # a variable of its own
    return bool(own_names)


def _loaded(body: ast.AST) -> Iterator[str]:
    """Names of what may run: functions, methods, properties, and ``forward`` where an object is called."""
    for node in ast.walk(body):
        if isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.Name):
            yield node.id
        if isinstance(node, ast.Call):
            yield from ("forward", "__call__")
