"""What an expression or a statement names, reads, calls and assigns: the questions that need no scope."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Iterator, Sequence

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
SCOPES = (*FUNCTIONS, ast.ClassDef, ast.Lambda)
LOOPS = (ast.For, ast.AsyncFor, ast.While)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
ASSIGNMENTS = (ast.Assign, ast.AnnAssign, ast.AugAssign)

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef
Loop = ast.For | ast.AsyncFor | ast.While
Accessor = tuple[str, "str | int | None"]
"""One step of an expression like ``self.logs["loss"]``: ("name", "self"), ("attr", "logs"), ("item", "loss")."""
Chain = tuple[Accessor, ...]


def parse(text: str) -> ast.Module | None:
    """The tree of some source; None where Python cannot read it, and nothing is to be concluded from it."""
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):  # not Python, a null byte in it, too deep
        return None


def parse_statement(text: str | None) -> ast.stmt | None:
    """The only statement of some source; None where it has several, or Python cannot read it."""
    tree = parse((text or "").strip())
    return tree.body[0] if tree is not None and len(tree.body) == 1 else None


def spans(node: ast.AST, line: int) -> bool:
    """Whether a statement or expression lies on a line, with all that is inside it."""
    first: int = getattr(node, "lineno", 0)
    return first <= line <= (getattr(node, "end_lineno", None) or first)


def block_spans(block: object, line: int) -> bool:
    """Whether a line lies between the first and the last of some statements."""
    return isinstance(block, list) and bool(block) and block[0].lineno <= line <= (block[-1].end_lineno or 0)


def first_line(node: FunctionNode | ast.ClassDef) -> int:
    """Where a function begins, its decorators included: the first line of its code object."""
    return min([node.lineno, *(item.lineno for item in node.decorator_list)])


def own_nodes(scope: ast.AST | None) -> Iterator[ast.AST]:
    """What a function or loop has itself, outer before inner; not what functions and classes in it have."""
    waiting = list(ast.iter_child_nodes(scope)) if scope is not None else []
    for node in waiting:
        yield node
        if not isinstance(node, SCOPES):
            waiting.extend(ast.iter_child_nodes(node))


# Names


def last_name(node: ast.AST | None) -> str | None:
    """``"c"`` of ``a.b.c`` or of ``c``."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else None


def last_part(node: ast.AST | None) -> str | None:
    """The last name of an expression, its items left out: of ``self.items[k]`` it is ``items``."""
    while isinstance(node, ast.Subscript):
        node = node.value
    return last_name(node)


def root_of(node: ast.AST | None) -> str | None:
    """The variable that an expression begins with: of ``logs[k].append(x)`` it is ``logs``."""
    while isinstance(node, (ast.Attribute, ast.Subscript, ast.Call)):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else None


def item_base(node: ast.expr) -> ast.expr:
    """What ``base[key][other]`` takes items of."""
    while isinstance(node, (ast.Subscript, ast.Starred)):
        node = node.value
    return node


def names_in(node: ast.AST) -> Iterator[str]:
    """The variables that an expression mentions."""
    return (part.id for part in ast.walk(node) if isinstance(part, ast.Name))


def mentions(node: ast.AST, names: Collection[str]) -> bool:
    """Whether an expression or statement mentions one of some variables."""
    return any(name in names for name in names_in(node))


def is_self(node: ast.AST | None) -> bool:
    """Whether an expression is ``self``."""
    return isinstance(node, ast.Name) and node.id == "self"


def is_of_self(node: ast.AST) -> bool:
    """Whether an expression is ``self``, or what is reached from it."""
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        node = node.value
    return is_self(node)


def own_attribute(node: ast.AST | None) -> str | None:
    """The attribute of ``self`` that an expression is."""
    return node.attr if isinstance(node, ast.Attribute) and is_self(node.value) else None


def is_none(node: ast.AST | None) -> bool:
    """Whether an expression is ``None``."""
    return isinstance(node, ast.Constant) and node.value is None


def symbol_of(holder: str | None) -> tuple[str, bool]:
    """The last name of a holder like ``losses`` or ``Meter.total[3]``, and whether it is an object's attribute."""
    owner, _, name = (holder or "").partition("[")[0].rpartition(".")
    return name, bool(owner)


# Calls


def called_name(node: ast.AST) -> str:
    """The last name of what is called, of a decorator as well: ``append`` of ``log.append(x)``; else empty."""
    return last_name(node.func if isinstance(node, ast.Call) else node) or ""


def arguments(call: ast.Call) -> list[ast.expr]:
    """Positional and keyword arguments."""
    return [*call.args, *(item.value for item in call.keywords)]


def calls_in(*nodes: ast.AST) -> Iterator[ast.Call]:
    """All calls within some nodes."""
    return (part for node in nodes for part in ast.walk(node) if isinstance(part, ast.Call))


def method_base(node: ast.AST | None) -> ast.expr | None:
    """What a method is called on: ``log`` of ``log.append(x)``."""
    return node.func.value if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) else None


def is_backward(node: ast.AST) -> bool:
    """Whether a node differentiates: ``loss.backward()``, ``fabric.backward(loss)``, ``autograd.grad(loss, w)``."""
    name = called_name(node) if isinstance(node, ast.Call) else ""
    return name == "grad" or "backward" in name.lower()


# Assignments


def targets_of(statement: ast.AST) -> list[ast.expr]:
    """What a statement gives a value: the targets of an assignment, of a loop, of a ``with``."""
    if isinstance(statement, ast.Assign):
        return list(statement.targets)
    if isinstance(statement, (ast.AnnAssign, ast.AugAssign, ast.NamedExpr, ast.For, ast.AsyncFor, ast.comprehension)):
        return [statement.target]
    if isinstance(statement, (ast.With, ast.AsyncWith)):
        return [item.optional_vars for item in statement.items if item.optional_vars is not None]
    return []


def flat_targets(targets: Iterable[ast.expr]) -> Iterator[ast.expr]:
    """Each of ``preds, (labels, *rest)``."""
    for target in targets:
        if isinstance(target, (ast.Tuple, ast.List)):
            yield from flat_targets(target.elts)
        else:
            yield target.value if isinstance(target, ast.Starred) else target


def assigns(node: ast.AST, name: str) -> bool:
    """Whether a node gives a name, or an attribute of that name, a value; not an element of it."""
    if not isinstance(node, (ast.Assign, ast.AnnAssign, ast.NamedExpr)) or node.value is None:
        return False
    targets = flat_targets(targets_of(node))
    return any(not isinstance(target, ast.Subscript) and last_part(target) == name for target in targets)


def names_set(node: ast.AST) -> set[str]:
    """The variables that a target or statement sets; not one that only an element of is set."""
    return {part.id for part in ast.walk(node) if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)}


def assigned_pairs(statement: ast.AST) -> list[tuple[ast.expr, ast.expr]]:
    """Each single target of an assignment with what it takes: of ``a, b = f(), g()`` its own."""
    if not isinstance(statement, (*ASSIGNMENTS, ast.NamedExpr)) or statement.value is None:
        return []
    return [pair for target in targets_of(statement) for pair in parts_of(target, statement.value)]


def parts_of(target: ast.expr, value: ast.expr) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Each single target of an assignment with what it takes."""
    if isinstance(target, ast.Starred):
        yield target.value, value
    elif isinstance(target, (ast.Tuple, ast.List)):
        same = isinstance(value, (ast.Tuple, ast.List)) and len(value.elts) == len(target.elts)
        for index, part in enumerate(target.elts):
            yield from parts_of(part, value.elts[index] if same and isinstance(value, (ast.Tuple, ast.List)) else value)
    else:
        yield target, value


def parts_of_loop(target: ast.expr, iterable: ast.expr) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Each variable of a loop with what it runs over: ``enumerate``, ``zip`` and ``.items()`` are seen through."""
    name, base = called_name(iterable) if isinstance(iterable, ast.Call) else "", method_base(iterable)
    if not isinstance(target, (ast.Tuple, ast.List)):
        yield target, base if name == "values" and base is not None else iterable
        return
    args = iterable.args if isinstance(iterable, ast.Call) else []
    if name == "zip" and len(args) == len(target.elts):
        for part, source in zip(target.elts, args, strict=True):
            yield from parts_of_loop(part, source)
    elif name == "enumerate" and args and len(target.elts) == 2:
        yield from parts_of_loop(target.elts[1], args[0])
    elif name == "items" and base is not None and len(target.elts) == 2:
        yield from parts_of_loop(target.elts[1], base)
    else:
        yield from ((part, iterable) for part in target.elts)


# Chains


def chains_of(node: ast.expr) -> Iterator[Chain]:
    """The chains an expression may be: both of ``(a if train else b).append``."""
    attribute = node if isinstance(node, ast.Attribute) else None
    for value in _choices(attribute.value if attribute is not None else node):
        chain = chain_of(value)
        if chain is not None:
            yield (*chain, ("attr", attribute.attr)) if attribute is not None else chain


def chain_of(node: ast.expr) -> Chain | None:
    """An expression as a chain of accessors, or None if it does not start at a name.

    ``logs.setdefault(k, []).append`` gives name logs, item None, attr append: a call of ``get`` or ``setdefault`` reads
    an item, any other call is ("call", method).
    """
    if isinstance(node, ast.Name):
        return (("name", node.id),)
    if isinstance(node, ast.Await):
        return chain_of(node.value)
    if isinstance(node, ast.Attribute):
        base = chain_of(node.value)
        return None if base is None else (*base, ("attr", node.attr))
    if isinstance(node, ast.Subscript):
        if isinstance(node.value, ast.Call) and called_name(node.value) == "globals":
            return (("name", _constant(node.slice)),)
        base = chain_of(node.value)
        if base is not None and base[-1] == ("attr", "__dict__") and isinstance(node.slice, ast.Constant):
            return (*base[:-1], ("attr", str(node.slice.value)))
        return None if base is None else (*base, ("item", _constant(node.slice)))
    return _chain_of_call(node) if isinstance(node, ast.Call) else None


def _chain_of_call(node: ast.Call) -> Chain | None:
    if isinstance(node.func, ast.Attribute):
        base = chain_of(node.func.value)
        if base is not None and node.func.attr in ("get", "setdefault", "pop", "__getitem__"):
            return (*base, ("item", _constant(node.args[0]) if node.args else None))
        return None if base is None else (*base, ("call", node.func.attr))
    name = called_name(node)
    base = chain_of(node.args[0]) if node.args and name in ("getattr", "type", "vars") else None
    if base is None:
        return None
    if name == "getattr":
        attribute = _constant(node.args[1]) if len(node.args) >= 2 else None
        return (*base, ("attr", attribute)) if isinstance(attribute, str) else None
    if len(node.args) != 1:
        return None
    return base if name == "type" else (*base, ("attr", "__dict__"))


def _choices(node: ast.expr) -> Iterator[ast.expr]:
    values: Sequence[ast.expr] = ()
    if isinstance(node, ast.IfExp):
        values = (node.body, node.orelse)
    elif isinstance(node, ast.BoolOp):
        values = node.values
    elif isinstance(node, ast.Subscript) and isinstance(node.value, (ast.Dict, ast.List, ast.Tuple)):
        values = node.value.values if isinstance(node.value, ast.Dict) else node.value.elts
    for value in values:
        yield from _choices(value)
    if not values:
        yield node


def _constant(node: ast.expr) -> str | int | None:
    if isinstance(node, ast.Constant) and type(node.value) in (str, int):
        value: str | int = node.value  # type: ignore[assignment]
        return value
    return None
