"""What becomes of a value until its function ends: reaches a backward, or leaves the function."""

from __future__ import annotations

import ast
import enum
import functools
import os
from collections.abc import Callable, Collection, Iterator
from types import CodeType
from typing import final

from memguard.source.expressions import (
    FUNCTIONS,
    arguments,
    assigned_pairs,
    called_name,
    calls_in,
    is_backward,
    is_of_self,
    last_part,
    method_base,
    names_in,
    spans,
)
from memguard.source.model import SourceModel
from memguard.source.steps import Step, steps_from
from memguard.source.values import computes, has_graph_of, passes_graph, reads_graph
from memguard.source.vocabulary import ACTS, ADDS, BACKWARD, CONTAINERS, LIBRARIES, SHOWS

_EXPRESSIONS: dict[str, type[ast.expr]] = {
    "<lambda>": ast.Lambda,
    "<genexpr>": ast.GeneratorExp,
    "<listcomp>": ast.ListComp,
    "<setcomp>": ast.SetComp,
    "<dictcomp>": ast.DictComp,
}
_VALUES = ("body", "elt", "value")
"""The parts of them that are their values."""
_JUDGES = ("loss", "entropy", "criterion", "nll")
"""Parts of the names of calls that judge an answer."""


class Fate(enum.Enum):
    """What becomes of a value, as far as one function's source says."""

    BACKWARD = "backward"
    RETURNED = "returned"
    """Or yielded: whatever called the function has it now."""
    ESCAPES = "escapes"
    """Where it may go anywhere from: an attribute, a container, a function without a name; or the source is unknown."""
    ESCAPES_AND_RETURNED = "escapes and returned"
    UNUSED = "unused"


@functools.lru_cache(maxsize=1024)
def fate_of(file: str, line: int, name: str = "") -> Fate:
    """What becomes of the values that the statement on a line computes, until its function ends.

    Names are followed from assignment to assignment. ``logits = model(x)``, ``loss = ce(logits, y)``,
    ``loss.backward()`` is a backward; so is ``loss_of(x).backward()``, and ``for out in outputs(): out.backward()``.

    Args:
        file: A source file.
        line: A line of a statement in it.
        name: The name of the code that runs there: ``<lambda>`` and the like return the value of an expression.
    """
    model = SourceModel.of(file)
    if not model.tree.body:
        return Fate.ESCAPES
    engines = _engines_of(model)
    if name in _EXPRESSIONS:
        return _of_expression(model, line, _EXPRESSIONS[name], engines)
    function = model.function_at(line)
    values = _Values(function, engines)
    steps = list(steps_from(function.body, line))
    if any(map(values.lead_to_backward, steps)):
        return Fate.BACKWARD
    goes_on = function is model.tree and bool(values.names) and not os.path.isfile(file)  # a cell's are the next one's
    return _fate(escapes=values.escape or not steps or goes_on, returned=values.returned)


def _fate(*, escapes: bool, returned: bool) -> Fate:
    if escapes:
        return Fate.ESCAPES_AND_RETURNED if returned else Fate.ESCAPES
    return Fate.RETURNED if returned else Fate.UNUSED


def _of_expression(model: SourceModel, line: int, kind: type[ast.expr], engines: frozenset[str]) -> Fate:
    """What an expression that runs as a function of its own does with a value: its own value is returned."""
    found = [node for node in model.all_of(kind) if spans(node, line)]
    bodies: list[ast.expr] = [getattr(node, part) for node in found for part in _VALUES if hasattr(node, part)]
    if any(_differentiates(node, None) for body in bodies for node in ast.walk(body)):
        return Fate.BACKWARD
    escapes = any(_is_given_away(body, computes, (), engines) for body in bodies)
    return _fate(escapes=escapes, returned=not bodies or any(map(passes_graph, bodies)))


@final
class _Values:
    """Which names have the value, while the statements of a function are read one after another."""

    def __init__(self, function: ast.AST, engines: frozenset[str]) -> None:
        self.names: set[str] = set()
        self._engines = engines
        self._captors = list(_captors_of(function))
        self._shared = _declared(function)
        nodes = list(ast.walk(function))
        self._collections = {name for one in nodes for name in _new_collections(one)} - self._shared
        self._collections.difference_update(name for one in nodes for name in _given_names(one))
        """Variables that begin as an empty list or the like, and that nothing else keeps: what is added to one is added
        to it alone."""
        self.escape = self.returned = False

    def lead_to_backward(self, step: Step) -> bool:
        """Reads the next statement; whether it hands the value to the engine."""
        names = None if step.here else self.names
        if any(_differentiates(node, names) for node in step.parts):
            return True
        before = frozenset(self.names)
        for targets, value in step.pairs:
            self._read(step, targets, value)
        return any(self._is_captured(name) for name in self.names - before)

    def _read(self, step: Step, targets: list[ast.expr], value: ast.expr) -> None:
        def has(part: ast.AST) -> bool:
            return reads_graph(part, self.names) or (step.here and computes(part))

        statement, within = step.statement, list(ast.walk(value))
        goes_on = passes_graph(value) if step.here else reads_graph(value, self.names)
        yields = any(isinstance(node, (ast.Yield, ast.YieldFrom)) for node in within)
        self.returned |= goes_on and (yields or isinstance(statement, ast.Return))
        self.escape |= _is_given_away(value, has, self.names, self._engines)
        self.names |= {name for node in within if (name := _filled(node, has)) is not None}
        base = method_base(value)
        # What goes there at once is kept by the list; what has a name of its own is followed by both.
        collects = (
            not step.here and isinstance(base, ast.Name) and base.id in self._collections and called_name(value) in ADDS
        )
        self.escape |= isinstance(statement, ast.Expr) and not collects and _passes_on(value, has, self.names)
        kept = [node for target in targets for node in ast.walk(target) if _has_context(node, ast.Store)]
        assigned = {name for node in kept if (name := last_part(node)) is not None}
        if goes_on:
            self.escape |= any(isinstance(node, (ast.Attribute, ast.Subscript)) for node in kept)
            self.escape |= not self._shared.isdisjoint(assigned)
            self.names |= assigned
        elif not isinstance(statement, ast.AugAssign):
            self.names -= assigned
        self.names -= {node.id for node in within if isinstance(node, ast.Name) and _has_context(node, ast.Del)}

    def _is_captured(self, name: str) -> bool:
        """Whether a function inside takes a name to the engine; any that reads it may be called anywhere."""
        readers = [node for node, names in self._captors if name in names]
        self.escape = self.escape or bool(readers)
        return any(_differentiates(node, {name}) for reader in readers for node in ast.walk(reader))


def _new_collections(node: ast.AST) -> Iterator[str]:
    """The variables to which an assignment gives an empty list or dict, or one that is made on the spot."""
    for target, value in assigned_pairs(node):
        displays = isinstance(value, (ast.List, ast.Dict)) or called_name(value) in CONTAINERS
        if isinstance(target, ast.Name) and displays:
            yield target.id


def _given_names(node: ast.AST) -> Iterator[str]:
    """The variables that a statement gives another holder: ``state["losses"] = losses``, ``Tracker(losses)``."""
    for _, value in assigned_pairs(node):
        parts = ast.walk(value) if isinstance(value, (ast.Dict, ast.List, ast.Tuple, ast.Set)) else (value,)
        yield from (part.id for part in parts if isinstance(part, ast.Name))
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and not _only_shows(node.value):
        yield from (part.id for part in arguments(node.value) if isinstance(part, ast.Name))
    elif isinstance(node, ast.Call) and (called_name(node) or "").lstrip("_")[:1].isupper():
        yield from (part.id for part in arguments(node) if isinstance(part, ast.Name))


def _has_context(node: ast.AST, kind: type[ast.expr_context]) -> bool:
    return isinstance(getattr(node, "ctx", None), kind)


def _filled(node: ast.AST, has: Callable[[ast.AST], bool]) -> str | None:
    """The name of the container that a call adds the value to."""
    base = method_base(node)
    if base is None or not isinstance(node, ast.Call) or last_part(node.func) not in ADDS:
        return None
    return last_part(base) if any(map(has, arguments(node))) else None


def _differentiates(node: ast.AST, names: Collection[str] | None) -> bool:
    """Whether a node calls the engine, with one of some names in it; None is any."""
    if not isinstance(node, ast.Call) or last_part(node.func) not in BACKWARD:
        return False
    return names is None or reads_graph(node, names)


def _is_given_away(
    value: ast.expr, has: Callable[[ast.AST], bool], names: Collection[str], engines: frozenset[str]
) -> bool:
    """Whether an expression hands a value to something other than a function with a name, or calls it.

    ``handlers["bw"](loss)`` and ``make(loss)(x)`` may do anything; ``ce(out, y)`` and ``nn.MSELoss()(out, y)`` answer
    with another value.

    Args:
        value: The expression.
        has: Whether a part of it is, or holds, the value in question.
        names: The names that hold it.
        engines: Functions of the same file that differentiate.
    """
    for call in calls_in(value):
        function = call.func
        if isinstance(function, ast.Name) and function.id in names:
            return True
        is_named = isinstance(function, (ast.Name, ast.Attribute)) or _makes_object(function)
        odd = last_part(function) in engines or not is_named
        if odd and (any(map(has, arguments(call))) or reads_graph(function, names)):
            return True
    return False


def _makes_object(function: ast.expr) -> bool:
    """Whether a call's function is made on the spot from a class: ``nn.MSELoss()``."""
    name = last_part(function.func) if isinstance(function, ast.Call) else None
    return name is not None and name.lstrip("_")[:1].isupper()


def _passes_on(value: ast.expr, has: Callable[[ast.AST], bool], names: Collection[str]) -> bool:
    """Whether a statement is but a call that gets the value, and none that only shows or measures it."""
    call = value.value if isinstance(value, ast.Await) else value
    if not isinstance(call, ast.Call) or _only_shows(call):
        return False
    inner = [part for node in calls_in(call.func) for part in arguments(node)]
    return any(map(has, [*arguments(call), *inner])) or reads_graph(call.func, names)


def _only_shows(call: ast.Call) -> bool:
    """Whether a call shows, measures or writes what it gets."""
    name = last_part(call.func)
    if name == "update":  # a metric's; a dict's gets a dict or keywords
        return bool(call.args) and not isinstance(call.args[0], ast.Dict)
    base = call.func
    while isinstance(base, ast.Attribute):
        base = base.value
    is_librarys = base is not call.func and isinstance(base, ast.Name) and base.id in LIBRARIES
    return is_librarys or (name is not None and (name in SHOWS or name.startswith("assert")))


def _engines_of(model: SourceModel) -> frozenset[str]:
    """The names of the functions in a file that call the engine."""
    functions = model.functions
    return frozenset(one.name for one in functions if any(_differentiates(node, None) for node in ast.walk(one)))


def _captors_of(function: ast.AST) -> Iterator[tuple[ast.AST, frozenset[str]]]:
    """The functions inside a function (or module), with the names of its that they read."""
    for node in ast.walk(function):
        if node is not function and isinstance(node, (*FUNCTIONS, ast.Lambda)):
            names = [one for one in ast.walk(node) if isinstance(one, ast.Name)]
            own = {one.arg for one in ast.walk(node) if isinstance(one, ast.arg)}
            own |= {one.id for one in names if not isinstance(one.ctx, ast.Load)} - _declared(node)
            yield node, frozenset({one.id for one in names if isinstance(one.ctx, ast.Load)} - own)


def _declared(function: ast.AST) -> set[str]:
    """Names that a function declares global or nonlocal."""
    declared = (node.names for node in ast.walk(function) if isinstance(node, (ast.Global, ast.Nonlocal)))
    return {name for names in declared for name in names}


# Functions that ask a model


@functools.lru_cache(maxsize=1024)
def keeps_graph(code: CodeType, line: int) -> bool:
    """Whether the graph of what is called on a line neither leaves the function nor meets a backward in it.

    It is not returned, yielded, put under an attribute or into what the function was given; at most it is added up.
    """
    model = SourceModel.of(code.co_filename)
    if fate_of(code.co_filename, line, code.co_name) is not Fate.UNUSED:
        return False
    function, loops = model.around(line)
    backwards = [call.lineno for call in calls_in(model.tree) if is_backward(call)] if function is model.tree else []
    # Of a script, one may come to the graph by an attribute, further down or in the loop's next turn.
    return not any(at > line or (loops and spans(loops[-1], at)) for at in backwards)


@functools.lru_cache(maxsize=1024)
def answers(code: CodeType, line: int, *, strict: bool) -> bool:
    """Whether what is called on a line of a function is what it returns.

    Args:
        code: The function.
        line: The line.
        strict: As it is; else what is made from it with its graph counts as well.
    """
    scope = SourceModel.of(code.co_filename).scope_of(code.co_firstlineno, code.co_name)
    called = [called_name(call.node) for call in scope.calls] if scope is not None else []
    if scope is None or any(name in ACTS or any(word in name for word in _JUDGES) for name in called):
        return False
    for returned in scope.returns:
        if spans(returned, line):
            return has_graph_of(returned, scope, (), line) and (not strict or _is_one_call(returned))
    stored = [store for store in scope.stores if store.line <= line <= store.end_line and not store.from_loop]
    if strict:
        calls = [s for s in stored if _is_one_call(s.value) and has_graph_of(s.value, scope, (), line)]
        plain = {store.target.id for store in calls if isinstance(store.target, ast.Name)}
        plain.difference_update(name for store in scope.stores if store.line > line for name in names_in(store.target))
        return bool(scope.returns) and all(isinstance(one, ast.Name) and one.id in plain for one in scope.returns)
    held: set[str] = set()
    for store in sorted(scope.stores, key=lambda store: store.line):
        if (store in stored or store.line >= line) and has_graph_of(store.value, scope, held, line):
            held.update(names_in(store.target))
    return any(has_graph_of(returned, scope, held) for returned in scope.returns)


def _is_one_call(value: ast.expr) -> bool:
    """Whether an expression is one call of a part of ``self``, or what is picked out of its answer."""
    calls = [call for call in calls_in(value) if is_of_self(call.func)]
    while value not in calls and isinstance(value, (ast.Call, ast.Attribute, ast.Subscript)):
        value = value.func if isinstance(value, ast.Call) else value.value
    return calls == [value]
