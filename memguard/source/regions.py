"""Where a program enters autocast regions: also through a helper that makes them, or under a name given before."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import final

from memguard.source.chains import last_name

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_SCOPES = (*_FUNCTIONS, ast.ClassDef, ast.Lambda)
_ENTERS = frozenset({"__enter__", "enter_context"})
_MAKES_CONTEXT = frozenset({"contextmanager", "asynccontextmanager"})
_ROUNDS = 2
"""Helpers that call helpers are followed so far."""


@final
class Regions:
    """The autocast regions that a file opens.

    Args:
        tree: Its syntax tree.
    """

    def __init__(self, tree: ast.Module) -> None:
        self._tree = tree
        self._makers, self._names = {"autocast"}, set[str]()
        for _ in range(_ROUNDS):
            for node in ast.walk(tree):
                if isinstance(node, _FUNCTIONS) and self._makes(node):
                    self._makers.add(node.name)
                elif isinstance(node, ast.Assign) and self.is_one(node.value):
                    self._names.update(name for target in node.targets if (name := last_name(target)) is not None)

    def is_one(self, expression: ast.expr) -> bool:
        """Whether an expression is such a region: ``torch.autocast("cuda")``, ``self.amp`` that was set to one."""
        if last_name(expression) in self._names:
            return True
        parts = ast.walk(expression)
        return any(isinstance(part, ast.Call) and last_name(part.func) in self._makers for part in parts)

    def entered_at(self, first: int | None, until: int) -> int | None:
        """The line on which a function enters a region, the last one before a line; None where it enters none.

        Args:
            first: The function's first line, its decorators included; None for the file's own code.
            until: The line that runs.
        """
        functions = (node for node in ast.walk(self._tree) if isinstance(node, _FUNCTIONS))
        scope = next((node for node in functions if _first_line(node) == first), None)
        lines = [line for line in self._entries(scope or self._tree) if line <= until]
        return max(lines, default=None)

    def left_open(self) -> list[tuple[str | None, int]]:
        """Functions and lines that enter a region without a ``with``: it outlives them, as a resource of a run does."""
        found: list[tuple[str | None, int]] = []
        for scope in (self._tree, *(node for node in ast.walk(self._tree) if isinstance(node, _FUNCTIONS))):
            name = None if isinstance(scope, ast.Module) else scope.name
            for node in _own(scope):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _ENTERS:
                    entered = node.args or [node.func.value]
                    found += [(name, expression.lineno) for expression in entered if self.is_one(expression)]
        return found

    def _entries(self, scope: ast.Module | ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[int]:
        if not isinstance(scope, ast.Module):
            yield from (item.lineno for item in scope.decorator_list if self.is_one(item))
        for node in _own(scope):
            if isinstance(node, (ast.With, ast.AsyncWith)):
                entered = [item.context_expr for item in node.items]
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _ENTERS:
                entered = node.args or [node.func.value]
            else:
                continue
            yield from (expression.lineno for expression in entered if self.is_one(expression))

    def _makes(self, function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
        """Whether a function gives back a region, or is a context manager around one."""
        if any(_called(item) in _MAKES_CONTEXT for item in function.decorator_list):
            return any(True for _ in self._entries(function))
        returned = (node.value for node in _own(function) if isinstance(node, ast.Return))
        return any(value is not None and self.is_one(value) for value in returned)


def _own(scope: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a function without those of the functions in it."""
    for node in ast.iter_child_nodes(scope):
        if not isinstance(node, _SCOPES):
            yield node
            yield from _own(node)


def _first_line(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    return min([function.lineno, *(item.lineno for item in function.decorator_list)])


def _called(decorator: ast.expr) -> str | None:
    return last_name(decorator.func if isinstance(decorator, ast.Call) else decorator)
