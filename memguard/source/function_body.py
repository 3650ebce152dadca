"""What a function's text says of its variables: statements, what may share a tensor, what is read later."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import final

from memguard.source.expressions import (
    LOOPS,
    called_name,
    flat_targets,
    is_of_self,
    method_base,
    names_in,
    own_nodes,
    root_of,
    spans,
    targets_of,
)
from memguard.source.model import SourceModel
from memguard.source.reads import is_read_again, sets_variable
from memguard.source.scopes import Scope
from memguard.source.vocabulary import BACKWARD, ONE_TENSOR, SHAPE, VIEWS

_COMPOUND = (*LOOPS, ast.If, ast.With, ast.AsyncWith, ast.Try)


@final
class FunctionBody:
    """A function of a file."""

    def __init__(self, model: SourceModel, scope: Scope) -> None:
        self._model, self._scope = model, scope
        statements = (node for node in own_nodes(scope.node) if isinstance(node, ast.stmt))
        self._statements = sorted(statements, key=lambda statement: (statement.lineno, statement.col_offset))

    @property
    def path(self) -> str:
        """Like ``LitModel.training_step``."""
        return self._scope.path

    def at(self, line: int) -> ast.stmt | None:
        """The innermost statement on a line; of a loop or a branch, its head."""
        return next((statement for statement in reversed(self._statements) if spans(statement, line)), None)

    def text(self, statement: ast.stmt) -> str:
        """The statement as one line."""
        return self._model.text(statement.lineno, statement.end_lineno)

    def sharing(self, name: str, made: ast.stmt, until: ast.stmt, makes: Callable[[ast.stmt], bool]) -> set[str]:
        """Variables that may hold the same tensor between two statements: the name, parts of it, lists it went into.

        Args:
            name: A variable.
            made: The statement that gave it its value.
            until: The statement that runs.
            makes: Whether a statement made something new that outlived it.
        """
        names = {name}
        for statement in self._between(made, until):
            targets = _filled(statement)
            if not _keeps(statement, names):
                continue
            if isinstance(statement, ast.AugAssign) and not _is_list(statement.value, names - {name}):
                continue
            if targets and all(isinstance(target, ast.Name) for target in targets) and makes(statement):
                continue
            roots = {root for target in targets if (root := root_of(target)) is not None}
            names |= {root for root in roots if self._scope.binds(root) and root != "self"}
        return names

    def is_set_between(self, name: str, made: ast.stmt, until: ast.stmt) -> bool:
        """Whether the variable gets another value, or is deleted, before the statement that runs."""
        return any(sets_variable(statement, name) for statement in self._between(made, until))

    def _between(self, made: ast.stmt, until: ast.stmt) -> list[ast.stmt]:
        return [one for one in self._statements if made.lineno < one.lineno < until.lineno]

    def needs(self, statement: ast.stmt, names: set[str]) -> bool:
        """Whether a statement reads one of some variables, or runs a backward, which may."""
        parts = [node for part in _parts(statement) for node in ast.walk(part)]
        if any(isinstance(node, ast.Call) and called_name(node) in BACKWARD for node in parts):
            return True
        return any(isinstance(node, ast.Name) and node.id in names for node in parts)

    def goes_back(self, line: int) -> bool:
        """Whether a backward is called on a line or further down."""
        return any(call.line >= line and called_name(call.node) in BACKWARD for call in self._scope.calls)

    def loops(self, line: int, other: int) -> bool:
        """Whether two lines lie in one loop."""
        loops = (node for node in self._statements if isinstance(node, LOOPS))
        return any(spans(loop, line) and spans(loop, other) for loop in loops)

    def returned_at(self, name: str) -> int | None:
        """At which place of the tuple that it returns a variable is; None where that cannot be told."""
        found: set[int] = set()
        for node in self._statements:
            if isinstance(node, ast.Return) and isinstance(node.value, ast.Tuple):
                parts = list(enumerate(node.value.elts))
                whole = {index for index, part in parts if isinstance(part, ast.Name) and part.id == name}
                found |= whole or {index for index, part in parts if name in names_in(part)}
            elif isinstance(node, ast.Return) and node.value is not None:
                return None
        return found.pop() if len(found) == 1 else None

    def reads_after(self, names: set[str], statement: ast.stmt) -> bool:
        """Whether any of some variables is read after a statement."""
        line = statement.lineno if isinstance(statement, _COMPOUND) else statement.end_lineno or statement.lineno
        first, own = self._scope.first_line, self._scope.name
        return any(is_read_again(self._model, first, own, name, line) is not False for name in names)


def variables_set(statement: ast.stmt) -> list[str] | None:
    """The variables that a statement gives a value to, in their order; None where it sets anything else."""
    targets = targets_of(statement)
    if isinstance(statement, ast.AugAssign) or len(targets) != 1:
        return None
    parts = list(flat_targets(targets))
    names = [part.id for part in parts if isinstance(part, ast.Name)]
    return names if parts and len(names) == len(parts) else None


def parts_made(statement: ast.stmt) -> int:
    """How many parts a tuple that is returned has, where the statement computes one tensor for each; else 0.

    As ``return self.head(h), self.value(h).squeeze(-1)`` does: what else is called may give numbers, or several.
    """
    parts = statement.value.elts if isinstance(statement, ast.Return) and isinstance(statement.value, ast.Tuple) else []
    return len(parts) if all(map(_is_one_tensor, parts)) else 0


def _is_one_tensor(part: ast.expr) -> bool:
    """Whether it is arithmetic, what a tensor gives back, or an answer of the object's own part, in whatever shape."""
    while isinstance(part, ast.Call) and isinstance(part.func, ast.Attribute) and part.func.attr in VIEWS:
        part = part.func.value
    base = method_base(part)
    return isinstance(part, ast.BinOp) or (
        base is not None and ((isinstance(base, ast.Name) and is_of_self(base)) or called_name(part) in ONE_TENSOR)
    )


def _parts(statement: ast.stmt) -> list[ast.AST]:
    """The expressions of a statement, without the statements inside of it."""
    return [part for part in ast.iter_child_nodes(statement) if not isinstance(part, (ast.stmt, ast.ExceptHandler))]


def _filled(statement: ast.stmt) -> list[ast.expr]:
    """What a statement gives something: its targets, or ``kept`` of ``kept.append(x)``."""
    base = method_base(statement.value) if isinstance(statement, ast.Expr) else None
    return [base] if base is not None else targets_of(statement)


def _is_list(value: ast.expr, names: set[str]) -> bool:
    """Whether what is added to a variable is a list, of which it keeps the elements; of a tensor it keeps nothing."""
    return isinstance(value, (ast.List, ast.Tuple, ast.ListComp)) or (isinstance(value, ast.Name) and value.id in names)


def _keeps(statement: ast.stmt, names: set[str]) -> bool:
    """Whether a statement reads one of some variables for more than its shape."""
    waiting: list[ast.AST] = _parts(statement)
    for node in waiting:
        if isinstance(node, ast.Attribute) and node.attr in SHAPE:
            continue
        if isinstance(node, ast.Name) and node.id in names and isinstance(node.ctx, ast.Load):
            return True
        waiting.extend(ast.iter_child_nodes(node))
    return False
