"""Whether a statement stores what was brought to the host: read from the syntax tree.

On a device the ledger tells by itself; where the device is the host, or a virtual one, ``x.cpu()`` is ``x``.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from memguard.facts import Place
from memguard.source.chains import last_name
from memguard.source.parsing import parse_file

_TO_HOST = frozenset({"cpu", "numpy", "tolist", "item"})
_ASK_NOTHING = frozenset({"tolist", "item"})
"""Those of a tensor take no arguments: ``self.item(ids)`` calls a part of a model."""
_NUMBERS = frozenset({"item", "tolist", "float", "int", "round", "len"})
"""What gives numbers: beside other elements of a tuple they say nothing of those."""
_MADE = frozenset(
    {"arange", "linspace", "zeros", "ones", "empty", "full", "eye", "rand", "randn", "randint", "randperm"}
)
"""What torch makes of sizes alone."""
_SHAPED = frozenset({"expand", "view", "reshape", "repeat", "tile", "narrow"})
"""What a tensor gives back in other sizes."""
_LIBRARIES = frozenset({"torch", "th", "np", "numpy", "einops"})
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
MAX_DEPTH = 3


def is_on_host(place: Place) -> bool:
    """Whether the statement at a place keeps only what ``.cpu()``, ``.numpy()``, ``.to("cpu")`` or the like gave."""
    if place.file is None or place.line is None:
        return False
    tree = parse_file(place.file)
    if tree is None:
        return False
    function: ast.AST = tree
    statement: ast.stmt | None = None
    name = (place.holder or "").partition("[")[0].rpartition(".")[2]
    for node in ast.walk(tree):  # breadth first: outer before inner
        if isinstance(node, ast.stmt) and node.lineno <= place.line <= (node.end_lineno or node.lineno):
            if isinstance(node, _FUNCTIONS):
                function = node
            if statement is None or node.lineno > statement.lineno or _mentions(node, name):
                statement = node  # of several on one line, the last that names the holder
    if statement is None or isinstance(statement, _FUNCTIONS):
        return False
    called = _call_of(statement, name) if name else None
    given: list[ast.AST] = [statement] if called is None else [*called.args, *(word.value for word in called.keywords)]
    return any(_brings(part, function, MAX_DEPTH) for part in given)


def _call_of(statement: ast.stmt, name: str) -> ast.Call | None:
    """Where the holder itself is called, as a metric is: it keeps what it is given, whatever becomes of its answer."""
    calls = [node for node in ast.walk(statement) if isinstance(node, ast.Call)]
    return next((call for call in calls if last_name(call.func) == name), None)


def _brings(node: ast.AST, function: ast.AST, depth: int) -> bool:
    """Whether a call in it brings something to the host, or a variable in it was set by such a call."""
    numbers = set(_numbers_beside(node, function))
    parts = list(_kept(node, numbers))
    if any(isinstance(part, ast.Call) and _is_to_host(part) for part in parts):
        return True
    if depth == 0:
        return False
    read = [part for part in parts if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Load)]
    asked = [part.func.value for part in parts if isinstance(part, ast.Call) and isinstance(part.func, ast.Attribute)]
    names, taken = {part.id for part in read}, {part.id for part in read if part not in asked}
    for part in ast.walk(function):
        if isinstance(part, ast.Assign) and part is not node:
            set_here = {name for target in part.targets for name in _names_set(target)}
            if (taken if _is_made(part.value) else names) & set_here and _brings(part.value, function, depth - 1):
                return True
    return False


def _is_made(value: ast.AST) -> bool:
    """Whether it is an object of some class: what that is made of says nothing of what its methods give."""
    return isinstance(value, ast.Call) and (last_name(value.func) or "")[:1].isupper()


def _names_set(target: ast.expr) -> Iterator[str]:
    """Variables that an assignment gives a value, or an element: not ``state`` of ``state.best = loss.item()``."""
    if isinstance(target, ast.Name):
        yield target.id
    elif isinstance(target, (ast.Subscript, ast.Starred)):
        yield from _names_set(target.value)
    elif isinstance(target, (ast.Tuple, ast.List)):
        for element in target.elts:
            yield from _names_set(element)


def _kept(node: ast.AST, numbers: set[ast.AST]) -> Iterator[ast.AST]:
    """The parts of a statement whose value is stored: keys, indices and conditions are not, nor are mere numbers."""
    if node in numbers:
        return
    yield node
    inner: list[ast.AST | None]
    if isinstance(node, (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Subscript)):
        inner = [node.value]
    elif isinstance(node, ast.Dict):
        inner = list(node.values)
    elif isinstance(node, (ast.If, ast.While, ast.IfExp)):
        inner = [child for child in ast.iter_child_nodes(node) if child is not node.test]
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "setdefault":
        inner = [node.func, *node.args[1:]]
    elif isinstance(node, ast.Call) and _takes_sizes(node.func):
        inner = [node.func]  # numbers that were read from a tensor for them bring nothing to the host
    elif isinstance(node, ast.Attribute) and _is_made(node.value):
        inner = []
    else:
        inner = list(ast.iter_child_nodes(node))
    for child in inner:
        if child is not None:
            yield from _kept(child, numbers)


def _takes_sizes(function: ast.expr) -> bool:
    """Whether a call's arguments are sizes: ``torch.zeros(n)``, ``x.expand(n, -1)``, not ``torch.reshape(x, n)``."""
    if not isinstance(function, ast.Attribute):
        return False
    owner = function.value.id if isinstance(function.value, ast.Name) else None
    return function.attr in (_MADE if owner in _LIBRARIES else _SHAPED if owner != "self" else ())


def _numbers_beside(node: ast.AST, function: ast.AST) -> Iterator[ast.AST]:
    """Numbers in a tuple, list or dict that is stored as such: ``best.append((loss.item(), weights))``."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        displays: list[ast.expr] = [*node.value.args]
    else:
        value = node.value if isinstance(node, (ast.Assign, ast.AugAssign, ast.AnnAssign)) else node
        displays = [value] if isinstance(value, ast.expr) else []
    while displays:
        display = displays.pop()
        if not isinstance(display, (ast.Tuple, ast.List, ast.Dict)):
            continue
        elements = [*(display.values if isinstance(display, ast.Dict) else display.elts)]
        found = [element for element in elements if _is_number(element, function, MAX_DEPTH)]
        if len(found) < len(elements):
            yield from found
        displays += [element for element in elements if element not in found]


def _is_number(node: ast.expr, function: ast.AST, depth: int) -> bool:
    """Whether an expression comes to a number that was read from a tensor, or to a list of such."""
    if isinstance(node, (ast.BinOp, ast.UnaryOp)):
        operands = [node.left, node.right] if isinstance(node, ast.BinOp) else [node.operand]
        others = [operand for operand in operands if not _is_number(operand, function, depth)]
        return len(others) < len(operands) and all(isinstance(o, (ast.Constant, ast.Name)) for o in others)
    if isinstance(node, ast.Call):
        called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        return called in _NUMBERS and not _is_other(node)
    if not isinstance(node, ast.Name) or depth == 0:
        return False
    given = [
        part.value
        for part in ast.walk(function)
        if isinstance(part, ast.Assign) and any(isinstance(t, ast.Name) and t.id == node.id for t in part.targets)
    ]
    return bool(given) and all(_is_number(value, function, depth - 1) for value in given)


def _mentions(node: ast.AST, name: str) -> bool:
    return any(name in (getattr(part, "id", None), getattr(part, "attr", None)) for part in ast.walk(node))


def _is_to_host(call: ast.Call) -> bool:
    function = call.func
    if not isinstance(function, ast.Attribute):
        return False
    if function.attr == "to":
        given = [*call.args, *(keyword.value for keyword in call.keywords)]
        return any(isinstance(part, ast.Constant) and part.value == "cpu" for part in given)
    return function.attr in _TO_HOST and not _is_other(call)


def _is_other(call: ast.Call) -> bool:
    """Whether a call is of another method that only has the name of one that reads a tensor's numbers."""
    return isinstance(call.func, ast.Attribute) and call.func.attr in _ASK_NOTHING and bool(call.args or call.keywords)
