"""What running functions are for, by names: whether they can come to a backward, and whether they say they evaluate."""

from __future__ import annotations

import ast
import dis
import functools
import linecache
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import CodeType

from memguard.source.model import SourceModel
from memguard.source.vocabulary import STAGES

_ENGINE = frozenset({"backward", "manual_backward", "autograd", "grad", "grad_and_value", "value_and_grad", "vjp"})
_JUMPS = frozenset({*dis.hasjrel, *dis.hasjabs})
MOST_LINES = 20_000
"""Of all files together; of a larger program nothing is said."""


def may_train(running: Iterable[tuple[CodeType, int]], files: Iterable[str]) -> bool:
    """Whether any function that the running ones may still call names PyTorch's engine; True where that is not known.

    A name counts as every function of that name: it finds too many rather than too few.

    Args:
        running: The code of each running function, and the offset of the instruction that runs (`f_lasti`).
        files: The program's.
    """
    functions: dict[str, list[CodeType]] = {}
    lines = 0
    for file in files:
        text = linecache.getlines(file)
        lines += len(text)
        if (not text and not _is_empty(file)) or lines > MOST_LINES:
            return True
        try:
            module = compile("".join(text), file, "exec", dont_inherit=True)
        except (SyntaxError, ValueError):
            return True
        for code in _functions_in(module):
            functions.setdefault(code.co_name, []).append(code)
    waiting, seen = [_names_ahead(code, offset) for code, offset in running], set[str]()
    while waiting:
        names = waiting.pop()
        if not _ENGINE.isdisjoint(names):
            return True
        for name in names - seen:
            seen.add(name)
            waiting += map(_names_in, functions.get(name, ()))
    return False


def _names_ahead(code: CodeType, offset: int) -> set[str]:
    """What a running function names in what it has not run yet: from the outermost loop around it to its end."""
    steps = list(dis.get_instructions(code))
    jumps = [(step.offset, step.argval) for step in steps if step.opcode in _JUMPS and step.argval < step.offset]
    for after, target in sorted(jumps, reverse=True):
        if target <= offset <= after:
            offset = target
    names = {step.argval for step in steps if step.offset >= offset and isinstance(step.argval, str)}
    return names | _names_inside(code)


def _is_empty(file: str) -> bool:
    """Whether a file has no text at all, as an ``__init__.py`` may."""
    path = Path(file)
    return path.is_file() and path.stat().st_size == 0


def _functions_in(code: CodeType) -> Iterator[CodeType]:
    """The functions that a module or class defines, and those inside of them; of a class, its name stands for all."""
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield inner
            yield from _functions_in(inner)


def _names_in(code: CodeType) -> set[str]:
    """What a function names, with its lambdas and comprehensions; a class that is named runs any of its methods."""
    return {*code.co_names, *code.co_freevars, *code.co_cellvars, *code.co_varnames} | _names_inside(code)


def _names_inside(code: CodeType) -> set[str]:
    """What its lambdas and comprehensions name; those of a module are functions, each of a name."""
    inside = [inner for inner in code.co_consts if isinstance(inner, CodeType) and code.co_name != "<module>"]
    return set().union(*map(_names_in, inside))


@functools.lru_cache(maxsize=1024)
def is_evaluation(file: str, first: int, function: str, line: int) -> bool:
    """Whether a function's name, or what a loop around a line in it goes over, speaks of evaluation."""
    if function != "<module>" and _speaks_of_evaluation(function):
        return True
    model = SourceModel.of(file)
    if model is None:
        return False
    loops = model.loops_in(model.tree, line)
    over = [loop.iter for loop in loops if isinstance(loop, ast.For | ast.AsyncFor)]
    return any(
        _speaks_of_evaluation(name)
        for loop in over
        if function == "<module>" or loop.lineno >= first
        for node in ast.walk(loop)
        for name in (getattr(node, "id", ""), getattr(node, "attr", ""))
    )


def _speaks_of_evaluation(name: str) -> bool:
    return any(part in name.lower() for part in _EVALUATES)


_EVALUATES = (*STAGES, "val_", "_val", "dev_", "score", "metric", "accuracy")
