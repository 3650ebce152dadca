"""The statement that makes something anew under its old name, before the old one is dropped: read from the source."""

from __future__ import annotations

import ast
import linecache
from collections.abc import Iterator

from memguard.facts import Place
from memguard.source.parsing import parse_file

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_LOOPS = (ast.For, ast.AsyncFor, ast.While)
_CONSTRUCTORS = frozenset({"__init__", "__post_init__", "__new__", "__setstate__"})


def remade_attribute(file: str, owner: str, name: str) -> Place | None:
    """Where a method of a class gives an attribute something new; None also where it is dropped somewhere before.

    Args:
        file: The file of the class.
        owner: The name of the class.
        name: The attribute.
    """
    tree = parse_file(file)
    for node in ast.walk(tree) if tree is not None else ():
        if not isinstance(node, ast.ClassDef) or node.name != owner:
            continue
        methods = [part for part in node.body if isinstance(part, _FUNCTIONS) and part.name not in _CONSTRUCTORS]
        setting = [(each, method.name) for method in methods for each in _made(ast.walk(method), name)]
        if setting and not any(_drops(part, name) for method in methods for part in ast.walk(method)):
            statement, method = min(setting, key=lambda each: not _reads(each[0], name))  # first one made from the old
            return _place(file, statement, f"{owner}.{method}", f"{owner}.{name}")
    return None


def remade_variable(file: str, function: str, first_line: int, name: str) -> Place | None:
    """Where a loop of a function gives a variable something new; None also where the loop drops it somewhere.

    Args:
        file: The file of the function.
        function: Its name; ``"<module>"`` for a script's own code.
        first_line: The line at which it begins.
        name: The variable.
    """
    tree = parse_file(file)
    scope = tree if function == "<module>" or tree is None else _function_at(tree, function, first_line)
    if scope is None:
        return None
    nodes = list(_own(scope))
    loops = [node for node in nodes if isinstance(node, _LOOPS)]  # the outer ones first
    for index, loop in enumerate(loops):
        for statement in _made(_own(loop), name):
            around = [one for one in loops[: index + 1] if any(part is statement for part in _own(one))]
            # Outside of all loops, ``x = None`` only says that there is none yet, and ``del x`` that all are done.
            if not any(_drops(part, name) for part in _own(around[0])):
                return _place(file, statement, function, name)
    return None


def remade_elsewhere(file: str, name: str, *, is_global: bool) -> Place | None:
    """Where the only function of a file that gives something else's part, or a global, something new does so.

    Args:
        file: The file.
        name: A global, an attribute, or an entry of either: ``cache["x"]``.
        is_global: Whether the name is a variable of the module.
    """
    tree = parse_file(file)
    found: list[Place] = []
    for scope in ast.walk(tree) if tree is not None else ():
        if not isinstance(scope, _FUNCTIONS) or scope.name in _CONSTRUCTORS:
            continue
        nodes = list(_own(scope))
        declared = any(isinstance(node, ast.Global) and name in node.names for node in nodes)
        for statement in _made(iter(nodes), name):
            plain = any(isinstance(target, ast.Name) for target in _targets(statement))
            if plain and not (is_global and declared):
                continue  # a variable of its own
            found.append(_place(file, statement, scope.name, name))
    if len(found) != 1 or any(_drops(node, name) for node in ast.walk(tree or ast.Module([], []))):
        return None
    return found[0]


def _function_at(tree: ast.Module, name: str, first_line: int) -> ast.AST | None:
    for node in ast.walk(tree):
        if isinstance(node, _FUNCTIONS) and node.name == name:
            lines = [node.lineno, *(decorator.lineno for decorator in node.decorator_list)]
            if min(lines) == first_line:
                return node
    return None


def _own(scope: ast.AST) -> Iterator[ast.AST]:
    """What stands in a function or loop itself, not in functions and classes inside of it."""
    waiting = list(ast.iter_child_nodes(scope))
    while waiting:
        node = waiting.pop(0)
        yield node
        if not isinstance(node, (*_FUNCTIONS, ast.ClassDef, ast.Lambda)):
            waiting.extend(ast.iter_child_nodes(node))


def _made(nodes: Iterator[ast.AST], name: str) -> Iterator[ast.Assign | ast.AnnAssign]:
    """Assignments to a name whose value is made by a call."""
    for node in nodes:
        if not isinstance(node, (ast.Assign, ast.AnnAssign)) or node.value is None:
            continue
        if any(_is(target, name) and _makes(value) for target, value in _pairs(node)):
            yield node


def _reads(statement: ast.Assign | ast.AnnAssign, name: str) -> bool:
    """Whether the new value is made from what the name holds: the old one is certainly there then."""
    return statement.value is not None and any(
        isinstance(part, ast.expr) and _is(part, name) for part in ast.walk(statement.value)
    )


def _makes(value: ast.expr) -> bool:
    """Whether an expression makes something: a call, arithmetic, or the rows that an index picks; no slice's bounds."""
    waiting: list[ast.AST] = [value]
    while waiting:
        part = waiting.pop()
        if isinstance(part, ast.Slice):
            continue
        if isinstance(part, (ast.Call, ast.BinOp)) or (
            isinstance(part, ast.Subscript) and not isinstance(part.slice, (ast.Slice, ast.Constant, ast.Tuple))
        ):
            return True
        waiting.extend(ast.iter_child_nodes(part))
    return False


def _pairs(node: ast.Assign | ast.AnnAssign) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Each target with what it gets: of ``a, b = f(), g()`` its own."""
    assert node.value is not None
    for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
        if isinstance(target, ast.Tuple):
            values = node.value.elts if isinstance(node.value, ast.Tuple) else [node.value] * len(target.elts)
            yield from zip(target.elts, values, strict=False)
        else:
            yield target, node.value


def _drops(node: ast.AST, name: str) -> bool:
    """Whether a statement lets go of what a name holds: ``del x``, ``x = None``."""
    if isinstance(node, ast.Delete):
        return any(_is(target, name) for target in node.targets)
    if isinstance(node, (ast.Assign, ast.AnnAssign)) and isinstance(node.value, ast.Constant):
        return node.value.value is None and any(_is(target, name) for target in _targets(node))
    return False


def _targets(node: ast.Assign | ast.AnnAssign) -> list[ast.expr]:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return [part for target in targets for part in (target.elts if isinstance(target, ast.Tuple) else [target])]


def _is(target: ast.expr, name: str) -> bool:
    name, _, entry = name.partition("[")
    if entry:  # cache["x"], pools[i]
        return (
            isinstance(target, ast.Subscript)
            and _is(target.value, name)
            and (not isinstance(target.slice, ast.Constant) or repr(target.slice.value) + "]" == entry)
        )
    return (isinstance(target, ast.Name) and target.id == name) or (
        isinstance(target, ast.Attribute) and target.attr == name
    )


def _place(file: str, statement: ast.stmt, function: str, holder: str) -> Place:
    source = linecache.getline(file, statement.lineno).strip()
    return Place(file=file, line=statement.lineno, function=function, holder=holder, source=source)
