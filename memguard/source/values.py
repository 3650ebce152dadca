"""What the value of an expression can hold, a tensor or a graph."""

from __future__ import annotations

import ast
from collections.abc import Collection, Mapping

from memguard.source.expressions import arguments, called_name, is_of_self, last_part, spans
from memguard.source.scopes import Scope
from memguard.source.vocabulary import (
    CONTAINERS,
    CREATES,
    CUT_ATTRIBUTES,
    CUTS,
    DETACHES,
    MOVES,
    NUMBER_FUNCTIONS,
    NUMBERS,
    VIEWS,
)

MAX_DEPTH = 12
_ALL_PARTS = (ast.List, ast.Tuple, ast.Set, ast.Dict, ast.BinOp, ast.UnaryOp, ast.Compare, ast.BoolOp)


def may_make(node: ast.expr, parts: Mapping[int, object]) -> bool:
    """Whether an expression can make a tuple with some plain parts: ``(tensor, False)`` has no True beside its tensor.

    Errs on the side of yes: only a tuple that is written out is compared, and only with constants in it. A list or a
    dict may have changed since.
    """
    if not isinstance(node, ast.Tuple) or any(isinstance(part, ast.Starred) for part in node.elts):
        return True
    constants = {at: part.value for at, part in enumerate(node.elts) if isinstance(part, ast.Constant)}
    return all(at < len(node.elts) and constants.get(at, part) == part for at, part in parts.items())


def may_carry(node: ast.expr, scope: Scope, *, graph: bool, depth: int = 0) -> bool:
    """Whether the value of an expression can hold a tensor (with its graph, if so asked).

    Errs on the side of yes: only what certainly cannot is ruled out, such as ``loss.item()``, ``float(x)``, ``[]`` and,
    for a graph, ``loss.detach().cpu()``. A name is followed to its assignments in the same function.
    """
    if depth > MAX_DEPTH:
        return True
    parts: list[ast.expr]
    if isinstance(node, (ast.Constant, ast.JoinedStr)):
        return False
    if isinstance(node, ast.Name):
        return _name_may_carry(node, scope, graph=graph, depth=depth)
    if isinstance(node, _ALL_PARTS):
        numbers = isinstance(node, ast.Compare) and graph
        numbers = numbers or (isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not))
        values = node.values if isinstance(node, ast.Dict) else ast.iter_child_nodes(node)
        parts = [] if numbers else [part for part in values if isinstance(part, ast.expr)]
    elif isinstance(node, ast.IfExp):
        parts = [node.body, node.orelse]
    elif isinstance(node, (ast.Starred, ast.Await, ast.NamedExpr, ast.DictComp)):
        parts = [node.value]
    elif isinstance(node, (ast.ListComp, ast.SetComp, ast.GeneratorExp)):
        parts = [node.elt]
    elif isinstance(node, ast.Attribute):
        return node.attr not in CUT_ATTRIBUTES - {"data"} and not (graph and node.attr in ("data", "grad"))
    elif isinstance(node, ast.Subscript):
        parts = [] if isinstance(node.value, ast.Attribute) and node.value.attr == "shape" else [node.value]
    elif isinstance(node, ast.Call):
        known = _of_call(node, graph=graph)
        if isinstance(known, bool):
            return known
        base = node.func.value if isinstance(node.func, ast.Attribute) else None
        if known is None and (base is None or not isinstance(base, ast.Call)):
            return True
        # A method of a call's result, like x.detach().cpu(): what the inner call ruled out stays out.
        if known is None and base is not None and may_carry(base, scope, graph=graph, depth=depth + 1):
            return True
        parts = arguments(node)
    else:
        return True
    return any(may_carry(part, scope, graph=graph, depth=depth + 1) for part in parts)


def _of_call(node: ast.Call, *, graph: bool) -> bool | str | None:
    """What a call's name says: yes or no; that its arguments say it; None where its object says it."""
    name, method = called_name(node), isinstance(node.func, ast.Attribute)
    if name in (NUMBERS if method else NUMBER_FUNCTIONS):
        return False
    if name in CONTAINERS or (not method and name in ("sum", "max", "min", "abs", "round", "sorted", "reversed")):
        return "arguments"
    if graph and name and (name in CREATES or (method and name in DETACHES)):
        return False
    if isinstance(node.func, ast.Attribute):
        return False if isinstance(node.func.value, ast.Constant) else None
    return True


def _name_may_carry(node: ast.Name, scope: Scope, *, graph: bool, depth: int) -> bool:
    """A local name carries unless every assignment to it in its function is known not to."""
    home = scope.home_of(node.id)
    if node.id in home.params or (home.parent is None and home is not scope):
        return True
    values = [value for value, _, _ in home.feeds(node.id)]
    inner = depth + MAX_DEPTH // 3
    return not values or any(may_carry(value, home, graph=graph, depth=inner) for value in values)


def has_graph_of(node: ast.AST, scope: Scope, held: Collection[str], at: int | None = None) -> bool:
    """Whether the value of an expression has the graph of what some variables hold.

    Args:
        node: The expression.
        scope: Where it is.
        held: The variables.
        at: A line on which calls of parts of ``self`` give such a graph as well.
    """
    if isinstance(node, ast.Name):
        return node.id in held
    if isinstance(node, ast.Compare):
        return False
    if isinstance(node, ast.Call) and at is not None and spans(node, at) and is_of_self(node.func):
        return True
    if isinstance(node, (ast.Call, ast.Attribute)) and not may_carry(node, scope, graph=True):
        return False
    return any(has_graph_of(part, scope, held, at) for part in ast.iter_child_nodes(node))


# Without a scope: what one expression says by itself


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


def reads_graph(node: ast.AST, names: Collection[str]) -> bool:
    """Whether one of some variables or attributes is read, with its graph."""
    if is_cut(node):
        return False
    if isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Load) and last_part(node) in names:
        return True
    return any(reads_graph(part, names) for part in ast.iter_child_nodes(node))


def computes(node: ast.AST) -> bool:
    """Whether a part of the statement that runs may be what it has just computed, with its graph."""
    if is_cut(node):
        return False
    prepares = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in MOVES | VIEWS
    if isinstance(node, ast.Call) and not prepares:  # models[0](x.to(device)) passes no output on
        return True
    return any(computes(part) for part in ast.iter_child_nodes(node))


def passes_graph(node: ast.AST) -> bool:
    """Whether the value of the statement that runs may be what it has just computed, with its graph.

    Unlike `computes` it takes what calls nothing for an operator or an attribute that does.
    """
    if isinstance(node, (ast.Yield, ast.Await, ast.Starred)) and node.value is not None:
        return passes_graph(node.value)
    parts = list(ast.iter_child_nodes(node))
    combined = (ast.Tuple, ast.List, ast.Dict, ast.BinOp, ast.UnaryOp, ast.BoolOp)
    if isinstance(node, combined) and any(map(is_cut, parts)):
        return any(map(computes, parts))
    return not is_cut(node)
