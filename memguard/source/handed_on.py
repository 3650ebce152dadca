"""Statements that only put away what another has filled: ``traces.append(trace)``, ``runs.append(fit(net))``."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator

from memguard.facts import Place
from memguard.source.chains import last_name
from memguard.source.parsing import parse, parse_file


def hands_on(place: Place, told: Collection[Place]) -> bool:
    """Whether a statement stores a variable as it is that was told of before, or what the function of one returns.

    Args:
        place: The statement.
        told: Those that filled their variables.
    """
    tree = parse(place.source or "")
    for value in _stored(tree) if tree is not None else ():
        called = last_name(value.func) if isinstance(value, ast.Call) else None
        for one in told:
            if one.file != place.file or one.line == place.line or one.holder is None:
                continue
            if isinstance(value, ast.Name) and (value.id, place.function) == (one.holder, one.function):
                return True
            if called is not None and called == (one.function or "").rpartition(".")[2] and _returns(one):
                return True
    return False


def _stored(tree: ast.Module) -> Iterator[ast.expr]:
    """What the statements store, and the parts of it where it is a tuple, a list or a dict that is written out."""
    waiting: list[ast.expr | None] = []
    for node in tree.body:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            waiting += [*node.value.args, *(item.value for item in node.value.keywords)]
        elif isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign)):
            waiting.append(node.value)
    while waiting:
        value = waiting.pop()
        if isinstance(value, (ast.Tuple, ast.List)):
            waiting += value.elts
        elif isinstance(value, ast.Dict):
            waiting += value.values
        elif value is not None:
            yield value


def _returns(told: Place) -> bool:
    """Whether the function of a variable gives it back as it is."""
    tree, name = parse_file(told.file or ""), (told.function or "").rpartition(".")[2]
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    found = [node for node in ast.walk(tree) if isinstance(node, functions) and node.name == name] if tree else []
    returns = (node.value for function in found for node in ast.walk(function) if isinstance(node, ast.Return))
    parts = (part for value in returns for part in (value.elts if isinstance(value, ast.Tuple) else [value]))
    return any(isinstance(part, ast.Name) and part.id == told.holder for part in parts)
