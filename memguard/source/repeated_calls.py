"""Whether a local variable ends soon: its function is called in a loop, so each turn begins with a new one."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from types import FrameType

from memguard.facts import Place
from memguard.source.parsing import parse_file

_LOOPS = (ast.For, ast.While, ast.AsyncFor)


def ends_with_a_call(place: Place, frames: Iterable[FrameType]) -> bool:
    """Whether a holder is a local variable of a running function that is called again and again.

    Args:
        place: The holder, and the statement that fills it.
        frames: The user's frames, innermost first.
    """
    if place.holder is None or "." in place.holder:
        return False
    stack = list(frames)
    for index, frame in enumerate(stack):
        code = frame.f_code
        name = str(getattr(code, "co_qualname", code.co_name))
        if code.co_filename == place.file and place.function in (name, code.co_name) and _has(frame, place.holder):
            return any(is_in_loop(caller) for caller in stack[index + 1 :])
    return False


def _has(frame: FrameType, name: str) -> bool:
    code = frame.f_code
    return code.co_name != "<module>" and name in (*code.co_varnames, *code.co_cellvars)


def is_in_loop(frame: FrameType) -> bool:
    """Whether the line on which a frame stands lies in a loop of its own."""
    tree = parse_file(frame.f_code.co_filename)
    if tree is None:
        return False
    first = frame.f_code.co_firstlineno if frame.f_code.co_name != "<module>" else 0
    return any(
        isinstance(node, _LOOPS) and first <= node.lineno <= frame.f_lineno <= (node.end_lineno or node.lineno)
        for node in ast.walk(tree)
    )
