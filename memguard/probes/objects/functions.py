"""What functions hold: variables of the functions round them, defaults, bound arguments."""

from __future__ import annotations

import functools
import itertools
import types
from collections.abc import Iterator
from typing import Any

from memguard.probes.objects.held import Held, Via


def of_cell(cell: types.CellType) -> Iterator[Held]:
    """The variable in a closure's cell."""
    try:
        yield Via.PART, None, cell.cell_contents
    except ValueError:  # empty: the variable has no value yet
        return


def of_partial(obj: functools.partial[Any]) -> Iterator[Held]:
    """Its function, and what is bound, under the names that the function has for it."""
    function, args, keywords = (functools.partial.__dict__[part].__get__(obj) for part in ("func", "args", "keywords"))
    yield Via.PART, None, function
    names: list[str] = []
    if (plain := function_behind(obj)) is not None:
        code = plain.__code__
        names = list(code.co_varnames[type(function) is types.MethodType : code.co_argcount])
    for value, name in itertools.zip_longest(args, names[: len(args)]):
        yield (Via.PART if name is None else Via.DEFAULT), name, value
    for name, value in dict.items(keywords):
        yield Via.DEFAULT, name, value


def function_behind(obj: object) -> types.FunctionType | None:
    """The function itself of a function or of a ``functools.partial`` of a function or method; None of others."""
    if issubclass(type(obj), functools.partial):
        obj = functools.partial.__dict__["func"].__get__(obj)
        obj = obj.__func__ if type(obj) is types.MethodType else obj
    return obj if type(obj) is types.FunctionType else None


def of_function(function: types.FunctionType) -> Iterator[Held]:
    """What a function closes over, its defaults, and the attributes that it was given."""
    code = function.__code__
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=False):
        try:
            yield Via.CLOSURE, name, cell.cell_contents
        except ValueError:  # empty: the variable has no value yet
            continue
    defaults = function.__defaults__ or ()
    positional = code.co_varnames[: code.co_argcount]
    for name, value in zip(positional[len(positional) - len(defaults) :], defaults, strict=False):
        yield Via.DEFAULT, name, value
    for name, value in list((function.__kwdefaults__ or {}).items()):
        yield Via.DEFAULT, name, value
    for name, value in list(function.__dict__.items()):
        yield Via.ATTRIBUTE, name, value
