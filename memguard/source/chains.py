"""Expressions as chains of names, attributes and items: what a statement reads from and stores into."""

from __future__ import annotations

import ast
from collections.abc import Iterator

Accessor = tuple[str, "str | int | None"]
"""One step of an expression like ``self.logs["loss"]``: ("name", "self"), ("attr", "logs"), ("item", "loss")."""
Chain = tuple[Accessor, ...]


def last_name(node: ast.expr) -> str | None:
    """``"c"`` of ``a.b.c`` or of ``c``."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else None


def chains_of(node: ast.expr) -> Iterator[Chain]:
    """The chains an expression may stand for: both of ``(a if train else b).append``."""
    if isinstance(node, (ast.Attribute, ast.Subscript)):
        for value in _choices(node.value if isinstance(node, ast.Attribute) else node):
            chain = chain_of(value)
            if chain is not None:
                yield (*chain, ("attr", node.attr)) if isinstance(node, ast.Attribute) else chain
        return
    for value in _choices(node):
        chain = chain_of(value)
        if chain is not None:
            yield chain


def chain_of(node: ast.expr) -> Chain | None:
    """An expression as a chain of accessors, or None if it does not start at a name.

    ``logs.setdefault(k, []).append`` gives name logs, item None, attr append: a call of ``get`` or ``setdefault`` reads
    an item, any other call is ("call", method).
    """
    if isinstance(node, ast.Name):
        return (("name", node.id),)
    if isinstance(node, ast.Attribute):
        base = chain_of(node.value)
        return None if base is None else (*base, ("attr", node.attr))
    if isinstance(node, ast.Subscript):
        if isinstance(node.value, ast.Call) and last_name(node.value.func) == "globals":
            return (("name", _constant(node.slice)),)
        base = chain_of(node.value)
        if base is None:
            return None
        if base[-1] == ("attr", "__dict__") and isinstance(node.slice, ast.Constant):
            return (*base[:-1], ("attr", str(node.slice.value)))
        return (*base, ("item", _constant(node.slice)))
    if isinstance(node, ast.Await):
        return chain_of(node.value)
    if isinstance(node, ast.Call):
        if isinstance(node.func, ast.Attribute):
            base = chain_of(node.func.value)
            if base is None:
                return None
            if node.func.attr in ("get", "setdefault", "pop", "__getitem__"):
                return (*base, ("item", _constant(node.args[0]) if node.args else None))
            return (*base, ("call", node.func.attr))
        if isinstance(node.func, ast.Name):
            if node.func.id == "getattr" and len(node.args) >= 2:
                base, name = chain_of(node.args[0]), _constant(node.args[1])
                return (*base, ("attr", name)) if base is not None and isinstance(name, str) else None
            if node.func.id == "type" and len(node.args) == 1:
                return chain_of(node.args[0])
            if node.func.id == "vars" and len(node.args) == 1:
                base = chain_of(node.args[0])
                return (*base, ("attr", "__dict__")) if base is not None else None
    return None


def _choices(node: ast.expr) -> Iterator[ast.expr]:
    if isinstance(node, ast.IfExp):
        yield from _choices(node.body)
        yield from _choices(node.orelse)
    elif isinstance(node, ast.BoolOp):
        for value in node.values:
            yield from _choices(value)
    elif isinstance(node, ast.NamedExpr):
        yield from _choices(node.value)
    elif isinstance(node, ast.Subscript) and isinstance(node.value, (ast.Dict, ast.List, ast.Tuple)):
        values = node.value.values if isinstance(node.value, ast.Dict) else node.value.elts
        for value in values:
            yield from _choices(value)
    else:
        yield node


def _constant(node: ast.expr) -> str | int | None:
    if isinstance(node, ast.Constant) and type(node.value) in (str, int):
        value: str | int = node.value  # type: ignore[assignment]
        return value
    return None
