"""Names made up at run time, one for each batch: ``setattr(log, f"loss_{i}", loss)``."""

from __future__ import annotations

import re
from collections.abc import Sequence

from memguard.probes.naming.walk import Link
from memguard.probes.objects import Scope, Via, attributes_of
from memguard.source.model import Sources
from memguard.source.name_query import Statement

MIN_NAMES = 8
"""Names of one pattern in one object or scope."""
_NUMBER = re.compile(r"\d+")
_MAKES_NAMES = re.compile(r"\bsetattr\s*\(|\b__dict__\s*\[|\b(?:vars|globals|locals)\s*\([^()]*\)\s*\[")


def numbered(link: Link, files: Sequence[str], sources: Sources) -> Statement | None:
    """The statement that makes up names like a link's, if its owner has many that differ in a number only.

    Args:
        link: A link with a name.
        files: Where the statement may stand, the likeliest first.
        sources: The parsed files.
    """
    if link.parent is None or type(link.key) is not str or link.via not in (Via.ATTRIBUTE, Via.GLOBAL):
        return None
    prefix, number = _NUMBER.split(link.key, maxsplit=1)[0], _NUMBER.search(link.key)
    if number is None or not prefix:
        return None
    owner = link.parent.value
    names = owner.variables if type(owner) is Scope else attributes_of(owner)
    pattern = re.compile(rf"{re.escape(prefix)}\d+")
    if sum(1 for name in list(names) if type(name) is str and pattern.match(name)) < MIN_NAMES:
        return None
    for file in dict.fromkeys(files):
        source = sources.get(file) if sources.mention(file, [prefix]) else None
        for line, text in enumerate(source.lines if source is not None else (), 1):
            code = text.partition("#")[0]
            if source is not None and prefix in code and _MAKES_NAMES.search(code):
                return Statement(file, line, source.scope_at(line).name, code.strip(), True, loops=True, score=3.0)
    return None
