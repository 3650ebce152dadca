"""A state that is blended with each batch, and computed with: ``self.center = m * self.center + (1 - m) * z``.

A state is named here as its own statements name it: ``self.center``, or ``center`` for a variable.
"""

from __future__ import annotations

import ast
from collections.abc import Container, Iterator, Sequence

from memguard.source.chains import last_name
from memguard.source.emptied.bounded import FUNCTIONS, around
from memguard.source.parsing import parse_file

_Scope = ast.FunctionDef | ast.AsyncFunctionDef | ast.Module

_BLENDS = frozenset({"lerp", "mul", "addcmul"})
_LIBRARIES = frozenset({"torch", "F", "nn", "functional"})
"""Names of PyTorch's modules: ``F.normalize(self.centers)`` is the state, and nothing else."""
_WITHOUT_GRAPH = frozenset({"no_grad", "inference_mode"})
_SHOWS = frozenset({"print", "log", "info", "debug", "write", "set_postfix", "plot", "save", "dump"}) | {
    *("add_scalar", "add_scalars", "add_histogram", "add_image"),
}


def is_blended_state(file: str, line: int, name: str) -> bool:
    """Whether a statement weighs an attribute's old value against a new one, and its class computes with the result.

    A sum is no such state, nor is what is only given away or shown: those are records of what has been seen.

    Args:
        file: The file.
        line: A line of the statement.
        name: The attribute of ``self``.
    """
    tree, state = parse_file(file), f"self.{name}"
    kinds = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)] if tree is not None else []
    for kind in [kind for kind in kinds if kind.lineno <= line <= (kind.end_lineno or 0)]:
        blending = _blending(line, state, [method for method in ast.walk(kind) if isinstance(method, FUNCTIONS)])
        if blending:
            return any(_is_computed_with(method, state, blending) for method in _methods(kind))
    return False


def is_blended_variable(file: str, line: int, name: str) -> bool:
    """Whether the same holds for a variable, and the function (or the script) whose variable it is.

    Args:
        file: The file.
        line: A line of the statement that blends.
        name: The variable.
    """
    tree = parse_file(file)
    function = around(tree, line)[0] if tree is not None else None
    if not isinstance(function, (*FUNCTIONS, ast.Module)):
        return False
    blending = _blending(line, name, [function])
    return bool(blending) and _is_computed_with(function, name, blending)


def _blending(line: int, state: str, functions: Sequence[ast.AST]) -> list[ast.Assign]:
    """The statement on a line if it gives a state a blend of itself, and those that make variables for that.

    As in ``mixed = 0.9 * self.center + 0.1 * z`` and ``self.center = normalize(mixed)``.
    """
    for function in functions:
        given = [node for node in ast.walk(function) if isinstance(node, ast.Assign)]
        for write in given:
            if not _writes(write, state) or not write.lineno <= line <= (write.end_lineno or 0):
                continue
            parts = {part.id for part in ast.walk(write.value) if isinstance(part, ast.Name)} - {state}
            before = [node for node in given if _gives(node, parts) and _is_blend(node.value, state)]
            if before or _is_blend(write.value, state):
                return [write, *before]
    return []


def _gives(node: ast.Assign, names: Container[str]) -> bool:
    return any(isinstance(target, ast.Name) and target.id in names for target in node.targets)


def _is_computed_with(function: _Scope, state: str, blending: Sequence[ast.Assign]) -> bool:
    """Whether a function makes something else of a state and a variable together."""
    stand_ins = _stand_ins(function, state)
    return any(
        _computes(statement, state, stand_ins)
        for statement in _simple(function.body)
        if statement not in blending and not (isinstance(statement, ast.Assign) and _writes(statement, state))
    )


def _stand_ins(function: ast.AST, state: str) -> frozenset[str]:
    """Variables that are the state under another name, and nothing else: ``target = self.center.detach()``."""
    given: dict[str, list[ast.expr]] = {}
    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and not _writes(node, state):
            given.setdefault(node.targets[0].id, []).append(node.value)
    return frozenset(
        variable
        for variable, values in given.items()
        if all(_reads(value, state) and not _has_variable(value, state) for value in values)
    )


def _writes(node: ast.Assign, state: str) -> bool:
    return any(_is_state(target, state) for target in node.targets)


def _is_state(node: ast.AST, state: str) -> bool:
    if isinstance(node, ast.Attribute):
        return isinstance(node.value, ast.Name) and f"{node.value.id}.{node.attr}" == state
    return isinstance(node, ast.Name) and node.id == state


def _reads(node: ast.AST, state: str, stand_ins: frozenset[str] = frozenset()) -> bool:
    return any(
        _is_state(part, state) or (isinstance(part, ast.Name) and part.id in stand_ins) for part in ast.walk(node)
    )


def _is_blend(value: ast.expr, state: str) -> bool:
    """Whether the old value is multiplied, or goes into a function that blends."""
    for node in ast.walk(value):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult) and _reads(node, state):
            return True
        if isinstance(node, ast.Call) and last_name(node.func) in _BLENDS and _reads(node, state):
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


def _computes(statement: ast.stmt, state: str, stand_ins: frozenset[str]) -> bool:
    """Whether something is made of the state and a variable together: ``z - self.center.detach()``; not to show it."""
    if isinstance(statement, ast.Expr) and _shows(statement.value):
        return False
    for node in ast.walk(statement):
        if isinstance(node, ast.BinOp):
            sides: list[ast.expr] = [node.left, node.right]
        elif isinstance(node, ast.Call):
            sides = list(node.args)
        else:
            continue
        reading = [_reads(side, state, stand_ins) for side in sides]
        others = [side for side, reads in zip(sides, reading, strict=True) if not reads]
        if any(reading) and any(_has_variable(side, state) for side in others):
            return True
    return False


def _shows(value: ast.expr) -> bool:
    return isinstance(value, ast.Call) and last_name(value.func) in _SHOWS


def _has_variable(node: ast.expr, state: str) -> bool:
    """Whether a variable other than the state, the object that has it, or a library's module is read."""
    own = {state.partition(".")[0], *_LIBRARIES}
    return any(isinstance(part, ast.Name) and part.id not in own for part in ast.walk(node))
