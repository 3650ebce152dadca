"""Where a value comes from: the host, a checkpoint, an assignment further up."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace
from typing import final

from memguard.records.facts import Place
from memguard.source.expressions import (
    ASSIGNMENTS,
    FUNCTIONS,
    arguments,
    called_name,
    calls_in,
    flat_targets,
    item_base,
    last_name,
    method_base,
    root_of,
    spans,
    symbol_of,
)
from memguard.source.model import SourceModel
from memguard.source.remaking import drops
from memguard.source.vocabulary import LIBRARIES, TO_HOST

_ASKS_NOTHING = frozenset({"tolist", "item"})
"""Those of a tensor take no arguments: ``self.item(ids)`` calls a part of a model."""
_NUMBERS = frozenset({"item", "tolist", "float", "int", "round", "len"})
"""What gives numbers: beside other elements of a tuple they say nothing of those."""
_MADE_OF_SIZES = frozenset(
    {"arange", "linspace", "zeros", "ones", "empty", "full", "eye", "rand", "randn", "randint", "randperm"}
)
_TAKES_SIZES = frozenset({"expand", "view", "reshape", "repeat", "tile", "narrow"})
MAX_DEPTH = 3


def is_on_host(place: Place) -> bool:
    """Whether the statement at a place keeps only what ``.cpu()``, ``.numpy()``, ``.to("cpu")`` or the like gave.

    On a device the tensors tell by themselves; where the device is the host, or a virtual one, ``x.cpu()`` is ``x``.
    """
    model, line = SourceModel.of(place.file), place.line
    if line is None:
        return False
    for function in (one for kind in FUNCTIONS for one in model.all_of(kind)):
        if any(spans(decorator, line) for decorator in getattr(function, "decorator_list", ())):  # a cache of answers
            returned = (node.value for node in ast.walk(function) if isinstance(node, ast.Return))
            return any(_Origin(function).is_host(value, MAX_DEPTH) for value in returned if value is not None)
    name, _ = symbol_of(place.holder)
    statement: ast.stmt | None = None
    for node in model.all_of(ast.stmt):
        names = (last_name(part) or getattr(part, "arg", None) for part in ast.walk(node))
        if spans(node, line) and (statement is None or node.lineno > statement.lineno or name in names):
            statement = node  # of several on one line, the last that names the holder
    if statement is None or isinstance(statement, FUNCTIONS):
        return False
    # A holder that is called, as a metric is, keeps what it is given, whatever becomes of its answer.
    called = next((call for call in calls_in(statement) if called_name(call) == name), None) if name else None
    origin = _Origin(model.function_at(line))
    return any(origin.is_host(part, MAX_DEPTH) for part in ([statement] if called is None else arguments(called)))


@final
class _Origin:
    """The values of one function, followed back to the calls that gave them."""

    def __init__(self, function: ast.AST) -> None:
        self._assigned = [node for node in ast.walk(function) if isinstance(node, ast.Assign)]

    def is_host(self, node: ast.AST, depth: int) -> bool:
        """Whether a call in it brings something to the host, or a variable in it was set by such a call."""
        parts = list(self._kept(node, set(self._numbers_beside(node))))
        calls = [part for part in parts if isinstance(part, ast.Call)]
        if any(map(_is_to_host, calls)):
            return True
        bases = [method_base(call) for call in calls]
        read = [part for part in parts if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Load)]
        names, taken = {part.id for part in read}, {part.id for part in read if part not in bases}
        for one in self._assigned if depth else ():
            targets = map(item_base, flat_targets(one.targets))
            sets = {target.id for target in targets if isinstance(target, ast.Name)}
            # What an object of some class is made of says nothing of what its methods give.
            leads = one is not node and (taken if _is_object(one.value) else names) & sets
            if leads and self.is_host(one.value, depth - 1):
                return True
        return False

    def _kept(self, node: ast.AST, numbers: set[ast.AST]) -> Iterator[ast.AST]:
        """The parts of a statement whose value is stored: no keys, indices and conditions, nor mere numbers."""
        if node in numbers:
            return
        yield node
        inner = list(ast.iter_child_nodes(node))
        if isinstance(node, (*ASSIGNMENTS, ast.Subscript)):
            inner = [node.value] if node.value is not None else []
        elif isinstance(node, ast.Dict):
            inner = list(node.values)
        elif isinstance(node, (ast.If, ast.While, ast.IfExp)):
            inner.remove(node.test)
        elif isinstance(node, ast.Call) and called_name(node) == "setdefault" and method_base(node) is not None:
            inner = [node.func, *node.args[1:]]
        elif isinstance(node, ast.Call) and _takes_sizes(node):
            inner = [node.func]  # numbers that were read from a tensor for them bring nothing to the host
        elif isinstance(node, ast.Attribute) and _is_object(node.value):
            inner = []
        for child in inner:
            yield from self._kept(child, numbers)

    def _numbers_beside(self, node: ast.AST) -> Iterator[ast.AST]:
        """Numbers in a tuple, a dict or an object that is stored as such: ``best.append((loss.item(), weights))``."""
        stored = node.value if isinstance(node, (*ASSIGNMENTS, ast.Expr)) else node
        waiting = list(stored.args) if isinstance(node, ast.Expr) and isinstance(stored, ast.Call) else [stored]
        for display in waiting:
            if elements := _elements_of(display):
                found = [element for element in elements if self._is_number(element, MAX_DEPTH)]
                yield from found if len(found) < len(elements) else ()
                waiting += [element for element in elements if element not in found]

    def _is_number(self, node: ast.expr, depth: int) -> bool:
        """Whether an expression comes to a number that was read from a tensor, or to a list of such."""
        if isinstance(node, (ast.BinOp, ast.UnaryOp)):
            operands = [node.left, node.right] if isinstance(node, ast.BinOp) else [node.operand]
            others = [operand for operand in operands if not self._is_number(operand, depth)]
            return len(others) < len(operands) and all(isinstance(o, (ast.Constant, ast.Name)) for o in others)
        if isinstance(node, ast.Call):
            return called_name(node) in _NUMBERS and not _asks_other(node)
        if not isinstance(node, ast.Name) or depth == 0:
            return False
        targets = ((target, one) for one in self._assigned for target in one.targets)
        given = [one.value for target, one in targets if isinstance(target, ast.Name) and target.id == node.id]
        return bool(given) and all(self._is_number(value, depth - 1) for value in given)


def _elements_of(display: ast.AST | None) -> list[ast.expr]:
    """What is put together: the elements of a tuple, list or dict, and what a ``dict(...)`` or an object is made of."""
    if isinstance(display, (ast.Tuple, ast.List)):
        return display.elts
    if isinstance(display, ast.Dict):
        return display.values
    if isinstance(display, ast.Call) and (called_name(display) == "dict" or _is_object(display)):
        return [*display.args, *(keyword.value for keyword in display.keywords)]
    return []


def _is_object(value: ast.AST) -> bool:
    """Whether it makes an object of some class."""
    return isinstance(value, ast.Call) and called_name(value)[:1].isupper()


def _takes_sizes(call: ast.Call) -> bool:
    """Whether a call's arguments are sizes: ``torch.zeros(n)``, ``x.expand(n, -1)``, not ``torch.reshape(x, n)``."""
    base = method_base(call)
    owner = base.id if isinstance(base, ast.Name) else None
    names = _MADE_OF_SIZES if owner in LIBRARIES else _TAKES_SIZES if owner != "self" else ()
    return base is not None and called_name(call) in names


def _is_to_host(call: ast.Call) -> bool:
    name = called_name(call) if method_base(call) is not None else ""
    if name == "to":
        return any(isinstance(part, ast.Constant) and part.value == "cpu" for part in arguments(call))
    return name in TO_HOST and not _asks_other(call)


def _asks_other(call: ast.Call) -> bool:
    """Whether a call is of another method that only has the name of one that reads a tensor's numbers."""
    return method_base(call) is not None and called_name(call) in _ASKS_NOTHING and bool(arguments(call))


def loaded_by(place: Place) -> Place | None:
    """The statement that loaded what the name at a place has; None unless a model was given it, and it served for that.

    What reads it later wants it, but for single entries: an epoch, or a step.
    """
    model, (name, attribute) = SourceModel.of(place.file), symbol_of(place.holder)
    if place.line is None:
        return None
    scope, names = model.scope_at(place.line), [name]
    last = max((call.end_line for call in scope.calls if called_name(call.node) == "load_state_dict"), default=None)
    entries = {id(item.value) for item in model.all_of(ast.Subscript) if isinstance(item.slice, ast.Constant)}
    reads = (node for node in model.all_of(ast.Name, ast.Attribute) if isinstance(node.ctx, ast.Load))
    if last is None or any(last_name(n) == name and n.lineno > last and id(n) not in entries for n in reads):
        return None
    for one in names:
        for store in scope.stores:
            if last_name(item_base(store.target)) != one:
                continue
            if isinstance(store.value, ast.Call) and called_name(store.value) == "load":
                lasts = not attribute and not any(drops(node, one) for node in ast.walk(scope.node or model.tree))
                holder, text = one if lasts else place.holder, model.text(store.line, store.end_line)
                return replace(place, line=store.line, holder=holder, source=text)
            if (root := root_of(store.value)) is not None and root not in names:
                names.append(root)
    return None
