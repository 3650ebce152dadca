"""Keeps sympy and symbolic shapes out of a traced process: its sizes are whole numbers, and loading them takes long.

Fake tensors ask at every turn whether a size is a symbol. For plain values that is answered here; all else is answered
by PyTorch, which is then loaded. Checked with torch 2.13.0 and 2.15.0; names that are not known here are PyTorch's.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch

from memguard.forecast.fakes.later import Later, load_later

_SHAPES = "torch.fx.experimental.symbolic_shapes"
_FUNCTIONS = "torch.utils._sympy.functions"
_PLAIN = (int, float, bool, str, type(None))


class _NoSymbol:
    """A type that nothing is of."""


class _NoError(RuntimeError):
    """An error that is never raised."""


def keep_sympy_out() -> None:
    """Put stand-ins in the place of sympy and of PyTorch's symbolic shapes, unless they are loaded."""
    if _SHAPES in sys.modules or "sympy" in sys.modules:
        return
    load_later("sympy", Basic=_NoSymbol)
    load_later(_FUNCTIONS, Max=_answered(_FUNCTIONS, "Max", _are_unknown, _nothing))
    answers: dict[str, tuple[Callable[[Any], bool], Callable[..., Any]]] = {
        **dict.fromkeys(("guard_or_false", "guard_or_true", "statically_known_true"), (_are_bools, _same)),
        **dict.fromkeys(("expect_true", "guard_bool", "guard_size_oblivious", "definitely_true"), (_are_bools, _same)),
        **dict.fromkeys(("guard_int", "hint_int", "guarding_hint_or_throw", "optimization_hint"), (_are_ints, _same)),
        **dict.fromkeys(("is_nested_int", "is_symbolic"), (_are_numbers, _no)),
        **dict.fromkeys(("has_free_symbols", "has_free_unbacked_symbols"), (_are_plain, _no)),
        **dict.fromkeys(("_iterate_exprs", "_iterate_nodes"), (_are_plain, _none)),
        **dict.fromkeys(("_constrain_range_for_size", "constrain_range", "_advise_is_bounded"), (_are_unknown, _same)),
        "_advise_is_size": (_are_ints, _nothing),
        "free_unbacked_symbols": (_are_plain, _no_symbols),
        "compute_unbacked_bindings": (_begin_with_none, _nothing),
        "has_guarding_hint": (_are_numbers, _yes),
        "statically_known_false": (_are_bools, operator.not_),
        "sym_and": (_are_bools, lambda *values: all(values)),
        "sym_or": (_are_bools, lambda *values: any(values)),
        "sym_eq": (_are_sizes, _equal),
    }
    known = {name: _answered(_SHAPES, name, *answer) for name, answer in answers.items()}
    load_later(_SHAPES, GuardOnDataDependentSymNode=_NoError, **known)


def _answered(
    module: str, name: str, are_known: Callable[[Any], bool], answer: Callable[..., Any]
) -> Callable[..., Any]:
    """The function of a module, answered here if its arguments are known, else by PyTorch."""

    def ask(*given: Any, **options: Any) -> Any:
        if options or not are_known(given):
            known = sys.modules[module]
            return getattr(known.real() if isinstance(known, Later) else known, name)(*given, **options)
        return answer(*given)

    return ask


def _are_unknown(given: Any) -> bool:
    return False


def _begin_with_none(given: Any) -> bool:
    """Whether the environment in which symbols would have their values is missing."""
    return given[0] is None


def _are_bools(given: Any) -> bool:
    return all(type(value) is bool for value in given)


def _are_ints(given: Any) -> bool:
    return all(type(value) is int for value in given)


def _are_numbers(given: Any) -> bool:
    return all(type(value) in (int, float, bool) for value in given)


def _are_sizes(given: Any) -> bool:
    """Whether they are whole numbers, or lists of such; two of a kind."""
    if all(isinstance(value, (tuple, list)) for value in given):
        return all(map(_are_ints, given))
    return _are_ints(given)


def _are_plain(given: Any) -> bool:
    """Whether there is no symbol in them, to the bottom."""
    for value in given:
        if isinstance(value, torch.Tensor):
            if value.layout is not torch.strided or value._has_symbolic_sizes_strides:
                return False
        elif isinstance(value, (tuple, list)):
            if not _are_plain(value):
                return False
        elif type(value) not in _PLAIN:
            return False
    return True


def _equal(left: Any, right: Any) -> bool:
    return tuple(left) == tuple(right) if isinstance(left, (tuple, list)) else left == right


def _same(value: Any) -> Any:
    return value


def _yes(value: Any) -> bool:
    return True


def _no(value: Any) -> bool:
    return False


def _nothing(*_: Any) -> None:
    return None


def _no_symbols(value: Any) -> set[Any]:
    return set()


def _none(value: Any) -> Iterator[Any]:
    return iter(())
