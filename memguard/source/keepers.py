"""The attribute that keeps a step's local tensor for the next call: ``self.preview = recon.detach()``."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from memguard.facts import Place
from memguard.source.called_reads import leads_to_read
from memguard.source.parsing import parse_file

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_SHARING = frozenset({"detach", "view", "reshape", "squeeze", "unsqueeze"})
"""Methods whose answer shares the tensor's memory, as those that work in place do."""


def keeper_of(file: str, line: int, name: str) -> Place | None:
    """The statement that keeps a variable's tensor in an attribute of ``self``, in the method that sets it on a line.

    None where a loop of that method sets the variable anew: there the variable itself is what keeps the old one. And
    where the method, or what it calls, reads the attribute: it wants what the last call left there.
    """
    tree = parse_file(file)
    if tree is None:
        return None
    for owner, method in _methods(tree):
        if not method.lineno <= line <= (method.end_lineno or line):
            continue
        for node in ast.walk(method):
            if isinstance(node, (ast.For, ast.AsyncFor, ast.While)) and node.lineno <= line <= (
                node.end_lineno or line
            ):
                return None
        for node in ast.walk(method):
            if not isinstance(node, ast.Assign) or node.lineno <= line or not shares(node.value, name):
                continue
            target = node.targets[0]
            if (
                isinstance(target, ast.Attribute)
                and _is_own(target)
                and not leads_to_read(tree, method, f"self.{target.attr}")
            ):
                return _place(file, owner, method, node, target.attr)
    return None


def own_keeper(file: str, line: int, name: str) -> Place | None:
    """The statement on a line, where it puts what it makes into an attribute that its method does not read."""
    tree, attribute = parse_file(file), name.removeprefix("self.")
    if tree is None or attribute == name or not attribute.isidentifier():
        return None
    for owner, method in _methods(tree):
        for node in ast.walk(method):
            if isinstance(node, ast.Assign) and node.lineno <= line <= (node.end_lineno or line):
                is_read = leads_to_read(tree, method, name)
                return None if is_read else _place(file, owner, method, node, attribute)
    return None


def _place(file: str, owner: str, method: ast.AST, node: ast.Assign, attribute: str) -> Place:
    text, function = " ".join(ast.unparse(node).split()), f"{owner}.{getattr(method, 'name', '')}"
    return Place(file=file, line=node.lineno, function=function, holder=f"{owner}.{attribute}", source=text)


def shares(value: ast.expr, name: str) -> bool:
    """Whether an expression is the variable, or a view of it."""
    while isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
        if value.func.attr not in _SHARING and not value.func.attr.endswith("_"):
            return False
        value = value.func.value
    if isinstance(value, ast.Attribute) and value.attr == "data":
        value = value.value
    return isinstance(value, ast.Name) and value.id == name


def _methods(tree: ast.Module) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            for part in node.body:
                if isinstance(part, _FUNCTIONS):
                    yield node.name, part


def _is_own(attribute: ast.Attribute) -> bool:
    return isinstance(attribute.value, ast.Name) and attribute.value.id == "self"
