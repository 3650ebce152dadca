"""What running functions are for, by names: whether they can come to a backward, and whether they say they evaluate."""

from __future__ import annotations

import ast
import functools
import linecache
from collections.abc import Iterable, Iterator
from types import CodeType

from memguard.source.model import SourceModel
from memguard.source.vocabulary import STAGES

_ENGINE = frozenset({"backward", "manual_backward", "autograd", "grad", "grad_and_value", "value_and_grad", "vjp"})
MOST_LINES = 20_000
"""Of all files together; of a larger program nothing is said."""


def may_train(running: Iterable[CodeType], files: Iterable[str]) -> bool:
    """Whether any function that the running ones may call names PyTorch's engine; True also where that is not known.

    A name counts as every function of that name: it finds too many rather than too few.
    """
    functions: dict[str, list[CodeType]] = {}
    lines = 0
    for file in files:
        text = linecache.getlines(file)
        lines += len(text)
        if not text or lines > MOST_LINES:
            return True
        try:
            module = compile("".join(text), file, "exec", dont_inherit=True)
        except (SyntaxError, ValueError):
            return True
        for code in _functions_in(module):
            functions.setdefault(code.co_name, []).append(code)
    waiting, seen = [*running], set[str]()
    while waiting:
        names = _names_in(waiting.pop())
        if not _ENGINE.isdisjoint(names):
            return True
        for name in names - seen:
            seen.add(name)
            waiting += functions.get(name, ())
    return False


def _functions_in(code: CodeType) -> Iterator[CodeType]:
    """The functions that a module or class defines, and those inside of them; of a class, its name stands for all."""
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield inner
            yield from _functions_in(inner)


def _names_in(code: CodeType) -> set[str]:
    """What a function names, with its lambdas and comprehensions; a class that is named runs any of its methods."""
    names = {*code.co_names, *code.co_freevars, *code.co_cellvars, *code.co_varnames}
    if code.co_name != "<module>":
        for inner in code.co_consts:
            if isinstance(inner, CodeType):
                names |= _names_in(inner)
    return names


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
