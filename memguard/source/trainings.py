"""Whether running functions can come to a backward: by the names that they use, and those that these use in turn."""

from __future__ import annotations

import linecache
from collections.abc import Iterable, Iterator
from types import CodeType

_ENGINE = frozenset({"backward", "manual_backward", "autograd", "grad", "grad_and_value", "value_and_grad", "vjp"})
MOST_LINES = 20_000
"""Of all files together; of a larger program nothing is said."""


def may_train(running: Iterable[CodeType], files: Iterable[str]) -> bool:
    """Whether any function that the running ones may call names PyTorch's engine; True also where that is not known.

    A name counts as every function of that name: it finds too many rather than too few.

    Args:
        running: The functions on the stack.
        files: The program's own files.
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
