"""Where a name is emptied, rebuilt or measured."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from memguard.source.expressions import (
    FUNCTIONS,
    assigned_pairs,
    assigns,
    called_name,
    calls_in,
    flat_targets,
    last_part,
    method_base,
    parts_of_loop,
    spans,
    targets_of,
)
from memguard.source.model import SourceModel
from memguard.source.vocabulary import REMOVES


def is_reset_by_base(model: SourceModel, owner: str) -> bool:
    """Whether ``reset()`` is called on an object of a class that has that method from a base: a library's metric."""
    kind = next((node for node in model.all_of(ast.ClassDef) if node.name == owner), None)
    if kind is None or not kind.bases or any(isinstance(n, FUNCTIONS) and n.name == "reset" for n in kind.body):
        return False
    return is_called_on(model, owner, "reset")


def is_called_on(model: SourceModel, owner: str, method: str) -> bool:
    """Whether a method is called on what may be an object of a class."""
    pairs = [pair for node in model.all_of(ast.Assign, ast.AnnAssign) for pair in assigned_pairs(node)]
    made = {last_part(target): called_name(value) for target, value in pairs if isinstance(value, ast.Call)}
    calls = (node.func for node in model.all_of(ast.Call) if isinstance(node.func, ast.Attribute))
    return any(call.attr == method and made.get(last_part(call.value), owner) == owner for call in calls)


# One statement


def begins_anew(node: ast.AST, name: str) -> bool:
    """Whether a statement gives a name something else: not ``self.bank = torch.cat([self.bank, z])``."""
    value: ast.expr | None = getattr(node, "value", None)
    return assigns(node, name) and value is not None and not any(last_part(part) == name for part in ast.walk(value))


def begins_attribute(scope: ast.AST, name: str) -> bool:
    """Whether a method begins an attribute (or a global) anew, other than where it is filled for the first time."""
    if not isinstance(scope, FUNCTIONS) or scope.name == "__init__":
        return False
    inside = list(ast.walk(scope))
    firsts = [node for node in inside if isinstance(node, ast.If) and _is_unset(node.test, name)]
    first = {id(part) for node in firsts for statement in node.body for part in ast.walk(statement)}
    anew = [node for node in inside if begins_anew(node, name) and id(node) not in first]
    if not anew:
        return False
    parts = [part for node in anew for part in flat_targets(targets_of(node))]
    shared = any(isinstance(node, ast.Global) and name in node.names for node in inside)
    return shared or any(isinstance(part, ast.Attribute) and part.attr == name for part in parts)


def _is_unset(test: ast.expr, name: str) -> bool:
    if isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.Is):
        return last_part(test.left) == name and isinstance(test.comparators[0], ast.Constant)
    return isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not) and last_part(test.operand) == name


def removes(node: ast.AST, name: str, attribute: bool) -> bool:
    """Whether a node takes something out of what a name holds, or limits it.

    Args:
        node: Any part of the source.
        name: The last part of the name.
        attribute: Whether it is an object's. A variable of that name is another one: ``del images`` empties no
            ``self.images``, and ``images = images[:8]`` does not cut it.
    """
    if isinstance(node, ast.Call):
        return called_name(node) in REMOVES and (base := method_base(node)) is not None and last_part(base) == name
    if isinstance(node, ast.Delete):
        return any(last_part(one) == name and not (attribute and isinstance(one, ast.Name)) for one in node.targets)
    if not isinstance(node, (ast.Assign, ast.AnnAssign)) or not assigns(node, name):
        return False
    return any(last_part(one) == name and _limits(value, name, attribute) for one, value in assigned_pairs(node))


def removals_by_alias(model: SourceModel, name: str) -> set[int]:
    """The ids of calls that empty what a name holds, or its elements, by a variable.

    ``for values in self.outputs.values(): values.clear()``. One that pops a field of a record leaves the record.
    """
    found: set[int] = set()
    for call in model.all_of(ast.Call):
        base = method_base(call)
        if called_name(call) not in REMOVES or not isinstance(base, ast.Name) or base.id == name:
            continue
        if call.args and isinstance(call.args[0], ast.Constant) and isinstance(call.args[0].value, str):
            continue
        if any(_holds_elements(value, name) for value in _values_of(model.function_at(call.lineno), base.id)):
            found.add(id(call))
    return found


def _values_of(function: ast.AST, variable: str) -> Iterator[ast.expr]:
    """What a function gives a variable: in an assignment, or as what a loop runs over, a copy of it perhaps."""
    for node in ast.walk(function):
        if isinstance(node, (ast.For, ast.AsyncFor, ast.comprehension)):
            over = node.iter
            if isinstance(over, ast.Call) and called_name(over) in ("list", "tuple") and over.args:
                over = over.args[0]
            if isinstance(over, (ast.Tuple, ast.List)):  # one list after the other
                pairs = [(node.target, element) for element in over.elts]
            else:
                pairs = list(parts_of_loop(node.target, over))
        else:
            pairs = assigned_pairs(node)
        yield from (value for target, value in pairs if isinstance(target, ast.Name) and target.id == variable)


def _holds_elements(value: ast.expr, name: str) -> bool:
    """Whether a value is what a name holds, or an element of it."""
    base = method_base(value) if called_name(value) in ("get", "setdefault") else None
    return last_part(value if base is None else base) == name


def _limits(value: ast.expr, name: str, attribute: bool) -> bool:
    """Whether a value has a limit of its own: a deque's maxlen, a slice of what was there."""
    if isinstance(value, ast.Call):
        bounded = any(keyword.arg == "maxlen" for keyword in value.keywords)
        return bounded or (called_name(value) == "deque" and len(value.args) > 1)  # deque([], 1000)
    if not isinstance(value, ast.Subscript) or (attribute and isinstance(value.value, ast.Name)):
        return False
    return last_part(value.value) == name  # x = x[-k:]


def measured(node: ast.expr | None) -> ast.expr | None:
    """What ``len`` is asked of."""
    return node.args[0] if isinstance(node, ast.Call) and called_name(node) == "len" and node.args else None


def is_measured(node: ast.AST, name: str) -> bool:
    """Whether the length of a name is compared with something."""
    if not isinstance(node, ast.Compare):
        return False
    return any(last_part(measured(side)) == name for side in (node.left, *node.comparators))


def is_comprehension(node: ast.AST, name: str, line: int) -> bool:
    """Whether a statement on a line gives a name what a comprehension collects, and nothing of what was there."""
    if not isinstance(node, (ast.Assign, ast.AnnAssign)) or not spans(node, line) or not assigns(node, name):
        return False
    return isinstance(node.value, (ast.ListComp, ast.DictComp, ast.SetComp))


def is_counted(model: SourceModel, line: int) -> bool:
    """Whether a line counts what it keeps, up to a number: ``if self.count < self.size: self.count += 1``."""
    for node in model.all_of(ast.If):
        if not node.body[0].lineno <= line <= (node.body[-1].end_lineno or 0):
            continue
        tests = [test for test in ast.walk(node.test) if isinstance(test, ast.Compare)]
        counters = {last_part(test.left) for test in tests if isinstance(test.ops[0], (ast.Lt, ast.LtE))}
        counters |= {last_part(test.comparators[-1]) for test in tests if isinstance(test.ops[-1], (ast.Gt, ast.GtE))}
        counted = {_counted_up(part) for statement in node.body for part in ast.walk(statement)}
        if (counters & counted) - {None} and not trains(node.body):
            return True  # one that trains counts its steps
    return False


def _counted_up(node: ast.AST) -> str | None:
    """What a statement adds to: ``self.count += 1``, ``self.count = self.count + 1``."""
    if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add):
        return last_part(node.target)
    if isinstance(node, ast.Assign) and isinstance(node.value, ast.BinOp) and isinstance(node.value.op, ast.Add):
        name = last_part(node.targets[0])
        return name if name in (last_part(node.value.left), last_part(node.value.right)) else None
    return None


def asks_first(function: ast.AST, line: int) -> bool:
    """Whether a function stores under a key, and looks for the key beforehand: ``if key not in self.cache: ...``.

    By the name that the statement itself uses, which may be a parameter or another name of what it fills.
    """
    stored: set[str | None] = set()
    asked: set[str | None] = set()
    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and spans(node, line):
            stored |= {last_part(target.value) for target in node.targets if isinstance(target, ast.Subscript)}
        elif getattr(node, "lineno", line + 1) <= line:
            asked.add(_asked(node))
    return bool((stored & asked) - {None})


def _asked(node: ast.AST) -> str | None:
    """Whose keys are asked for: ``key in cache``, ``cache.get(key)``, ``cache[key]`` where KeyError is caught."""
    if isinstance(node, ast.Compare) and isinstance(node.ops[0], (ast.In, ast.NotIn)):
        return last_part(method_base(node.comparators[0]) or node.comparators[0])
    if isinstance(node, ast.Call) and called_name(node) == "get":
        return last_part(method_base(node))
    if isinstance(node, ast.Try) and any(last_part(handler.type) == "KeyError" for handler in node.handlers):
        reads = (part for one in node.body for part in ast.walk(one) if isinstance(part, ast.Subscript))
        return next((last_part(part.value) for part in reads), None)
    return None


# Loops and functions


def trains(nodes: Iterable[ast.AST], model: SourceModel | None = None, *, depth: int = 3) -> bool:
    """Whether a loop trains, as one does that lets an agent act and learn.

    Args:
        nodes: The loop.
        model: The file in which functions that it calls are read too, for folds, searches and rounds.
        depth: How many calls below each other.
    """
    calls = list(calls_in(*nodes))
    if any(method_base(call) is not None and called_name(call) == "backward" for call in calls):
        return True
    names = {last_part(call.func) for call in calls} if model is not None and depth else set()
    called = [function for function in model.functions if function.name in names] if model is not None and names else []
    return any(trains(function.body, model, depth=depth - 1) for function in called)


def runs_once(model: SourceModel, function: ast.AST, *, depth: int = 3) -> bool:
    """Whether a function is called at one place, and neither that place nor what leads to it lies in a loop."""
    if not isinstance(function, FUNCTIONS) or not depth:
        return function is model.tree
    calls = [node for node in model.all_of(ast.Call) if last_part(node.func) == function.name]
    if len(calls) != 1:
        return False
    caller, loops = model.around(calls[0].lineno)
    return not loops and caller is not function and runs_once(model, caller, depth=depth - 1)
