"""How many elements a bounded container may come to hold: its maxlen, or the number that its length is compared with.

``if len(self.items) > self.capacity: self.items.pop(0)`` bounds a buffer; whether the bound helps is a matter of its
size. Read from the syntax tree and from plain attributes; no code of the user's runs.
"""

from __future__ import annotations

import ast
import collections

from memguard.probes.naming.walk import Link
from memguard.probes.objects import attributes_of
from memguard.source.parsing import parse_file

_MOST = 10**12
"""A larger number means: without a limit."""


OUTGROWN = 2
"""So many times its supposed bound, and a container has none."""


def outgrew(length: int, capacity: int | None) -> bool:
    """Whether a container is longer than all that its length is compared with: ``if len(memory) < batch_size:``."""
    return capacity is not None and length > OUTGROWN * capacity


def capacity_of(container: Link | None, file: str | None, name: str | None) -> int | None:
    """How many elements a container holds when it is full; None where that is not known for certain.

    Args:
        container: The way to it, whose last but one link may be the object that has it as an attribute.
        file: Where it is filled.
        name: What it is called there, like ``items`` or ``Memory.items``.
    """
    if container is not None and issubclass(type(container.value), collections.deque):
        maxlen = collections.deque.maxlen.__get__(container.value)
        return maxlen if maxlen is None or maxlen < _MOST else None
    if file is None or not name:
        return None
    tree = parse_file(file)
    if tree is None:
        return None
    own = name.partition("[")[0].rpartition(".")[2]
    numbers = [_number(limit, container, tree) for limit in _limits(tree, own)]
    known = [number for number in numbers if number is not None and 0 < number < _MOST]
    return max(known) if known and len(known) == len(numbers) else None


def _limits(tree: ast.Module, name: str) -> list[ast.expr]:
    """What the length of a name is compared with."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            if any(_is_length(side, name) for side in sides):
                found += [side for side in sides if not _is_length(side, name)]
    return found


def _is_length(node: ast.expr, name: str) -> bool:
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name) or node.func.id != "len" or not node.args:
        return False
    of = node.args[0]
    return (isinstance(of, ast.Name) and of.id == name) or (isinstance(of, ast.Attribute) and of.attr == name)


def _number(node: ast.expr, container: Link | None, tree: ast.Module) -> int | None:
    """A limit's value: a number in the source, a module's constant, or an attribute of the object that has the list."""
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
        owner = container.parent if container is not None else None
        while owner is not None and node.attr not in attributes_of(owner.value):
            owner = owner.parent
        value = attributes_of(owner.value)[node.attr] if owner is not None else None
        return value if type(value) is int else None
    if isinstance(node, ast.Name):
        constants = [
            statement.value
            for statement in tree.body
            if isinstance(statement, ast.Assign)
            and any(isinstance(target, ast.Name) and target.id == node.id for target in statement.targets)
        ]
        return _literal(constants[0]) if len(constants) == 1 else None
    return _literal(node)


def _literal(node: ast.expr) -> int | None:
    """The value of ``50_000``, ``10 ** 6``, ``1024 * 64`` or ``int(1e6)``."""
    if isinstance(node, ast.Constant):
        number = node.value
        if not isinstance(number, (int, float)) or isinstance(number, bool):
            return None
        return int(number) if abs(number) < _MOST else None
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "int" and len(node.args) == 1:
        return _literal(node.args[0])
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Mult, ast.Pow)):
        left, right = _literal(node.left), _literal(node.right)
        if left is None or right is None:
            return None
        if isinstance(node.op, ast.Mult):
            return left * right
        return left**right if 0 <= right <= 12 and abs(left) <= 1024 else None
    return None
