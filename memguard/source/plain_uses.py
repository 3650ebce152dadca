"""Which uses of a value are plain, so that it goes to no backward from there: cuts, metrics, logs, named functions."""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Iterator

from memguard.source.emptied.bounded import FUNCTIONS, last_part
from memguard.source.values import CUT_ATTRIBUTES, CUTS, NUMBER_FUNCTIONS

ENGINE = frozenset({"backward", "manual_backward", "grad"})
ADDS = frozenset({"append", "appendleft", "put", "insert", "extend", "setdefault"})
_MOVES = frozenset({"to", "cuda", "cpu", "float", "half", "long", "view", "reshape", "unsqueeze", "flatten"})
"""Methods by which a batch is prepared: `models[0](x.to(device))` hands no output on."""
# fmt: off
_PLAIN = frozenset({
    "print", "pprint", "display", "log", "log_dict", "log_metrics", "info", "debug", "warning", "error", "write",
    "writerow", "add_scalar", "add_scalars", "add_histogram", "add_image", "add_images", "add_batch", "set_postfix",
    "set_description", "plot", "imshow", "show", "save", "save_image", "savez", "dump", "record", "assert_close",
    "assert_allclose", "zero_grad", "step",
})
# fmt: on
"""What a statement calls to show, measure or store numbers; `update` as well, but for a dict's."""
_TORCH = frozenset({"torch", "nn", "functional", "F"})
"""Names by which torch's own functions are called: whose answer nobody takes has gone to no backward."""


def is_cut(node: ast.AST) -> bool:
    """Whether an expression leaves the graph behind: ``x.detach()``, ``x.data``, ``loss.item()``, ``float(x)``."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return node.func.attr in CUTS or is_cut(node.func.value)
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Name) and node.func.id in NUMBER_FUNCTIONS
    if isinstance(node, ast.Attribute):
        return node.attr in CUT_ATTRIBUTES or is_cut(node.value)
    if isinstance(node, (ast.ListComp, ast.SetComp, ast.GeneratorExp)):
        return is_cut(node.elt)
    return isinstance(node, (ast.Compare, ast.JoinedStr))


def mentions(node: ast.AST, names: Collection[str]) -> bool:
    """Whether one of the names is read, with its graph."""
    if is_cut(node):
        return False
    return _read(node) in names or any(mentions(part, names) for part in ast.iter_child_nodes(node))


def _read(node: ast.AST) -> str | None:
    """The name that a node reads."""
    is_name = isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Load)
    return last_part(node) if is_name else None


def computes(node: ast.AST) -> bool:
    """Whether a part of the statement that is being run may be what it has just computed, with its graph."""
    if is_cut(node):
        return False
    if isinstance(node, ast.Call) and not (isinstance(node.func, ast.Attribute) and node.func.attr in _MOVES):
        return True
    return any(computes(part) for part in ast.iter_child_nodes(node))


def goes_through(node: ast.AST) -> bool:
    """Whether the value of the statement that is being run may be what it has just computed, with its graph.

    Unlike `computes` it takes what calls nothing for an operator or an attribute that does.
    """
    if isinstance(node, (ast.Yield, ast.Await, ast.Starred)) and node.value is not None:
        return goes_through(node.value)
    parts = list(ast.iter_child_nodes(node))
    if isinstance(node, (ast.Tuple, ast.List, ast.Dict, ast.BinOp, ast.UnaryOp, ast.BoolOp)) and any(
        map(is_cut, parts)
    ):
        return any(map(computes, parts))
    return not is_cut(node)


def runs_engine(node: ast.AST, names: Collection[str] | None) -> bool:
    """Whether a node calls the engine, with one of some names in it; None stands for any."""
    if not isinstance(node, ast.Call) or last_part(node.func) not in ENGINE:
        return False
    return names is None or mentions(node, names)


def given_away(
    value: ast.expr, has: Callable[[ast.AST], bool], names: Collection[str], engines: frozenset[str]
) -> bool:
    """Whether an expression hands a value to something other than a function with a name, or calls it.

    ``handlers["bw"](loss)`` and ``make(loss)(x)`` may do anything; ``ce(out, y)`` and ``nn.MSELoss()(out, y)`` answer
    with another value.

    Args:
        value: The expression.
        has: Whether a part of it is, or holds, the value in question.
        names: The names that hold it.
        engines: Functions of the same file that differentiate.
    """
    for call in ast.walk(value):
        if not isinstance(call, ast.Call):
            continue
        function = call.func
        if isinstance(function, ast.Name) and function.id in names:
            return True
        odd = last_part(function) in engines or not (
            isinstance(function, (ast.Name, ast.Attribute)) or _makes(function)
        )
        if odd and (any(map(has, given(call))) or mentions(function, names)):
            return True
    return False


def _makes(function: ast.expr) -> bool:
    """Whether a call's function is made on the spot from a class: ``nn.MSELoss()``."""
    name = last_part(function.func) if isinstance(function, ast.Call) else None
    return name is not None and name.lstrip("_")[:1].isupper()


def hands_on(value: ast.expr, has: Callable[[ast.AST], bool], names: Collection[str]) -> bool:
    """Whether a statement is but a call that gets the value, and none that only shows or measures it."""
    call = value.value if isinstance(value, ast.Await) else value
    if not isinstance(call, ast.Call) or is_plain(call):
        return False
    inner = [part for node in ast.walk(call.func) if isinstance(node, ast.Call) for part in given(node)]
    return any(map(has, [*given(call), *inner])) or mentions(call.func, names)


def is_plain(call: ast.Call) -> bool:
    """Whether a call shows, measures or writes what it gets."""
    name = last_part(call.func)
    if name == "update":  # a metric's; a dict's gets a dict or keywords
        return bool(call.args) and not isinstance(call.args[0], ast.Dict)
    base = call.func
    while isinstance(base, ast.Attribute):
        base = base.value
    is_torchs = base is not call.func and isinstance(base, ast.Name) and base.id in _TORCH
    return is_torchs or (name is not None and (name in _PLAIN or name.startswith("assert")))


def given(call: ast.Call) -> list[ast.expr]:
    """What a call gets."""
    return [*call.args, *(keyword.value for keyword in call.keywords)]


def engines_of(tree: ast.AST) -> frozenset[str]:
    """The names of the functions in a file that call the engine."""
    functions = (node for node in ast.walk(tree) if isinstance(node, FUNCTIONS))
    return frozenset(one.name for one in functions if any(runs_engine(node, None) for node in ast.walk(one)))


def captors_of(function: ast.AST) -> Iterator[tuple[ast.AST, frozenset[str]]]:
    """The functions inside a function (or module), with the names of its that they read."""
    for node in ast.walk(function):
        if node is function or not isinstance(node, (*FUNCTIONS, ast.Lambda)):
            continue
        inside = list(ast.walk(node))
        names = [one for one in inside if isinstance(one, ast.Name)]
        lent = {name for one in inside if isinstance(one, (ast.Global, ast.Nonlocal)) for name in one.names}
        own = {one.arg for one in inside if isinstance(one, ast.arg)}
        own |= {one.id for one in names if not isinstance(one.ctx, ast.Load)} - lent
        yield node, frozenset({one.id for one in names if isinstance(one.ctx, ast.Load)} - own)
