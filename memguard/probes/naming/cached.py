"""What the standard library keeps of a function's results, and the function that makes it."""

from __future__ import annotations

import functools
import types
from typing import Any

from memguard.probes.naming.names import class_of
from memguard.probes.naming.walk import Link
from memguard.probes.objects import Via, attributes_of, mro_of, namespace_of
from memguard.source.model import Sources
from memguard.source.name_query import Statement


def cached_function(wrapper: Any, sources: Sources) -> Statement | None:
    """The definition of a function whose results an lru_cache keeps."""
    function = attributes_of(wrapper).get("__wrapped__")
    if type(function) is not types.FunctionType:
        return None
    code = function.__code__
    source = sources.get(code.co_filename)
    text = source.text(code.co_firstlineno, code.co_firstlineno) if source is not None else ""
    return Statement(code.co_filename, code.co_firstlineno, code.co_name, text, True, score=3.0)


def cached_attribute(link: Link, sources: Sources) -> Statement | None:
    """What a ``cached_property`` put into its object: the statement that returns it, where there is but one.

    Nothing else assigns such an attribute, and whoever reads it first makes it.
    """
    if link.via is not Via.ATTRIBUTE or link.parent is None or type(link.key) is not str:
        return None
    for cls in mro_of(class_of(link.parent.value)):
        made = namespace_of(cls).get(link.key)
        if made is not None:
            return _returned(made, sources) if type(made) is functools.cached_property else None
    return None


def _returned(made: object, sources: Sources) -> Statement | None:
    behind = attributes_of(made).get("func")
    if type(behind) is not types.FunctionType:
        return None
    code = behind.__code__
    source = sources.get(code.co_filename)
    function = source.scope_of(code.co_firstlineno, code.co_name) if source is not None else None
    if source is None or function is None or len(function.returns) != 1:
        return None
    value = function.returns[0]
    text = source.text(value.lineno, value.end_lineno or value.lineno)
    return Statement(source.file, value.lineno, function.path, text, False, score=1.0)
