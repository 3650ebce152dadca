"""Statements that rebuild something under its old name before dropping it, and that let gradients go."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from memguard.records.facts import Place
from memguard.source.expressions import (
    FUNCTIONS,
    LOOPS,
    assigned_pairs,
    called_name,
    calls_in,
    is_none,
    item_base,
    method_base,
    own_nodes,
    spans,
    targets_of,
)
from memguard.source.model import SourceModel

_CONSTRUCTORS = frozenset({"__init__", "__post_init__", "__new__", "__setstate__"})


def remade_attribute(file: str, owner: str, name: str) -> Place | None:
    """Where a method of a class gives an attribute something new; None also where it is dropped somewhere before."""
    model = SourceModel.of(file)
    for node in model.all_of(ast.ClassDef):
        if node.name != owner:
            continue
        methods = [part for part in node.body if isinstance(part, FUNCTIONS) and part.name not in _CONSTRUCTORS]
        made = [(each, method.name) for method in methods for each in _made(ast.walk(method), name)]
        setting = [(each, method) for each, method in made if not _sets_variable(each)]
        if setting and not any(drops(part, name) for method in methods for part in ast.walk(method)):
            parts = [list(ast.walk(each.value)) if each.value is not None else [] for each, _ in setting]
            old = [any(_is(part, name) for part in inside) for inside in parts]
            statement, method = setting[old.index(True) if any(old) else 0]  # the first one that is made from the old
            return model.place(statement.lineno, f"{owner}.{method}", f"{owner}.{name}")
    return None


def remade_variable(file: str, function: str, first_line: int, name: str) -> Place | None:
    """Where a loop of a function gives a variable something new; None also where the loop drops it somewhere.

    Args:
        file: The file of the function.
        function: Its name; ``"<module>"`` for a script's own code.
        first_line: The line at which it begins.
        name: The variable.
    """
    model = SourceModel.of(file)
    scope = model.scope_of(first_line, function)
    loops = [node for node in own_nodes(scope.node) if isinstance(node, LOOPS)] if scope is not None else []
    for index, loop in enumerate(loops):  # the outer ones first
        for statement in _made(own_nodes(loop), name):
            around = next(one for one in loops[: index + 1] if any(part is statement for part in own_nodes(one)))
            # Outside of all loops, ``x = None`` only says that there is none yet, and ``del x`` that all are done.
            if not any(drops(part, name) for part in own_nodes(around)):
                return model.place(statement.lineno, function, name)
    return None


def _made(nodes: Iterable[ast.AST], name: str) -> Iterator[ast.Assign | ast.AnnAssign]:
    """Assignments to a name whose value is made by a call."""
    for node in nodes:
        pairs = assigned_pairs(node) if isinstance(node, (ast.Assign, ast.AnnAssign)) else []
        if any(_is(target, name) and _makes(value) for target, value in pairs):
            yield node  # type: ignore[misc]


def _sets_variable(statement: ast.Assign | ast.AnnAssign) -> bool:
    """Whether it gives a variable something, or an entry of one: that of a helper, which may go by the same name."""
    targets = [target for target, _ in assigned_pairs(statement)]
    return any(isinstance(item_base(target), ast.Name) for target in targets)


def _makes(value: ast.expr) -> bool:
    """Whether an expression makes something: a call, arithmetic, or the rows that an index picks; no slice's bounds."""
    waiting: list[ast.AST] = [value]
    for part in waiting:
        picks = isinstance(part, ast.Subscript) and not isinstance(part.slice, (ast.Slice, ast.Constant, ast.Tuple))
        if picks or isinstance(part, (ast.Call, ast.BinOp)):
            return True
        waiting += () if isinstance(part, ast.Slice) else ast.iter_child_nodes(part)
    return False


def drops(node: ast.AST, name: str) -> bool:
    """Whether a statement lets go of what a name holds: ``del x``, ``x = None``."""
    if isinstance(node, ast.Delete):
        return any(_is(target, name) for target in node.targets)
    if not isinstance(node, (ast.Assign, ast.AnnAssign)) or not is_none(node.value):
        return False
    return any(_is(target, name) for target, _ in assigned_pairs(node))


def _is(target: ast.AST, name: str) -> bool:
    name, _, entry = name.partition("[")
    if entry:  # cache["x"], pools[i]
        if not isinstance(target, ast.Subscript) or not _is(target.value, name):
            return False
        return not isinstance(target.slice, ast.Constant) or repr(target.slice.value) + "]" == entry
    return name in (getattr(target, "id", None), getattr(target, "attr", None))


# Gradients that a program drops by hand, without an optimizer


def drops_gradients_below(file: str, line: int) -> Place | None:
    """The first line below another at which gradients are let go: ``net.zero_grad()``, ``p.grad = None``."""
    model = SourceModel.of(file)
    found = (node for node in model.all_of(ast.stmt) if node.lineno > line)
    first = min(((node.lineno, dropped) for node in found if (dropped := _dropped(node)) is not None), default=None)
    if first is None:
        return None
    function = model.function_at(first[0])
    return model.place(first[0], None if isinstance(function, ast.Module) else function.name, first[1])


def _dropped(node: ast.stmt) -> str | None:
    """What a statement lets go of."""
    if isinstance(node, ast.Assign) and is_none(node.value):
        target = node.targets[0]
        return ast.unparse(target) if isinstance(target, ast.Attribute) and target.attr == "grad" else None
    call = node.value if isinstance(node, ast.Expr) else None
    return "grad" if method_base(call) is not None and call is not None and called_name(call) == "zero_grad" else None


def gradient_leaf(backward: Place) -> str | None:
    """The variable of a backward's function that gets the gradient: its one input, or the only ``.grad`` read."""
    line = backward.line or 0
    nodes = list(ast.walk(SourceModel.of(backward.file).function_at(line)))
    calls = [call for call in calls_in(*nodes[:1]) if spans(call, line) and called_name(call) == "backward"]
    given = [word.value for call in calls for word in call.keywords if word.arg == "inputs"][:1]
    if given and isinstance(given[0], (ast.List, ast.Tuple)):
        given = given[0].elts
    if len(given) == 1:
        one = given[0]
        if isinstance(one, ast.Call) and called_name(one) in ("list", "tuple") and len(one.args) == 1:
            one = one.args[0]
        if called_name(one) == "parameters" and isinstance(one, ast.Call):
            one = method_base(one) or one  # list(head.parameters())
        if isinstance(one, ast.Name):
            return one.id
    stored = {t.id for n in nodes if isinstance(n, ast.Assign) for t in targets_of(n) if isinstance(t, ast.Name)}
    stored.update(node.arg for node in nodes if isinstance(node, ast.arg))
    read = (node.value for node in nodes if isinstance(node, ast.Attribute) and node.attr == "grad")
    names = {value.id for value in read if isinstance(value, ast.Name)} & stored
    return names.pop() if len(names) == 1 else None
