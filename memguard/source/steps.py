"""What a function does from one of its lines on: its statements in the order in which they run. Never run."""

from __future__ import annotations

import ast
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import final

from memguard.source.expressions import FUNCTIONS, LOOPS, block_spans, targets_of

_BRANCHES = (ast.If, ast.Match)
_LEAVES = (ast.Return, ast.Raise)
_ENDS = (*_LEAVES, ast.Continue, ast.Break)
BLOCKS = ("body", "handlers", "cases", "orelse", "finalbody")


@final
@dataclass(frozen=True, slots=True)
class Step:
    """A simple statement, or the head of a compound one: ``for out in outs``, ``with scored(x) as loss``."""

    statement: ast.stmt
    here: bool
    """Whether it lies on the line that was asked for."""
    pairs: list[tuple[list[ast.expr], ast.expr]]
    """Values, and what they are assigned to."""

    @property
    def parts(self) -> Iterator[ast.AST]:
        """Everything in it, without the suites of a compound statement."""
        for targets, value in self.pairs:
            yield from ast.walk(value)
            for target in targets:
                yield from ast.walk(target)


def steps_from(suite: list[ast.stmt], line: int) -> Generator[Step, None, ast.stmt | None]:
    """The statements of a function from a line on; returns what leaves the suite before its end.

    A loop around the line begins its next turn, as a whole, before what follows it; of a condition around the line the
    other branches are left out, of one that follows none is. What follows a ``return`` or a ``continue`` is left out.
    Functions and classes inside are not entered.
    """
    position = next((number for number, one in enumerate(suite) if block_spans([one], line)), None)
    if position is None:
        return None
    statement = suite[position]
    suites = suites_of(statement)
    number = next((number for number, one in enumerate(suites) if block_spans(one, line)), None)
    ended: ast.stmt | None
    if number is None:
        yield _step(statement, line)
        for _ in range(2 if isinstance(statement, LOOPS) else 1):
            yield from _all([inner for one in suites for inner in one], line)
        ended = statement if isinstance(statement, _ENDS) else None
    else:
        ended = yield from steps_from(suites[number], line)
        if not isinstance(ended, _LEAVES) and not isinstance(statement, _BRANCHES):
            if isinstance(statement, LOOPS):
                ended = None
                yield from _all([statement], line)
            else:
                yield from _all([inner for one in suites[number + 1 :] for inner in one], line)
    if ended is not None:
        return ended
    for following in suite[position + 1 :]:
        yield from _all([following], line)
        if isinstance(following, _ENDS):
            return following
    return None


def suites_of(statement: ast.AST) -> list[list[ast.stmt]]:
    """The suites of a statement: none of a simple one."""
    suites: list[list[ast.stmt]] = []
    for name in BLOCKS:
        parts = getattr(statement, name, None)
        if isinstance(parts, list):  # of a lambda, or a conditional expression, it is none
            suites += [part.body for part in parts] if name in ("handlers", "cases") else [parts] if parts else []
    return suites


def _all(suite: Sequence[ast.stmt], line: int) -> Iterator[Step]:
    for statement in suite:
        if not isinstance(statement, (*FUNCTIONS, ast.ClassDef)):
            yield _step(statement, line)
            for inner in suites_of(statement):
                yield from _all(inner, line)


def _step(statement: ast.stmt, line: int) -> Step:
    pairs: list[tuple[list[ast.expr], ast.expr]]
    if isinstance(statement, (ast.With, ast.AsyncWith)):
        pairs = [([item.optional_vars] if item.optional_vars else [], item.context_expr) for item in statement.items]
    elif targets := targets_of(statement):
        value = statement.iter if isinstance(statement, (ast.For, ast.AsyncFor)) else getattr(statement, "value", None)
        pairs = [(targets, value)] if value is not None else []
    else:
        pairs = [([], part) for part in ast.iter_child_nodes(statement) if isinstance(part, ast.expr)]
    for node in [node for _, value in pairs for node in ast.walk(value)]:
        if isinstance(node, ast.NamedExpr):
            pairs.insert(0, ([node.target], node.value))
    first = next(iter(suites_of(statement)), None)
    last = max(statement.lineno, first[0].lineno - 1) if first else statement.end_lineno or statement.lineno
    return Step(statement, statement.lineno <= line <= last, pairs)
