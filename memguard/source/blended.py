"""A state that is blended with each batch, and computed with: ``self.center = m * self.center + (1 - m) * z``."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from memguard.source.bounded import FUNCTIONS
from memguard.source.chains import last_name
from memguard.source.parsing import parse_file

_BLENDS = frozenset({"lerp", "mul", "addcmul"})
_WITHOUT_GRAPH = frozenset({"no_grad", "inference_mode"})


def is_blended_state(file: str, line: int, name: str) -> bool:
    """Whether a statement weighs an attribute's old value against a new one, and its class computes with the result.

    A sum is no such state, nor is what is only given away or shown: those are records of what has been seen.

    Args:
        file: The file.
        line: A line of the statement.
        name: The attribute of ``self``.
    """
    tree = parse_file(file)
    for kind in [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)] if tree is not None else []:
        if not kind.lineno <= line <= (kind.end_lineno or 0):
            continue
        writes = [node for node in ast.walk(kind) if isinstance(node, ast.Assign) and _writes(node, name)]
        write = next((node for node in writes if node.lineno <= line <= (node.end_lineno or 0)), None)
        if write is not None and (_is_blend(write.value, name) or _is_of_blend(write, kind, name)):
            return any(
                _computes(statement, name, stand_ins)
                for method in _methods(kind)
                for stand_ins in [_stand_ins(method, name)]
                for statement in _simple(method.body)
                if statement not in writes
            )
    return False


def _is_of_blend(write: ast.Assign, kind: ast.ClassDef, name: str) -> bool:
    """Whether what is written is made of a variable that holds the blend: ``self.center = normalize(mixed)``."""
    around = [method for method in ast.walk(kind) if isinstance(method, FUNCTIONS) and write in ast.walk(method)]
    blends = {
        target.id
        for method in around
        for node in ast.walk(method)
        if isinstance(node, ast.Assign) and _is_blend(node.value, name)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    return any(isinstance(part, ast.Name) and part.id in blends for part in ast.walk(write.value))


def _stand_ins(method: ast.FunctionDef | ast.AsyncFunctionDef, name: str) -> frozenset[str]:
    """Variables that are the attribute under another name, and nothing else: ``target = self.center.detach()``."""
    given: dict[str, list[ast.expr]] = {}
    for node in ast.walk(method):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            given.setdefault(node.targets[0].id, []).append(node.value)
    return frozenset(
        variable
        for variable, values in given.items()
        if all(_reads(value, name) and not _has_variable(value) for value in values)
    )


def _writes(node: ast.Assign, name: str) -> bool:
    return any(_is_attribute(target, name) for target in node.targets)


def _is_attribute(node: ast.AST, name: str) -> bool:
    return (
        isinstance(node, ast.Attribute)
        and node.attr == name
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
    )


def _reads(node: ast.AST, name: str, stand_ins: frozenset[str] = frozenset()) -> bool:
    return any(
        _is_attribute(part, name) or (isinstance(part, ast.Name) and part.id in stand_ins) for part in ast.walk(node)
    )


def _is_blend(value: ast.expr, name: str) -> bool:
    """Whether the old value is multiplied, or goes into a function that blends."""
    for node in ast.walk(value):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult) and _reads(node, name):
            return True
        if isinstance(node, ast.Call) and last_name(node.func) in _BLENDS and _reads(node, name):
            return True
    return False


def _methods(kind: ast.ClassDef) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """The methods, but for those that run without a graph."""
    for method in kind.body:
        if isinstance(method, (ast.FunctionDef, ast.AsyncFunctionDef)) and not any(
            map(_is_without_graph, method.decorator_list)
        ):
            yield method


def _simple(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Simple statements, but for those that run without a graph or in evaluation alone."""
    for statement in body:
        if isinstance(statement, ast.With) and any(_is_without_graph(item.context_expr) for item in statement.items):
            continue
        inner = [getattr(statement, field, []) for field in ("body", "orelse", "finalbody")]
        if isinstance(statement, ast.If) and _asks_for_training(statement.test):
            inner = inner[:1]
        if not any(inner):
            yield statement
        for part in inner:
            yield from _simple(part)


def _is_without_graph(node: ast.expr) -> bool:
    return last_name(node.func if isinstance(node, ast.Call) else node) in _WITHOUT_GRAPH


def _asks_for_training(test: ast.expr) -> bool:
    return isinstance(test, ast.Attribute) and test.attr == "training"


def _computes(statement: ast.stmt, name: str, stand_ins: frozenset[str]) -> bool:
    """Whether something is made of the attribute and a variable together: ``z - self.center.detach()``."""
    for node in ast.walk(statement):
        if isinstance(node, ast.BinOp):
            sides: list[ast.expr] = [node.left, node.right]
        elif isinstance(node, ast.Call):
            sides = list(node.args)
        else:
            continue
        reading = [_reads(side, name, stand_ins) for side in sides]
        if any(reading) and any(not reads and _has_variable(side) for reads, side in zip(reading, sides, strict=True)):
            return True
    return False


def _has_variable(node: ast.expr) -> bool:
    return any(isinstance(part, ast.Name) and part.id != "self" for part in ast.walk(node))
