"""Whether an expression's value can keep what was found: an autograd graph, or a tensor at all."""

from __future__ import annotations

import ast

from memguard.source.chains import last_name
from memguard.source.functions import Function

# fmt: off
_NUMBERS = frozenset({
    "item", "tolist", "numel", "dim", "size", "backward", "format", "join", "strip", "time", "perf_counter",
    "monotonic",
})
"""Methods whose result holds no tensor."""
NUMBER_FUNCTIONS = frozenset({
    "float", "int", "len", "str", "bool", "repr", "format", "range", "time", "perf_counter", "monotonic", "print",
    "isinstance", "id", "hash", "type", "ord", "open",
})
_DETACHES = frozenset({
    "detach", "detach_", "numpy", "argmax", "argmin", "argsort", "multinomial", "bernoulli", "no_grad",
    "requires_grad_",
})
"""Methods and functions whose result has no graph."""
_CREATES = frozenset({
    "tensor", "zeros", "ones", "empty", "full", "rand", "randn", "randint", "randperm", "arange", "linspace",
    "zeros_like",
    "ones_like", "empty_like", "rand_like", "randn_like", "full_like", "from_numpy", "as_tensor", "one_hot", "eye",
    "new_zeros", "new_ones", "new_tensor", "new_full",
})
# fmt: on
_PLAIN = frozenset({"list", "dict", "set", "tuple", "deque", "defaultdict", "OrderedDict", "Counter", "Queue"})
"""Containers: they carry what they are given, nothing without arguments."""

CUTS = _DETACHES | {"item", "tolist", "numel", "dim", "size"}
"""Methods whose result has no graph."""
CUT_ATTRIBUTES = frozenset({"data", "shape", "dtype", "device", "requires_grad", "ndim"})

MAX_DEPTH = 12


def may_carry(node: ast.expr, function: Function, *, graph: bool, depth: int = 0) -> bool:
    """Whether the value of an expression can hold a tensor (with its graph, if so asked).

    Errs on the side of yes: only what certainly cannot is ruled out, such as ``loss.item()``, ``float(x)``, ``[]`` and,
    for a graph, ``loss.detach().cpu()``. A name is followed to its assignments in the same function.
    """
    if depth > MAX_DEPTH:
        return True

    def carry(part: ast.expr) -> bool:
        return may_carry(part, function, graph=graph, depth=depth + 1)

    if isinstance(node, (ast.Constant, ast.JoinedStr)):
        return False
    if isinstance(node, ast.Name):
        return _name_may_carry(node, function, graph=graph, depth=depth)
    if isinstance(node, (ast.List, ast.Tuple, ast.Set)):
        return any(carry(part) for part in node.elts)
    if isinstance(node, ast.Dict):
        return any(carry(part) for part in node.values)
    if isinstance(node, ast.BinOp):
        return carry(node.left) or carry(node.right)
    if isinstance(node, ast.UnaryOp):
        return not isinstance(node.op, ast.Not) and carry(node.operand)
    if isinstance(node, ast.Compare):
        return not graph and any(carry(part) for part in [node.left, *node.comparators])
    if isinstance(node, ast.BoolOp):
        return any(carry(part) for part in node.values)
    if isinstance(node, ast.IfExp):
        return carry(node.body) or carry(node.orelse)
    if isinstance(node, (ast.Starred, ast.Await, ast.NamedExpr)):
        return carry(node.value)
    if isinstance(node, (ast.ListComp, ast.SetComp, ast.GeneratorExp)):
        return carry(node.elt)
    if isinstance(node, ast.DictComp):
        return carry(node.value)
    if isinstance(node, ast.Attribute):
        return node.attr not in ("shape", "dtype", "device", "ndim", "requires_grad") and not (
            graph and node.attr in ("data", "grad")
        )
    if isinstance(node, ast.Subscript):
        return not (isinstance(node.value, ast.Attribute) and node.value.attr == "shape") and carry(node.value)
    if isinstance(node, ast.Call):
        return _call_may_carry(node, function, graph=graph, depth=depth)
    return True


def _call_may_carry(node: ast.Call, function: Function, *, graph: bool, depth: int) -> bool:
    name = last_name(node.func) or ""
    args = [*node.args, *(item.value for item in node.keywords)]
    if isinstance(node.func, ast.Name):
        if name in NUMBER_FUNCTIONS:
            return False
        if name in _PLAIN:
            return any(may_carry(part, function, graph=graph, depth=depth + 1) for part in args)
        if name in ("sum", "max", "min", "abs", "round", "sorted", "reversed"):
            return any(may_carry(part, function, graph=graph, depth=depth + 1) for part in args)
        return not (graph and name in _CREATES)
    if not isinstance(node.func, ast.Attribute):
        return True
    if name in _NUMBERS:
        return False
    if name in _PLAIN:
        return any(may_carry(part, function, graph=graph, depth=depth + 1) for part in args)
    if graph and name in _DETACHES | _CREATES:
        return False
    base = node.func.value
    if isinstance(base, ast.Constant):
        return False
    # A method of a call's result, like x.detach().cpu(): what the inner call ruled out stays out.
    if isinstance(base, ast.Call) and not may_carry(base, function, graph=graph, depth=depth + 1):
        return any(may_carry(part, function, graph=graph, depth=depth + 1) for part in args)
    return True


def _name_may_carry(node: ast.Name, function: Function, *, graph: bool, depth: int) -> bool:
    """A local name carries unless every assignment to it in its function is known not to."""
    home = function.home_of(node.id)
    if node.id in home.params or (home.parent is None and home is not function):
        return True
    inner = depth + MAX_DEPTH // 3
    values = [value for value, _, _ in home.feeds(node.id)]
    return not values or any(may_carry(value, home, graph=graph, depth=inner) for value in values)
