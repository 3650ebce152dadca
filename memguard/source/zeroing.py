"""Where a program takes gradients away by hand, without an optimizer: fills them with zeros, or lets them go."""

from __future__ import annotations

import ast
import linecache
from collections.abc import Iterator

from memguard.facts import Place
from memguard.source.emptied.bounded import FUNCTIONS
from memguard.source.parsing import parse_file

_FILLING = frozenset({"zero_", "fill_", "mul_", "_foreach_zero_"})


def zeroes_gradients(file: str) -> Place | None:
    """Where gradients are filled with zeros, as by ``p.grad.zero_()``; None if no function does, or several do."""
    found = list(_places(file, zeroes=True))
    return found[0] if len({place.function for place in found}) == 1 else None


def drops_gradients_below(file: str, line: int) -> Place | None:
    """The first line below another at which gradients are let go: ``net.zero_grad()``, ``p.grad = None``."""
    found = [place for place in _places(file, zeroes=False) if (place.line or 0) > line]
    return min(found, key=lambda place: place.line or 0, default=None)


def _places(file: str, *, zeroes: bool) -> Iterator[Place]:
    tree = parse_file(file)
    waiting: list[tuple[ast.AST, str | None]] = [] if tree is None else [(tree, None)]
    while waiting:
        node, function = waiting.pop(0)
        if isinstance(node, FUNCTIONS):
            function = node.name
        gradient = _zeroed(node) if zeroes else _dropped(node)
        if gradient is not None and isinstance(node, ast.stmt):
            source = linecache.getline(file, node.lineno).strip()
            yield Place(file=file, line=node.lineno, function=function, holder=gradient, source=source)
        waiting.extend((child, function) for child in ast.iter_child_nodes(node))


def _zeroed(node: ast.AST) -> str | None:
    """What a statement fills with zeros, as it is written: ``p.grad``."""
    if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Mult) and _is_zero(node.value):
        return _gradient(node.target)
    if isinstance(node, ast.Assign) and _is_zero(node.value):
        return _whole(node.targets[0])
    call = node.value if isinstance(node, ast.Expr) else None
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
        return None
    name = call.func.attr
    if name == "zero_grad":
        kept = any(k.arg == "set_to_none" and _is_false(k.value) for k in call.keywords)
        return "grad" if kept or any(map(_is_false, call.args)) else None
    if name not in _FILLING or (name in {"fill_", "mul_"} and not any(map(_is_zero, call.args))):
        return None
    return next((found for part in (call.func.value, *map(_each, call.args)) if (found := _gradient(part))), None)


def _dropped(node: ast.AST) -> str | None:
    """What a statement lets go of."""
    if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and node.value.value is None:
        target = node.targets[0]
        return ast.unparse(target) if isinstance(target, ast.Attribute) and target.attr == "grad" else None
    call = node.value if isinstance(node, ast.Expr) else None
    if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "zero_grad":
        return "grad"
    return None


def _whole(target: ast.expr) -> str | None:
    """The gradient all of which is set: ``p.grad[:] = 0``."""
    if not isinstance(target, ast.Subscript):
        return None
    part = target.slice
    whole = isinstance(part, ast.Slice) and part.lower is part.upper is part.step is None
    whole = whole or (isinstance(part, ast.Constant) and part.value is ...)
    return _gradient(target.value) if whole else None


def _each(value: ast.expr) -> ast.expr:
    """What a list is made of: of ``[p.grad for p in params]`` each."""
    return value.elt if isinstance(value, (ast.ListComp, ast.GeneratorExp)) else value


def _gradient(value: ast.expr) -> str | None:
    """The gradient that an expression is all of: ``p.grad``, ``p.grad.data``; not one row of it."""
    while isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr == "detach":
        value = value.func.value
    if isinstance(value, ast.Attribute) and value.attr == "data":
        value = value.value
    return ast.unparse(value) if isinstance(value, ast.Attribute) and value.attr == "grad" else None


def _is_zero(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and type(value.value) in (int, float) and value.value == 0


def _is_false(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and value.value is False
