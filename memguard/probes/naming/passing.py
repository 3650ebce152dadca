"""Variables that go with their function before the batch is over: a carried state only passes through them."""

from __future__ import annotations

from collections.abc import Sequence
from types import FrameType

from memguard.probes.naming.walk import Link
from memguard.probes.objects import Scope, Via
from memguard.source.expressions import called_name
from memguard.source.model import Sources
from memguard.source.name_query import Statement

_BACKWARDS = frozenset({"backward", "manual_backward"})


def passes_on(link: Link, frames: Sequence[FrameType], sources: Sources) -> bool:
    """Whether a variable belongs to a function that is called anew for every batch.

    That is one which calls backward, and not in a loop; or one that calls none and is called, through others like it,
    by a function that does.

    Args:
        link: A name that holds something.
        frames: The user's frames, innermost first.
        sources: The parsed files.
    """
    scope = link.parent.value if link.parent is not None else None
    if link.via is not Via.LOCAL or type(scope) is not Scope:
        return False
    first = True
    inside = False
    for frame in frames:
        code = frame.f_code
        inside = inside or (code.co_filename, code.co_firstlineno) == (scope.file, scope.first_line)
        source = sources.get(code.co_filename) if inside else None
        function = source.scope_of(code.co_firstlineno, code.co_name) if source is not None else None
        if function is None:
            continue
        backwards = [site for site in function.calls if called_name(site.node) in _BACKWARDS]
        if backwards:
            return not first or not any(site.loops for site in backwards)
        first = False
    return False


def is_given(link: Link, statement: Statement | None, frames: Sequence[FrameType]) -> bool:
    """Whether a variable is an argument of a function that runs, and changed once in it: its caller has it too.

    Args:
        link: A name that holds something.
        statement: What changes it.
        frames: The user's frames, innermost first.
    """
    scope = link.parent.value if link.parent is not None else None
    if link.via is not Via.LOCAL or type(scope) is not Scope or statement is None or statement.loops:
        return False
    for code in (frame.f_code for frame in frames):
        if (code.co_filename, code.co_firstlineno) == (scope.file, scope.first_line):
            return link.key in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    return False
