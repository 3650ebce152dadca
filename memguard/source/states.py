"""States that a program carries from batch to batch: what is made from their old value.

A state is named as its own statements name it: ``self.center``, or ``center`` for a variable.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

from memguard.source.expressions import (
    ASSIGNMENTS,
    FUNCTIONS,
    Chain,
    FunctionNode,
    arguments,
    called_name,
    calls_in,
    chain_of,
    flat_targets,
    is_self,
    is_self_attribute,
    item_base,
    last_name,
    names_in,
    parse_statement,
    spans,
    targets_of,
)
from memguard.source.model import SourceModel
from memguard.source.scopes import turns_grad_off
from memguard.source.steps import steps_up_to, suites_of
from memguard.source.vocabulary import BLENDS, JOINS, LIBRARIES, MOVES, SHAPE, SHOWS

_LIKE = frozenset({"zeros_like", "ones_like", "empty_like", "full_like", "rand_like", "randn_like", "len"})
_STEPS = ("forward", "training_step")
"""Methods in which a module does what a batch asks for."""
IsModule = Callable[[Chain], bool]
"""Whether an expression of the running program is a module."""


def is_blended_state(file: str, line: int, holder: str) -> bool:
    """Whether a statement weighs a state's old value against a new one, and the program computes with the result.

    ``self.center = m * self.center + (1 - m) * z``. A sum is no such state, nor is what is only given away or shown:
    those are records of what has been seen.
    """
    model = SourceModel.of(file)
    if model is None:
        return False
    kind = model.class_at(line) if "." in holder else None
    function = model.function_at(line)
    blending = _blending(line, holder, function)
    if kind is None and "." in holder:
        return False
    users: Iterable[FunctionNode | ast.Module] = [function] if kind is None else _methods(kind)
    return bool(blending) and any(_is_computed_with(user, holder, blending) for user in users)


def called_chain(source: str | None) -> Chain | None:
    """What a statement calls to make what it assigns: ``model`` in ``logits, cache = model(token, cache)``."""
    statement = parse_statement(source) if source else None
    value = getattr(statement, "value", None)
    return chain_of(value.func) if isinstance(value, ast.Call) else None


def _methods(kind: ast.ClassDef) -> list[FunctionNode]:
    """The methods, but for those that run without a graph."""
    methods = (node for node in kind.body if isinstance(node, FUNCTIONS))
    return [method for method in methods if not any(map(turns_grad_off, method.decorator_list))]


def _blending(line: int, state: str, function: ast.AST) -> list[ast.Assign]:
    """The statement on a line if it gives a state a blend of itself, and those that make variables for that.

    As in ``mixed = 0.9 * self.center + 0.1 * z`` and ``self.center = normalize(mixed)``.
    """
    given = [node for node in ast.walk(function) if isinstance(node, ast.Assign)]
    write = next((node for node in given if _writes(node, state) and spans(node, line)), None)
    if write is None:
        return []
    parts = set(names_in(write.value)) - {state}
    before = [n for n in given if not parts.isdisjoint(map(last_name, n.targets)) and _is_blend(n.value, state)]
    return [write, *before] if before or _is_blend(write.value, state) else []


def _is_blend(value: ast.expr, state: str) -> bool:
    """Whether the old value is multiplied, or goes into a function that blends."""
    for node in ast.walk(value):
        multiplies = isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult)
        if (multiplies or (isinstance(node, ast.Call) and called_name(node) in BLENDS)) and _reads(node, state):
            return True
    return False


def _is_computed_with(function: FunctionNode | ast.Module, state: str, blending: Sequence[ast.Assign]) -> bool:
    """Whether a function makes something else of a state and a variable together."""
    given: dict[str, list[ast.expr]] = {}
    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and not _writes(node, state):
            given.setdefault(node.targets[0].id, []).append(node.value)
    # Variables that are the state under another name, and nothing else: ``target = self.center.detach()``.
    names = {name for name, values in given.items() if all(_reads(v, state) and not _others(v, state) for v in values)}
    return any(
        _computes(statement, state, names)
        for statement in _simple(function.body)
        if statement not in blending and not (isinstance(statement, ast.Assign) and _writes(statement, state))
    )


def _simple(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Simple statements, but for those that run without a graph or in evaluation alone."""
    for statement in body:
        if isinstance(statement, ast.With) and any(turns_grad_off(item.context_expr) for item in statement.items):
            continue
        suites = suites_of(statement)
        if not suites:
            yield statement
        training = isinstance(statement, ast.If) and getattr(statement.test, "attr", None) == "training"
        for suite in suites[:1] if training else suites:
            yield from _simple(suite)


def _computes(statement: ast.stmt, state: str, names: Collection[str]) -> bool:
    """Whether something is made of the state and a variable together: ``z - self.center.detach()``; not to show it."""
    if isinstance(statement, ast.Expr) and called_name(statement.value) in SHOWS:
        return False
    for node in ast.walk(statement):
        sides = [node.left, node.right] if isinstance(node, ast.BinOp) else getattr(node, "args", [])
        if isinstance(node, (ast.BinOp, ast.Call)):
            others = [side for side in sides if not _reads(side, state, names)]
            if len(others) < len(sides) and any(_others(side, state) for side in others):
                return True
    return False


def _writes(node: ast.Assign, state: str) -> bool:
    return any(_is_state(target, state) for target in node.targets)


def _is_state(node: ast.AST, state: str) -> bool:
    return isinstance(node, (ast.Name, ast.Attribute)) and ast.unparse(node) == state


def _reads(node: ast.AST, state: str, names: Collection[str] = ()) -> bool:
    parts = ast.walk(node)
    return any(_is_state(part, state) or (isinstance(part, ast.Name) and part.id in names) for part in parts)


def _others(node: ast.AST, state: str) -> bool:
    """Whether a variable other than the state, the object that has it, or a library's module is read."""
    own = {state.partition(".")[0], *LIBRARIES}
    return any(name not in own for name in names_in(node))


# States that a step reads, or a part of the model makes


def is_read_first(file: str, line: int, name: str) -> bool:
    """Whether a step reads an attribute before the statement on a line makes it anew, there or in a method."""
    model = SourceModel.of(file)
    kind = model.class_at(line) if model is not None else None
    methods = {node.name: node for node in kind.body if isinstance(node, ast.FunctionDef)} if kind is not None else {}
    steps = [methods[step] for step in _STEPS if step in methods]
    method = next((one for one in methods.values() if spans(one, line)), None)
    if not steps or method is None:
        return False
    *before, write = steps_up_to(method.body, line)
    if not _writes_attribute(write, name):
        return False
    if method in steps:
        return _goes_elsewhere(before, write, name)
    value = write.value if isinstance(write, ast.Assign) else None
    if not _makes_of_old(value, name) or _is_joined(value):
        return False
    return any(_reads_before(step, method.name, methods, name) for step in steps)


def _reads_before(step: ast.FunctionDef, writer: str, methods: dict[str, ast.FunctionDef], name: str) -> bool:
    """Whether a step, before it calls the method that writes, reads, or calls one that does: ``self.retrieve(q)``."""
    for statement in step.body:
        called = [called_name(call) for call in calls_in(statement) if is_self_attribute(call.func)]
        if writer in called:
            return False
        readers = (methods[one] for one in called if one in methods)
        inside = [statement, *(node for reader in readers for node in ast.walk(reader))]
        values = (node.value for node in inside if isinstance(node, (*ASSIGNMENTS, ast.Return)))
        if any(_makes_of_old(value, name) for value in values):
            return True
    return False


def _goes_elsewhere(before: list[ast.stmt], write: ast.stmt, name: str) -> bool:
    """Whether the old value goes into the new one, and into something else that is computed before."""
    simple = [node for one in before for node in ast.walk(one) if isinstance(node, (*ASSIGNMENTS, ast.Return))]
    aliases = [node for node in simple if node.value is not None and _is_moved(node.value, name)]
    old = {target for node in aliases for target in _targets(node)}
    read = [node for node in simple if node not in aliases and _makes_of_old(node.value, name, old)]
    made_of = set(names_in(write))
    parts = [node for node in read if _targets(node) & made_of]
    if any(_is_joined(node.value) for node in [*parts, write] if isinstance(node, ASSIGNMENTS)):
        return False
    return len(read) > len(parts) and (bool(parts) or _makes_of_old(getattr(write, "value", None), name, old))


def _is_joined(value: ast.expr | None) -> bool:
    """Whether old and new are side by side, as in a queue: ``torch.cat([k, self.queue])[:size]`` collects."""
    while isinstance(value, ast.Subscript):
        value = value.value
    return isinstance(value, ast.Call) and called_name(value) in JOINS


def _is_moved(value: ast.expr, name: str) -> bool:
    """``self.memory`` itself, moved (``self.memory.to(x.device)``), or one of two: ``a if b else self.memory``."""
    if isinstance(value, ast.IfExp):
        return _is_moved(value.body, name) or _is_moved(value.orelse, name)
    while isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr in MOVES:
        value = value.func.value
    return is_self_attribute(value, name)


def _writes_attribute(statement: ast.stmt, name: str) -> bool:
    """Whether it assigns to the attribute, or to a part of it."""
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    return any(is_self_attribute(node, name) for target in targets for node in ast.walk(target))


def _targets(node: ast.stmt) -> set[str]:
    return {name for target in targets_of(node) for name in names_in(target)}


def _makes_of_old(
    value: ast.AST | None, name: str | None, names: Collection[str] = (), readers: Collection[str] = ()
) -> bool:
    """Whether an expression makes something of the old value; a question for None, or for its form, makes nothing.

    Args:
        value: The expression.
        name: The attribute; None for its aliases alone.
        names: Variables that hold it.
        readers: Methods that return it.
    """
    nodes = [value] if value is not None else []
    for node in nodes:
        if name is not None and is_self_attribute(node, name):
            return True
        if isinstance(node, ast.Name) and node.id in names:
            return True
        if isinstance(node, ast.Compare) or (isinstance(node, ast.Attribute) and node.attr in SHAPE - {"item"}):
            continue
        if isinstance(node, ast.Call) and called_name(node) in _LIKE:
            continue
        if isinstance(node, ast.Attribute) and node.attr in readers and is_self(node.value):
            return True
        nodes.extend(child for child in ast.iter_child_nodes(node) if isinstance(child, (ast.expr, ast.keyword)))
    return False


def is_made_by_part(file: str, line: int, name: str, is_module: IsModule) -> bool:
    """Whether what a statement puts into an attribute was made of its old value by a part of the object.

    ``new = self.cell(x, self.state)``: the old value may go through variables, and through methods that return it.
    """
    model = SourceModel.of(file)
    kind = model.class_at(line) if model is not None else None
    methods = {node.name: node for node in kind.body if isinstance(node, FUNCTIONS)} if kind is not None else {}
    method = next((node for node in reversed(methods.values()) if spans(node, line)), None)
    if method is None:
        return False
    returned = [(one, n.value) for one, m in methods.items() for n in ast.walk(m) if isinstance(n, ast.Return)]
    readers = {one for one, value in returned if _makes_of_old(value, name)}
    callers = {
        one for one, m in methods.items() if any(_calls_module(c.func, is_module, deep=False) for c in calls_in(m))
    }
    old: set[str] = set()
    made: set[str] = set()

    def is_made(value: ast.expr) -> bool:
        if _makes_of_old(value, None, made):
            return True
        for call in calls_in(value):
            through = is_self_attribute(call.func) and called_name(call) in callers
            given = any(_makes_of_old(one, name, old, readers) for one in arguments(call))
            if given and (through or _calls_module(call.func, is_module)):
                return True
        return False

    *before, write = steps_up_to(method.body, line)
    for node in (part for statement in before for part in ast.walk(statement) if isinstance(part, ASSIGNMENTS)):
        if node.value is not None and is_made(node.value):
            made |= _targets(node)
        elif node.value is not None and _makes_of_old(node.value, name, old, readers):
            old |= _targets(node)
    if not isinstance(write, ast.Assign):
        return False
    own = any(is_self_attribute(item_base(target), name) for target in flat_targets(write.targets))
    return own and is_made(write.value)


def is_fed_back(source: str | None, is_module: IsModule) -> bool:
    """Whether a statement makes a state from itself by a model: ``memory = model.write(h, memory)``; no running sum.

    Args:
        source: The statement.
        is_module: Whether an expression of the function that runs it is a module.
    """
    node = parse_statement(source)
    if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Call):
        return False
    given = {ast.unparse(part) for part in flat_targets(arguments(node.value))}
    taken = {ast.unparse(part) for part in flat_targets(node.targets)}
    return bool(given & taken) and _calls_module(node.value.func, is_module)


def _calls_module(function: ast.expr, is_module: IsModule, *, deep: bool = True) -> bool:
    """Whether what is called is a module, or a method of one; a method of one's own may be anything."""
    chain = chain_of(function)
    if chain is None or is_self(function):
        return False
    owner = isinstance(function, ast.Attribute) and deep and not is_self(function.value)
    return is_module(chain) or (owner and is_module(chain[:-1]))
