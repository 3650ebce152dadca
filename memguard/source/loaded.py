"""Weights that a variable has from a checkpoint: traced through the source to the call that loaded it."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import final

from memguard.facts import Place
from memguard.source.chains import last_name
from memguard.source.parsing import parse_file

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_PARTS = frozenset({"get", "items", "values", "pop", "copy"})
"""Methods that give what a dict has, or another dict of it."""
_DICTS = frozenset({"dict", "OrderedDict", "list", "iter"})
_LOAD = "load_state_dict"
_HARMLESS = _DICTS | {_LOAD, "len", "print", "sorted", "set", "isinstance", "type"}
"""Calls that keep nothing of what they are given."""
MAX_STEPS = 12


def loaded_by(place: Place, numbers: Collection[str] = ()) -> Place | None:
    """The statement that loaded what the name at a place has; None unless it has that alone, and its time is over.

    That is so where the function gives it to ``load_state_dict`` and nothing reads it from then on.

    Args:
        place: Where the name gets it.
        numbers: Keys under which what it has are numbers and texts: to read an epoch from it is not to read weights.
    """
    tree = parse_file(place.file) if place.file is not None else None
    name = (place.holder or "").partition("[")[0].rpartition(".")[2]
    if tree is None or place.line is None or not name:
        return None
    function, is_attribute = _function_at(tree, place.line), "." in (place.holder or "")
    if not _is_over(tree, function, name, numbers, is_attribute=is_attribute):
        return None
    trace = _Trace(function)
    trace.name(name)
    loading = trace.loading
    if loading is None or trace.failed:
        return None
    text = " ".join(ast.unparse(loading).split())
    holder = place.holder
    names = [target.id for target in loading.targets if isinstance(target, ast.Name)]
    if not is_attribute and names and not _lets_go(function, names[0]):
        holder = names[0]
    return replace(place, line=loading.lineno, holder=holder, source=text)


@final
class _Trace:
    """From a name back to what it was given, in one function."""

    def __init__(self, function: ast.AST) -> None:
        self._function = function
        self._seen: set[str] = set()
        self.loading: ast.Assign | None = None
        """The statement that calls ``load``."""
        self.failed = False
        """Whether something else may be under the name as well."""

    def name(self, name: str) -> None:
        """Goes back from all that a name is given."""
        if name in self._seen:
            return
        self._seen.add(name)
        given = list(_given(self._function, name))
        self.failed = self.failed or not given or len(self._seen) > MAX_STEPS
        for value, statement in given:
            self._value(value, statement)

    def _value(self, value: ast.expr, statement: ast.AST) -> None:
        if isinstance(value, ast.Constant) or (isinstance(value, ast.Dict) and not value.keys):
            return  # it begins empty, or is let go
        if isinstance(value, (ast.Name, ast.Attribute)):
            self.name(last_name(value) or "")
        elif isinstance(value, (ast.Subscript, ast.DictComp)):
            self._value(value.value, statement)
        elif isinstance(value, ast.Call):
            self._call(value, statement)
        else:
            self.failed = True

    def _call(self, call: ast.Call, statement: ast.AST) -> None:
        called = last_name(call.func) or ""
        if called == "load" and isinstance(statement, ast.Assign):
            self.loading = statement
        elif called in _PARTS and isinstance(call.func, ast.Attribute):
            self._value(call.func.value, statement)
        elif called in _DICTS:
            for argument in call.args[:1]:
                self._value(argument, statement)
        else:
            self.failed = True


def _given(function: ast.AST, name: str) -> Iterator[tuple[ast.expr, ast.AST]]:
    """What a name is given, or an element under it, with the statement; of a loop's variable what it goes through."""
    for node in ast.walk(function):
        if isinstance(node, ast.Assign):
            if any(name in _set(target) for target in node.targets):
                yield node.value, node
        elif isinstance(node, ast.AnnAssign):
            if node.value is not None and name in _set(node.target):
                yield node.value, node
        elif isinstance(node, (ast.For, ast.comprehension)) and name in _set(node.target):
            yield node.iter, node


def _set(target: ast.expr) -> set[str]:
    """Names that a target gives a value, or an element."""
    if isinstance(target, ast.Subscript):
        return _set(target.value)
    if isinstance(target, (ast.Tuple, ast.List)):
        return set().union(*(_set(element) for element in target.elts))
    return {last_name(target) or ""}


def _function_at(tree: ast.Module, line: int) -> ast.AST:
    """The innermost function around a line, else the module."""
    found: ast.AST = tree
    for node in ast.walk(tree):  # breadth first: outer before inner
        if isinstance(node, _FUNCTIONS) and node.lineno <= line <= (node.end_lineno or node.lineno):
            found = node
    return found


def _is_over(tree: ast.Module, function: ast.AST, name: str, numbers: Collection[str], *, is_attribute: bool) -> bool:
    """Whether the function gives something to a model, once, and nobody reads the name after that."""
    calls = [node for node in ast.walk(function) if isinstance(node, ast.Call) and last_name(node.func) == _LOAD]
    if not calls:
        return False
    first, last = min(call.lineno for call in calls), max(call.end_lineno or call.lineno for call in calls)
    for node in ast.walk(function):
        if isinstance(node, (ast.For, ast.While)) and node.lineno < first <= (node.end_lineno or first):
            return False  # every turn begins with them
    kind = ast.Attribute if is_attribute else ast.Name
    if any(last_name(value) == name for value in _passed_on(function)):
        return False
    harmless = _reads_of_numbers(tree, numbers)
    scopes: list[ast.AST] = [tree if is_attribute else function]
    while scopes:
        scope = scopes.pop()
        for node in ast.iter_child_nodes(scope):
            if isinstance(node, (*_FUNCTIONS, ast.Lambda)) and not is_attribute and name in _bound(node):
                continue  # a name of its own
            scopes.append(node)
            if not isinstance(node, kind) or last_name(node) != name or not isinstance(node.ctx, ast.Load):
                continue
            if node in harmless:
                continue
            if node.lineno > last or _function_at(tree, node.lineno) is not function:
                return False
    return True


def _reads_of_numbers(tree: ast.Module, numbers: Collection[str]) -> set[ast.AST]:
    """What is read for one of some keys alone: ``checkpoint["epoch"]``, ``checkpoint.get("epoch", 0)``."""
    found: set[ast.AST] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Subscript):
            of, keys = node.value, [node.slice]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "get":
            of, keys = node.func.value, node.args[:1]
        else:
            continue
        if any(isinstance(key, ast.Constant) and key.value in numbers for key in keys):
            found.add(of)
    return found


def _passed_on(function: ast.AST) -> Iterator[ast.expr]:
    """What a function hands to others, who may keep it: arguments of calls, what it returns, what gets another name."""
    for node in ast.walk(function):
        if isinstance(node, ast.Call) and last_name(node.func) not in _HARMLESS:
            yield from node.args
            yield from (keyword.value for keyword in node.keywords)
        elif isinstance(node, (ast.Assign, ast.Return)) and node.value is not None:
            yield node.value


def _bound(function: ast.AST) -> set[str]:
    """Parameters of a function, and names that it sets."""
    names = {node.arg for node in ast.walk(function) if isinstance(node, ast.arg)}
    stored = (n for n in ast.walk(function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store))
    return names | {node.id for node in stored}


def _lets_go(function: ast.AST, name: str) -> bool:
    """Whether the function deletes a name, or gives it None."""
    for node in ast.walk(function):
        nothing = isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and node.value.value is None
        if isinstance(node, ast.Delete) or nothing:
            targets: list[ast.expr] = getattr(node, "targets", [])
            if any(last_name(target) == name for target in targets):
                return True
    return False
