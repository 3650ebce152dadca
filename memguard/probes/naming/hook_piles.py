"""Hooks registered anew with every batch: what their closures keep is due to the registration."""

from __future__ import annotations

import re
import types
from typing import Any

from memguard.probes.naming.walk import Link
from memguard.probes.objects import Via, attributes_of
from memguard.source.model import Sources
from memguard.source.name_query import Statement

PILE = 4
"""Hooks of one function on one module from which on they are a pile."""
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


def piled_hook(trail: list[Link]) -> Link | None:
    """The hook function through which a trail leads, if its module has many hooks of the same code."""
    for link in trail:
        module = link.parent.value if link.parent is not None and link.via is Via.PART else None
        if type(link.value) is types.FunctionType and module is not None:
            attributes = attributes_of(module)
            for hooks in _HOOKS:
                if "_modules" in attributes and _count(attributes.get(hooks), link.value.__code__) >= PILE:
                    return link
    return None


def registration_of(hook: types.FunctionType, sources: Sources) -> Statement | None:
    """The call that registers a hook function, by its name or, for a lambda, on its line."""
    code = hook.__code__
    source = sources.get(code.co_filename)
    if source is None:
        return None
    pattern = re.compile(rf"\bregister_\w*hook\s*\(.*\b{re.escape(code.co_name)}\b")
    if code.co_name == "<lambda>":
        lines = [code.co_firstlineno]
    else:  # the nearest call, below the definition first
        found = [number for number, text in enumerate(source.lines, 1) if pattern.search(text.partition("#")[0])]
        lines = sorted(found, key=lambda number: (number < code.co_firstlineno, abs(number - code.co_firstlineno)))
    if not lines:
        return None
    text = source.text(lines[0], lines[0])
    function = str(hook.__qualname__).rpartition(".<locals>.")[0] or "<module>"
    return Statement(code.co_filename, lines[0], function.replace(".<locals>", ""), text, True, score=3.0)


def _count(hooks: Any, code: types.CodeType) -> int:
    values = list(hooks.values()) if isinstance(hooks, dict) else []
    return sum(1 for hook in values if type(hook) is types.FunctionType and hook.__code__ is code)
