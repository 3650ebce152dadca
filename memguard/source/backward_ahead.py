"""Whether what a statement computes goes into a backward, told from the statements around it. Never run."""

from __future__ import annotations

import ast
import enum
import functools
import os
from typing import final

from memguard.source import plain_uses as uses
from memguard.source.emptied.bounded import around, last_part
from memguard.source.parsing import parse_file
from memguard.source.steps_ahead import Step, steps_from

_EXPRESSIONS: dict[str, type[ast.expr]] = {
    "<lambda>": ast.Lambda,
    "<genexpr>": ast.GeneratorExp,
    "<listcomp>": ast.ListComp,
    "<setcomp>": ast.SetComp,
    "<dictcomp>": ast.DictComp,
}

_VALUES = ("body", "elt", "value")
"""The parts of them that are their values."""


class Fate(enum.Enum):
    """What becomes of a value, as far as one function's source says."""

    BACKWARD = "backward"
    RETURNED = "returned"
    """Or yielded: whoever called the function has it now."""
    STORED = "stored"
    """Where it may go anywhere from: an attribute, a container, a function without a name; or the source is unknown."""
    BOTH = "stored and returned"
    NEITHER = "neither"


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
    tree = parse_file(file)
    if tree is None or not tree.body:
        return Fate.STORED
    engines = uses.engines_of(tree)
    if name in _EXPRESSIONS:
        return _of_expression(tree, line, _EXPRESSIONS[name], engines)
    function, _ = around(tree, line)
    reading = _Reading(function, engines)
    steps = list(steps_from(getattr(function, "body", []), line))
    if any(map(reading.leads_to_backward, steps)):
        return Fate.BACKWARD
    goes_on = function is tree and reading.has_names and not os.path.isfile(file)  # a cell's names are the next one's
    return _fate(stored=reading.stored or not steps or goes_on, returned=reading.returned)


def _fate(*, stored: bool, returned: bool) -> Fate:
    if stored:
        return Fate.BOTH if returned else Fate.STORED
    return Fate.RETURNED if returned else Fate.NEITHER


def _of_expression(tree: ast.Module, line: int, kind: type[ast.expr], engines: frozenset[str]) -> Fate:
    """What an expression that runs as a function of its own does with a value: its own value is returned."""
    found = [node for node in ast.walk(tree) if isinstance(node, kind) and _spans(node, line)]
    bodies: list[ast.expr] = [getattr(node, part) for node in found for part in _VALUES if hasattr(node, part)]
    if any(uses.runs_engine(node, None) for body in bodies for node in ast.walk(body)):
        return Fate.BACKWARD
    stored = any(uses.given_away(body, uses.computes, (), engines) for body in bodies)
    return _fate(stored=stored, returned=not bodies or any(map(uses.goes_through, bodies)))


def _spans(node: ast.expr, line: int) -> bool:
    return node.lineno <= line <= (node.end_lineno or node.lineno)


@final
class _Reading:
    """Which names have the value, while the statements of a function are read one after another."""

    def __init__(self, function: ast.AST, engines: frozenset[str]) -> None:
        self._names: set[str] = set()
        self._engines = engines
        self._captors = list(uses.captors_of(function))
        lent = (node.names for node in ast.walk(function) if isinstance(node, (ast.Global, ast.Nonlocal)))
        self._lent = {name for names in lent for name in names}
        self.stored = self.returned = False

    def leads_to_backward(self, step: Step) -> bool:
        """Reads the next statement; whether it hands the value to the engine."""
        names = None if step.here else self._names
        if any(uses.runs_engine(node, names) for node in step.parts):
            return True
        before = frozenset(self._names)
        for targets, value in step.pairs:
            self._read(step, targets, value)
        return any(self._captured(name) for name in self._names - before)

    @property
    def has_names(self) -> bool:
        """Whether names have the value in the end."""
        return bool(self._names)

    def _has(self, part: ast.AST, *, here: bool) -> bool:
        return uses.mentions(part, self._names) or (here and uses.computes(part))

    def _read(self, step: Step, targets: list[ast.expr], value: ast.expr) -> None:
        has = functools.partial(self._has, here=step.here)
        statement, within = step.statement, list(ast.walk(value))
        goes_on = uses.goes_through(value) if step.here else uses.mentions(value, self._names)
        yields = any(isinstance(node, (ast.Yield, ast.YieldFrom)) for node in within)
        self.returned |= goes_on and (yields or isinstance(statement, ast.Return))
        self.stored |= uses.given_away(value, has, self._names, self._engines)
        self.stored |= isinstance(statement, ast.Expr) and uses.hands_on(value, has, self._names)
        self._names |= {name for node in within if (name := _filled(node, has)) is not None}
        kept = [node for target in targets for node in ast.walk(target) if _has_context(node, ast.Store)]
        assigned = {name for node in kept if (name := last_part(node)) is not None}
        if goes_on:
            self.stored |= any(isinstance(node, (ast.Attribute, ast.Subscript)) for node in kept)
            self.stored |= not self._lent.isdisjoint(assigned)
            self._names |= assigned
        elif not isinstance(statement, ast.AugAssign):
            self._names -= assigned
        self._names -= {node.id for node in within if isinstance(node, ast.Name) and _has_context(node, ast.Del)}

    def _captured(self, name: str) -> bool:
        """Whether a function inside takes a name to the engine; any that reads it may be called anywhere."""
        readers = [node for node, names in self._captors if name in names]
        self.stored = self.stored or bool(readers)
        return any(uses.runs_engine(node, {name}) for reader in readers for node in ast.walk(reader))


def _has_context(node: ast.AST, kind: type[ast.expr_context]) -> bool:
    return isinstance(getattr(node, "ctx", None), kind)


def _filled(node: ast.AST, has: functools.partial[bool]) -> str | None:
    """The name of the container that a call adds the value to."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or node.func.attr not in uses.ADDS:
        return None
    return last_part(node.func.value) if any(map(has, uses.given(node))) else None
