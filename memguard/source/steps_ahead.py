"""What a function does from one of its lines on: its statements in the order in which they run. Never run."""

from __future__ import annotations

import ast
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import final

from memguard.source.emptied.bounded import FUNCTIONS

_LOOPS = (ast.For, ast.AsyncFor, ast.While)
_BRANCHES = (ast.If, ast.Match)
_LEAVES = (ast.Return, ast.Raise)
_ENDS = (*_LEAVES, ast.Continue, ast.Break)


@final
@dataclass(frozen=True, slots=True)
class Step:
    """A simple statement, or the head of a compound one: ``for out in outs``, ``with scored(x) as loss``."""

    statement: ast.stmt
    here: bool
    """Whether it stands on the line that was asked for."""
    pairs: list[tuple[list[ast.expr], ast.expr]]
    """Values, and what they are assigned to."""

    @property
    def parts(self) -> Iterator[ast.AST]:
        """Everything in it, without the suites of a compound statement."""
        for targets, value in self.pairs:
            yield from ast.walk(value)
            for target in targets:
                yield from ast.walk(target)


def steps_from(suite: Sequence[ast.stmt], line: int) -> Iterator[Step]:
    """The statements of a function from a line on.

    A loop around the line begins its next turn, as a whole, before what follows it; of a condition around the line the
    other branches are left out, of one that follows none is. What follows a ``return`` or a ``continue`` is left out.
    Functions and classes inside are not entered.
    """
    yield from _from(suite, line)


def _from(suite: Sequence[ast.stmt], line: int) -> Generator[Step, None, ast.stmt | None]:
    """The statements of a suite from a line on; returns what leaves the suite before its end."""
    position = next((number for number, one in enumerate(suite) if _spans([one], line)), None)
    if position is None:
        return None
    statement = suite[position]
    suites = list(_inner(statement))
    number = next((number for number, one in enumerate(suites) if _spans(one, line)), None)
    ended: ast.stmt | None
    if number is None:
        yield _step(statement, line)
        for _ in range(2 if isinstance(statement, _LOOPS) else 1):
            yield from _all(line, [inner for one in suites for inner in one])
        ended = statement if isinstance(statement, _ENDS) else None
    else:
        ended = yield from _from(suites[number], line)
        if not isinstance(ended, _LEAVES) and not isinstance(statement, _BRANCHES):
            if isinstance(statement, _LOOPS):
                ended = None
                yield from _all(line, [statement])
            else:
                yield from _all(line, [inner for one in suites[number + 1 :] for inner in one])
    if ended is not None:
        return ended
    for following in suite[position + 1 :]:
        yield from _all(line, [following])
        if isinstance(following, _ENDS):
            return following
    return None


def _spans(suite: Sequence[ast.stmt], line: int) -> bool:
    return suite[0].lineno <= line <= (suite[-1].end_lineno or suite[-1].lineno)


def _all(line: int, suite: Sequence[ast.stmt]) -> Iterator[Step]:
    for statement in suite:
        if isinstance(statement, (*FUNCTIONS, ast.ClassDef)):
            continue
        yield _step(statement, line)
        for inner in _inner(statement):
            yield from _all(line, inner)


def _inner(statement: ast.stmt) -> Iterator[list[ast.stmt]]:
    """The suites of a statement: none of a simple one."""
    for name in ("body", "handlers", "cases", "orelse", "finalbody"):
        parts = getattr(statement, name, [])
        if name in ("handlers", "cases"):
            yield from (part.body for part in parts)
        elif parts:
            yield parts


def _step(statement: ast.stmt, line: int) -> Step:
    pairs: list[tuple[list[ast.expr], ast.expr]]
    if isinstance(statement, ast.Assign):
        pairs = [(statement.targets, statement.value)]
    elif isinstance(statement, (ast.AugAssign, ast.AnnAssign)):
        pairs = [([statement.target], statement.value)] if statement.value is not None else []
    elif isinstance(statement, (ast.For, ast.AsyncFor)):
        pairs = [([statement.target], statement.iter)]
    elif isinstance(statement, (ast.With, ast.AsyncWith)):
        pairs = [([item.optional_vars] if item.optional_vars else [], item.context_expr) for item in statement.items]
    else:
        pairs = [([], part) for part in ast.iter_child_nodes(statement) if isinstance(part, ast.expr)]
    for node in [node for _, value in pairs for node in ast.walk(value)]:
        if isinstance(node, ast.NamedExpr):
            pairs.insert(0, ([node.target], node.value))
    first = next(_inner(statement), None)
    last = max(statement.lineno, first[0].lineno - 1) if first else statement.end_lineno or statement.lineno
    return Step(statement, statement.lineno <= line <= last, pairs)
