"""Whether what a statement fills is a cache: a function that remembers its answers, a dict that lacked a key.

Such a thing is read back under the key that it is filled under, and filled for want of that key alone. Results that
pile up are not: a check against duplicates reads nothing back, a bank or a sum stores under keys that it has as well.
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator
from typing import final

from memguard.source.emptied.bounded import FUNCTIONS, around, last_part
from memguard.source.parsing import parse_file

_REMEMBERS = frozenset({"lru_cache", "cache"})
_LEAVES = (ast.Return, ast.Continue)


def is_cache(file: str | None, line: int | None, holder: str | None) -> bool:
    """Whether a statement fills a cache.

    Args:
        file: Where it stands.
        line: The statement, or a cached function's first line.
        holder: Its name, like ``mask`` or ``Net.masks``.
    """
    tree = parse_file(file) if file is not None and line is not None and holder else None
    if tree is None or line is None or not holder:
        return False
    name = holder.partition("[")[0].rpartition(".")[2]
    if any(_remembers(node, name, line) for node in ast.walk(tree)):
        return True
    function, _ = around(tree, line)
    return any(_Filling(function, target, path).is_for_want_of_key() for target, path in _fillings(function, line))


def _remembers(node: ast.AST, name: str, line: int) -> bool:
    """Whether a function of that name begins there, and keeps its answers."""
    if not isinstance(node, FUNCTIONS) or node.name != name:
        return False
    first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
    if not first <= line <= node.lineno:
        return False
    return any(
        last_part(decorator.func if isinstance(decorator, ast.Call) else decorator) in _REMEMBERS
        for decorator in node.decorator_list
    )


def _fillings(function: ast.AST, line: int) -> Iterator[tuple[ast.Subscript, list[ast.AST]]]:
    """What a line gives a value under a key, each with the nodes from the function down to the statement."""
    stack: list[list[ast.AST]] = [[function]]
    while stack:
        path = stack.pop()
        node = path[-1]
        if isinstance(node, ast.Assign) and node.lineno <= line <= (node.end_lineno or node.lineno):
            yield from ((target, path) for target in node.targets if isinstance(target, ast.Subscript))
        stack.extend([*path, child] for child in ast.iter_child_nodes(node) if not isinstance(child, ast.expr))


@final
class _Filling:
    """One statement that stores under a key: ``self.masks[n] = mask``.

    Args:
        function: The function around it.
        target: What it gives a value.
        path: From the function down to the statement.
    """

    def __init__(self, function: ast.AST, target: ast.Subscript, path: list[ast.AST]) -> None:
        self._function, self._path = function, path
        self._container, self._key = _text(target.value), _text(target.slice)
        self._got: set[str] = set()
        """Variables that have what ``get`` gave for the key."""
        self._got.update(self._names_got())

    def is_for_want_of_key(self) -> bool:
        """Whether it is done where the key lacks, nothing else is stored there, and what is stored is read back."""
        statement = self._path[-1]
        nodes = list(ast.walk(self._function))
        items = [node for node in nodes if isinstance(node, ast.Subscript) and self._is_item(node)]
        reads = [item for item in items if isinstance(item.ctx, ast.Load)]
        if len(items) - len(reads) != 1 or not self._is_guarded():
            return False
        return bool(reads) or bool(self._got) or len(getattr(statement, "targets", ())) > 1

    def _is_guarded(self) -> bool:
        """Whether it is not reached with a key that is there."""
        for outer, inner in itertools.pairwise(self._path):
            if isinstance(outer, ast.If):
                where = outer.body if inner in outer.body else outer.orelse
                if self._says(outer.test, there=where is outer.orelse):
                    return True
            if isinstance(inner, ast.ExceptHandler) and isinstance(outer, ast.Try) and self._tries(outer):
                return True
            for block in (getattr(outer, name, None) for name in ("body", "orelse", "finalbody")):
                before = block[: block.index(inner)] if isinstance(block, list) and inner in block else []
                if any(self._leaves(statement) for statement in before):
                    return True
        return False

    def _leaves(self, statement: ast.stmt) -> bool:
        """Whether a statement ends the call, or the turn of a loop, with what is there."""
        if isinstance(statement, ast.If):
            return self._says(statement.test, there=True) and isinstance(statement.body[-1], _LEAVES)
        return isinstance(statement, ast.Try) and self._tries(statement) and isinstance(statement.body[-1], _LEAVES)

    def _tries(self, statement: ast.Try) -> bool:
        """Whether it reads the key, and catches that it lacks."""
        catches = any(last_part(handler.type) == "KeyError" for handler in statement.handlers if handler.type)
        return catches and any(self._is_item(node) for part in statement.body for node in ast.walk(part))

    def _says(self, test: ast.expr, *, there: bool) -> bool:
        """Whether a test holds where the key is there, or where it lacks; one of several that are joined will do."""
        if isinstance(test, ast.BoolOp):
            return any(self._says(part, there=there) for part in test.values)
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            return self._says(test.operand, there=not there)
        if not isinstance(test, ast.Compare):
            return there and self._is_got(test)
        operator, other = test.ops[0], test.comparators[0]
        if isinstance(operator, (ast.In, ast.NotIn)):
            asked = other.func.value if isinstance(other, ast.Call) and isinstance(other.func, ast.Attribute) else other
            is_asked = _text(asked) == self._container and _text(test.left) == self._key
            return is_asked and isinstance(operator, ast.In) is there
        is_none = isinstance(other, ast.Constant) and other.value is None
        if not is_none or not isinstance(operator, (ast.Is, ast.IsNot)):
            return False
        return self._is_got(test.left) and isinstance(operator, ast.IsNot) is there

    def _is_item(self, node: ast.AST) -> bool:
        """Whether it is what lies under the key."""
        if not isinstance(node, ast.Subscript):
            return False
        return _text(node.value) == self._container and _text(node.slice) == self._key

    def _is_got(self, node: ast.expr) -> bool:
        """Whether it is what ``get`` gave for the key."""
        if isinstance(node, ast.NamedExpr):
            return self._is_got(node.value)
        if isinstance(node, ast.Name):
            return node.id in self._got
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or node.func.attr != "get":
            return False
        return _text(node.func.value) == self._container and bool(node.args) and _text(node.args[0]) == self._key

    def _names_got(self) -> Iterator[str]:
        """Variables that have what ``get`` gave."""
        for node in ast.walk(self._function):
            if isinstance(node, ast.NamedExpr) and self._is_got(node.value):
                yield node.target.id
            elif isinstance(node, ast.Assign) and self._is_got(node.value):
                yield from (target.id for target in node.targets if isinstance(target, ast.Name))


def _text(node: ast.expr) -> str:
    return ast.unparse(node)
