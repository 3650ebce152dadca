"""Whether a module's forward reads a memory from an attribute of its own and writes it back, made from the old one."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import nn

from memguard.facts import Place
from memguard.probes.chains import last_name
from memguard.probes.contents import attributes_of
from memguard.probes.parsing import parse_file
from memguard.probes.roots import submodules_of

_JOINS = frozenset({"cat", "concat", "concatenate", "stack", "hstack", "vstack"})
_ASSIGNS = (ast.Assign, ast.AnnAssign, ast.AugAssign)
_MOVES = frozenset({"to", "cuda", "cpu", "float", "double", "half", "bfloat16", "type_as", "contiguous", "clone"})
"""Methods that give the same values elsewhere, or in another form."""


def is_own_memory(place: Place, models: Iterable[nn.Module]) -> bool:
    """Whether what is kept is a memory that each forward reads; a running sum or mean is read by no forward.

    Args:
        place: The statement that keeps.
        models: The models, one of which has the memory.
    """
    owner, _, name = (place.holder or "").rpartition(".")
    if place.file is None or place.line is None or (place.function or "").rpartition(".")[2] != "forward":
        return False
    return _has_several(models, owner, name) and _is_read_first(place.file, place.line, name)


def _has_several(models: Iterable[nn.Module], owner: str, name: str) -> bool:
    """Whether the attribute is a tensor of several values: a single number is an average rather than a memory."""
    seen: set[int] = set()
    for part in (part for model in models for part in submodules_of(model, seen)):
        if type(part).__name__ != owner.rpartition(".")[2]:
            continue
        attributes = attributes_of(part)
        buffers = attributes.get("_buffers")
        value: Any = attributes.get(name, dict.get(buffers, name) if isinstance(buffers, dict) else None)
        if issubclass(type(value), torch.Tensor):
            return bool(value.numel() > 1)
    return False


def _is_read_first(file: str, line: int, name: str) -> bool:
    tree = parse_file(file)
    functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)) if tree is not None else ()
    for function in functions:
        if function.name == "forward" and function.lineno <= line <= (function.end_lineno or 0):
            *before, write = _up_to(function.body, line)
            return _is_written(write, name) and _is_used(before, write, name)
    return False


def _up_to(body: list[ast.stmt], line: int) -> Iterator[ast.stmt]:
    """What runs before the statement on a line, and it at last; not the other branches of what it stands in."""
    for statement in body:
        if not statement.lineno <= line <= (statement.end_lineno or 0):
            yield statement
            continue
        for field in ("body", "orelse", "finalbody"):
            inner = getattr(statement, field, [])
            if inner and inner[0].lineno <= line <= (inner[-1].end_lineno or 0):
                yield from _up_to(inner, line)
                return
        yield statement
        return


def _is_written(statement: ast.stmt, name: str) -> bool:
    if not isinstance(statement, ast.Assign):
        return False
    return any(_is_attribute(node, name) for target in statement.targets for node in ast.walk(target))


def _is_used(before: list[ast.stmt], write: ast.stmt, name: str) -> bool:
    """Whether the old value goes into the new one, and into something else that is computed before."""
    simple = [node for statement in before for node in ast.walk(statement) if isinstance(node, (*_ASSIGNS, ast.Return))]
    aliases = [node for node in simple if node.value is not None and _is_alias(node.value, name)]
    old = {target for node in aliases for target in _targets(node)}
    read = [node for node in simple if node not in aliases and _reads(node.value, name, old)]
    made_of = {node.id for node in ast.walk(write) if isinstance(node, ast.Name)}
    parts = [node for node in read if _targets(node) & made_of]
    if any(_is_joined(node.value) for node in [*parts, write] if isinstance(node, _ASSIGNS)):
        return False
    return bool(len(read) > len(parts)) and bool(parts or _reads(getattr(write, "value", None), name, old))


def _is_joined(value: ast.expr | None) -> bool:
    """Whether old and new stand side by side, as in a queue: ``torch.cat([k, self.queue])[:size]`` collects."""
    while isinstance(value, ast.Subscript):
        value = value.value
    return isinstance(value, ast.Call) and last_name(value.func) in _JOINS


def _targets(node: ast.stmt) -> set[str]:
    """Names that an assignment binds."""
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    return {
        part.id for target in targets if target is not None for part in ast.walk(target) if isinstance(part, ast.Name)
    }


def _is_alias(value: ast.expr, name: str) -> bool:
    """``self.memory`` itself, moved (``self.memory.to(x.device)``), or one of two: ``a if b else self.memory``."""
    if isinstance(value, ast.IfExp):
        return _is_alias(value.body, name) or _is_alias(value.orelse, name)
    while isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr in _MOVES:
        value = value.func.value
    return _is_attribute(value, name)


def _reads(value: ast.expr | None, name: str, aliases: set[str]) -> bool:
    """Whether an expression makes something of the old value; a question for None makes nothing."""
    nodes: list[ast.AST] = [value] if value is not None else []
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.Compare):
            continue
        if _is_attribute(node, name) or (isinstance(node, ast.Name) and node.id in aliases):
            return True
        nodes.extend(child for child in ast.iter_child_nodes(node) if isinstance(child, (ast.expr, ast.keyword)))
    return False


def _is_attribute(node: ast.AST | None, name: str) -> bool:
    return (
        isinstance(node, ast.Attribute)
        and node.attr == name
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
    )
