"""Functions that keep a model's graph to themselves: no backward can come once they only report numbers."""

from __future__ import annotations

import ast
import functools
from types import CodeType

from memguard.probes.naming.answering import function_of_code
from memguard.source.chains import last_name
from memguard.source.followed import FILLS, READIES, TRAINS, ends_unused
from memguard.source.functions import Function
from memguard.source.graph_flow import flows, names_in


@functools.lru_cache(maxsize=1024)
def keeps_graph(code: CodeType, line: int) -> bool:
    """Whether the graph of what is called on a line neither leaves the function nor meets a backward in it.

    It is not returned, yielded, put under an attribute or into what the function was given; at most it is added up.

    Args:
        code: The function, or a script.
        line: The line.
    """
    return _keeps_graph(code, line) or ends_unused(code.co_filename, line)


def _keeps_graph(code: CodeType, line: int) -> bool:
    """Likewise, for a function whatever the order of its statements."""
    function = function_of_code(code)
    if function is None or function.node is None:
        return False
    inside = (node for node in ast.walk(function.node) if node is not function.node)
    if any(isinstance(node, (ast.Yield, ast.YieldFrom, ast.FunctionDef)) for node in inside):
        return False
    at = line - code.co_firstlineno + 1
    held = {
        name
        for store in function.stores
        if store.line <= at <= store.end_line and not store.from_loop
        for name in names_in(store.target)
    }
    before = -1
    while len(held) > before:
        before = len(held)
        if not _spreads(function, held):
            return False
    outside = {*function.params, *function.outer} - {"self"}
    return bool(held) and not held & outside and not any(flows(value, function, held) for value in function.returns)


def _spreads(function: Function, held: set[str]) -> bool:
    """Adds the names that get something of what others hold; False where it gets out of sight."""
    for store in function.stores:
        if not flows(store.value, function, held):
            continue
        base = store.target
        while isinstance(base, ast.Subscript):
            base = base.value
        if isinstance(base, ast.Attribute):
            return False
        held.update(names_in(base))
    for site in function.calls:
        name = last_name(site.node.func) or ""
        method = site.node.func if isinstance(site.node.func, ast.Attribute) else None
        given = any(flows(arg, function, held) for arg in site.arguments())
        own = method is not None and flows(method.value, function, held)
        if (given or own) and name not in READIES and any(word in name.lower() for word in TRAINS):
            return False
        if given and method is not None and name in FILLS:
            if not isinstance(method.value, ast.Name):
                return False
            held.add(method.value.id)
    return True
