"""Whether a method makes a state from its old value by a part of the model: ``new = self.cell(x, self.state)``.

Read from the syntax tree: the old value may go through variables, and through methods of the class that return it.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator
from typing import Any, final

from torch import nn

from memguard.probes.objects import attributes_of
from memguard.source.chains import last_name
from memguard.source.parsing import parse_file

ASSIGNS = (ast.Assign, ast.AnnAssign, ast.AugAssign)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_FORMS = frozenset({"shape", "size", "device", "dtype", "dim", "ndim", "numel", "new_zeros", "new_ones", "new_empty"})
"""What a tensor tells of its form: nothing is made of its values."""
_LIKE = frozenset({"zeros_like", "ones_like", "empty_like", "full_like", "rand_like", "randn_like", "len"})


def is_self_made(file: str, line: int, name: str, owner: object) -> bool:
    """Whether what a statement puts into an attribute was made of the attribute's old value by a part of its owner.

    Args:
        file: The file.
        line: The statement's line.
        name: The attribute.
        owner: The object that has it, and the parts.
    """
    tree = parse_file(file)
    nodes = list(ast.walk(tree)) if tree is not None else []
    kind = _innermost([node for node in nodes if isinstance(node, ast.ClassDef)], line)
    method = (
        _innermost([node for node in kind.body if isinstance(node, _FUNCTIONS)], line) if kind is not None else None
    )
    if kind is None or method is None:
        return False
    methods = {node.name: node for node in kind.body if isinstance(node, _FUNCTIONS)}
    readers = {other for other, node in methods.items() if _returns(node, name)}
    way = _Way(name, owner, methods, readers)
    *before, write = up_to(method.body, line)
    for node in (part for statement in before for part in ast.walk(statement) if isinstance(part, ASSIGNS)):
        way.follow(node)
    if not isinstance(write, ast.Assign) or not any(_is_or_rows_of(target, name) for target in _each(write.targets)):
        return False
    return way.is_made(write.value)


def _is_or_rows_of(target: ast.expr, name: str) -> bool:
    """The attribute, or some rows of it: ``self.memory[nodes]``."""
    return is_attribute(target.value if isinstance(target, ast.Subscript) else target, name)


@final
class _Way:
    """How far an old value came, statement by statement."""

    def __init__(self, name: str, owner: object, methods: dict[str, Any], readers: Collection[str]) -> None:
        self._name, self._owner, self._methods, self._readers = name, owner, methods, readers
        self._old: set[str] = set()
        """Variables made of it without any part of the model."""
        self._made: set[str] = set()

    def follow(self, node: ast.Assign | ast.AnnAssign | ast.AugAssign) -> None:
        if node.value is None:
            return
        if self.is_made(node.value):
            self._made |= targets(node)
        elif self._is_old(node.value):
            self._old |= targets(node)

    def is_made(self, value: ast.expr) -> bool:
        if reads(value, None, self._made):
            return True
        calls = (node for node in ast.walk(value) if isinstance(node, ast.Call))
        return any(self._is_part(call.func) and self._is_given(call) for call in calls)

    def _is_given(self, call: ast.Call) -> bool:
        return any(self._is_old(given) for given in (*call.args, *(keyword.value for keyword in call.keywords)))

    def _is_old(self, value: ast.expr) -> bool:
        return reads(value, self._name, self._old, self._readers)

    def _is_part(self, function: ast.expr) -> bool:
        """Whether a module that the owner has is called, a method of one, or a method of the owner's that calls one."""
        if isinstance(function, ast.Attribute) and function.attr in self._methods and _is_self(function.value):
            inner = ast.walk(self._methods[function.attr])
            return any(isinstance(node, ast.Call) and self._is_module(node.func) for node in inner)
        return self._is_module(function) or (isinstance(function, ast.Attribute) and self._is_module(function.value))

    def _is_module(self, node: ast.expr) -> bool:
        return not _is_self(node) and issubclass(type(self._value(node)), nn.Module)

    def _value(self, node: ast.expr) -> Any:
        if _is_self(node):
            return self._owner
        if isinstance(node, ast.Subscript):
            return self._value(node.value)  # of a list or dictionary of modules
        if not isinstance(node, ast.Attribute):
            return None
        attributes = attributes_of(self._value(node.value))
        modules = attributes.get("_modules")
        return attributes.get(node.attr, dict.get(modules, node.attr) if isinstance(modules, dict) else None)


def _each(targets: list[ast.expr]) -> Iterator[ast.expr]:
    for target in targets:
        yield from target.elts if isinstance(target, (ast.Tuple, ast.List)) else [target]


def up_to(body: list[ast.stmt], line: int) -> Iterator[ast.stmt]:
    """What runs before the statement on a line, and it at last; not the other branches of what it stands in."""
    for statement in body:
        if not statement.lineno <= line <= (statement.end_lineno or 0):
            yield statement
            continue
        for field in ("body", "orelse", "finalbody"):
            inner = getattr(statement, field, [])
            if inner and inner[0].lineno <= line <= (inner[-1].end_lineno or 0):
                yield from up_to(inner, line)
                return
        yield statement
        return


def is_written(statement: ast.stmt, name: str) -> bool:
    """Whether it assigns to the attribute, or to a part of it."""
    if not isinstance(statement, ast.Assign):
        return False
    return any(is_attribute(node, name) for target in statement.targets for node in ast.walk(target))


def targets(node: ast.stmt) -> set[str]:
    """Names that an assignment binds."""
    given = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    return {part.id for one in given if one is not None for part in ast.walk(one) if isinstance(part, ast.Name)}


def reads(value: ast.expr | None, name: str | None, aliases: Collection[str], readers: Collection[str] = ()) -> bool:
    """Whether an expression makes something of the old value; a question for None, or for its form, makes nothing.

    Args:
        value: The expression.
        name: The attribute; None for its aliases alone.
        aliases: Variables that hold it.
        readers: Methods that return it.
    """
    nodes: list[ast.AST] = [value] if value is not None else []
    while nodes:
        node = nodes.pop()
        if is_attribute(node, name) or (isinstance(node, ast.Name) and node.id in aliases):
            return True
        if isinstance(node, ast.Compare) or (isinstance(node, ast.Attribute) and node.attr in _FORMS):
            continue
        if isinstance(node, ast.Call) and last_name(node.func) in _LIKE:
            continue
        if isinstance(node, ast.Attribute) and node.attr in readers and _is_self(node.value):
            return True
        nodes.extend(child for child in ast.iter_child_nodes(node) if isinstance(child, (ast.expr, ast.keyword)))
    return False


def is_attribute(node: ast.AST | None, name: str | None) -> bool:
    """Whether an expression is ``self.name``."""
    return isinstance(node, ast.Attribute) and node.attr == name and _is_self(node.value)


def _is_self(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and node.id == "self"


def _returns(method: ast.AST, name: str) -> bool:
    return any(isinstance(node, ast.Return) and reads(node.value, name, ()) for node in ast.walk(method))


def _innermost(nodes: list[Any], line: int) -> Any:
    """The last of those that a line stands in, as outer ones come before inner ones."""
    return next((node for node in reversed(nodes) if node.lineno <= line <= (node.end_lineno or 0)), None)
