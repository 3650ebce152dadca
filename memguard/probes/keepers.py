"""The attribute that keeps a step's local tensor for the next call: ``self.preview = recon.detach()``."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from memguard.facts import Place
from memguard.probes.parsing import parse_file

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_SHARING = frozenset({"detach", "view", "reshape", "squeeze", "unsqueeze", "requires_grad_"})
"""Methods whose answer shares the tensor's memory."""


def keeper_of(file: str, line: int, name: str) -> Place | None:
    """The statement that keeps a variable's tensor in an attribute of ``self``, in the method that sets it on a line.

    None where a loop of that method sets the variable anew: there the variable itself is what keeps the old one. And
    where the method reads the attribute: it wants what the last call left there.
    """
    tree = parse_file(file)
    for owner, method in _methods(tree) if tree is not None else ():
        if not method.lineno <= line <= (method.end_lineno or line):
            continue
        for node in ast.walk(method):
            if isinstance(node, (ast.For, ast.AsyncFor, ast.While)) and node.lineno <= line <= (
                node.end_lineno or line
            ):
                return None
        for node in ast.walk(method):
            if not isinstance(node, ast.Assign) or node.lineno <= line or not _shares(node.value, name):
                continue
            target = node.targets[0]
            if isinstance(target, ast.Attribute) and _is_own(target) and not _is_read(target.attr, method):
                text, function = " ".join(ast.unparse(node).split()), f"{owner}.{method.name}"
                return Place(
                    file=file, line=node.lineno, function=function, holder=f"{owner}.{target.attr}", source=text
                )
    return None


def _methods(tree: ast.Module) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            for part in node.body:
                if isinstance(part, _FUNCTIONS):
                    yield node.name, part


def _is_own(attribute: ast.Attribute) -> bool:
    return isinstance(attribute.value, ast.Name) and attribute.value.id == "self"


def _is_read(name: str, method: ast.AST) -> bool:
    own = (node for node in ast.walk(method) if isinstance(node, ast.Attribute) and node.attr == name)
    return any(isinstance(node.ctx, ast.Load) for node in own)


def _shares(value: ast.expr, name: str) -> bool:
    """Whether an expression is the variable, or a view of it."""
    while isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr in _SHARING:
        value = value.func.value
    if isinstance(value, ast.Attribute) and value.attr == "data":
        value = value.value
    return isinstance(value, ast.Name) and value.id == name
