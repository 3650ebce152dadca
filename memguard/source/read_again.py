"""Whether a function reads a variable again after a line, before it gets a new value."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from memguard.source.syntax import Source

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_NAMESPACES = frozenset({"globals", "locals", "vars", "eval", "exec"})
_BRANCHES = (ast.If, ast.For, ast.While, ast.Try, ast.AsyncFor)


def names_set(target: ast.expr) -> set[str]:
    """The variables that a target sets; not one that only an element of is set."""
    return {node.id for node in ast.walk(target) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}


def is_read_again(source: Source | None, first_line: int, function: str, name: str, line: int) -> bool | None:
    """Whether a function reads a variable after a line, before it gets a new value; None if that cannot be told.

    A loop around the line is gone through once more from its beginning: what comes first there, a read or a new value,
    decides. A nested function that uses the variable counts as a read. So does a function of the script, where the
    variable is the script's own; one that asks for all of them by name leaves it open.
    """
    node = source.node_at(first_line, function) if source is not None else None
    if node is None or (isinstance(node, ast.Module) and _reads_by_name(node)):
        return None
    # On one line a value is read before the name is set: x = f(x).
    uses = sorted(_uses(node, name), key=lambda use: (use[0], use[2] != "read"))
    if any(kind == "nested" for _, _, kind in uses):
        return True
    if _comes_first(node, [(at, kind) for at, _, kind in uses if at > line], line):
        return True
    for loop in loops_around(node, line):
        inside = [(at, kind) for at, _, kind in uses if loop.lineno <= at <= (loop.end_lineno or at)]
        if _comes_first(node, inside, line) and not _sets_earlier(loop, name):
            return True
    return False


def _comes_first(function: ast.AST, uses: list[tuple[int, str]], line: int) -> bool:
    """Whether a read comes before a new value; one that a branch sets is new in the rest of that branch only."""
    anew: list[range] = []
    for at, kind in uses:
        if any(at in lines for lines in anew):
            continue
        if kind == "read":
            return True
        if not is_in_branch(function, at, line):
            return False
        if is_in_branch(function, at, line, ast.If):
            anew.append(_rest_of_block(function, at))
    return False


def _rest_of_block(function: ast.AST, at: int) -> range:
    """The lines below a statement in the same branch or loop."""
    statements = [node for node in ast.walk(function) if isinstance(node, ast.stmt)]  # the outer ones first
    end, over = at, at
    for node in statements:
        if node.lineno == at:
            over = node.end_lineno or at
        for part in () if isinstance(node, (ast.With, ast.AsyncWith)) else ("body", "orelse", "finalbody"):
            block = getattr(node, part, None)
            if isinstance(block, list) and block and block[0].lineno <= at <= (block[-1].end_lineno or at):
                end = block[-1].end_lineno or at
    return range(over + 1, end + 1)


def _sets_earlier(loop: ast.For | ast.AsyncFor | ast.While, name: str) -> bool:
    return not isinstance(loop, ast.While) and name in names_set(loop.target)


def _uses(function: ast.AST, name: str) -> list[tuple[int, int, str]]:
    """(line, column, "read", "set" or "nested") of a name in a function."""
    found: list[tuple[int, int, str]] = []
    stack: list[tuple[ast.AST, bool]] = [(child, False) for child in ast.iter_child_nodes(function)]
    while stack:
        node, nested = stack.pop()
        if isinstance(node, _FUNCTIONS) and _has_its_own(node, name):
            continue
        nested = nested or isinstance(node, (*_FUNCTIONS, ast.ClassDef))
        if isinstance(node, ast.Name) and node.id == name:
            kind = "nested" if nested else "read" if isinstance(node.ctx, ast.Load) else "set"
            found.append((node.lineno, node.col_offset, kind))
        elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name) and node.target.id == name:
            found.append((node.lineno, node.col_offset, "read"))
        stack.extend((child, nested) for child in ast.iter_child_nodes(node))
    return found


def _has_its_own(function: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda, name: str) -> bool:
    """Whether a name is a variable of a nested function's own; its defaults and decorators are the outer one's."""
    outside = [*function.args.defaults, *function.args.kw_defaults, *getattr(function, "decorator_list", ())]
    if any(isinstance(part, ast.Name) and part.id == name for each in outside if each for part in ast.walk(each)):
        return False
    own = list(_own_parts(function))
    if any(isinstance(node, (ast.Global, ast.Nonlocal)) and name in node.names for node in own):
        return False
    if any(isinstance(node, ast.arg) and node.arg == name for node in ast.walk(function.args)):
        return True
    return any(isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Store) for node in own)


def _own_parts(function: ast.AST) -> Iterator[ast.AST]:
    """What stands in a function itself, not in one inside of it nor in a comprehension, which has its own names."""
    waiting = list(ast.iter_child_nodes(function))
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, (*_FUNCTIONS, ast.ClassDef, *_COMPREHENSIONS)):
            waiting.extend(ast.iter_child_nodes(node))


def _reads_by_name(script: ast.Module) -> bool:
    """Whether a script asks for its variables by their names."""
    return any(isinstance(node, ast.Name) and node.id in _NAMESPACES for node in ast.walk(script))


def is_in_branch(
    function: ast.AST | None, at: int, line: int, kinds: type[ast.AST] | tuple[type[ast.AST], ...] = _BRANCHES
) -> bool:
    """Whether a line stands in a branch or loop that the other line is not in: it may be passed over."""
    for node in ast.walk(function) if function is not None else ():
        if isinstance(node, kinds):
            first: int = getattr(node, "lineno", 0)
            end: int = getattr(node, "end_lineno", None) or first
            if first <= at <= end and not first <= line <= end:
                return True
    return False


def loops_around(function: ast.AST | None, line: int) -> list[ast.For | ast.AsyncFor | ast.While]:
    """The loops of a function that a line stands in."""
    return [
        node
        for node in (ast.walk(function) if function is not None else ())
        if isinstance(node, (ast.For, ast.AsyncFor, ast.While)) and node.lineno <= line <= (node.end_lineno or line)
    ]
