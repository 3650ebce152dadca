"""From a trail of names to the one to tell and the statement behind it."""

from __future__ import annotations

import functools
import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import final

from memguard.probes.naming.cached import cached_attribute, cached_function
from memguard.probes.naming.hook_piles import piled_hook, registration_of
from memguard.probes.naming.names import NAMES, files_of_owner, innermost, sought_of, user_files
from memguard.probes.naming.numbered_names import numbered
from memguard.probes.naming.walk import Link, Walk
from memguard.probes.objects import Via, attributes_of
from memguard.probes.objects.frames import is_user_file
from memguard.source.model import Sources
from memguard.source.name_query import NameQuery, SearchContext, Statement
from memguard.source.search import find_statement, is_alias

_LRU_CACHE = type(functools.lru_cache(lambda: None))


@final
@dataclass(frozen=True, slots=True)
class Cause:
    """A name and what gives it its value. Lives as long as the walk."""

    name: Link
    statement: Statement | None
    feeding: Statement | None = None
    """What leads to the statement, where no source shows it: the call of a logger, whose handler keeps the record."""


def find_cause(
    trail: list[Link], start: int, walk: Walk, files: Sequence[str], sources: Sources, context: SearchContext
) -> Cause:
    """The name to tell for what lies at the end of a trail, and the statement that puts it there.

    The name of the longest container comes first, then those between it and the tensor, from the inside out, then those
    around it; the first with a statement that makes it grow is taken, else the innermost with an assignment.

    Args:
        trail: From a root to the tensor.
        start: Position of the name of the longest container.
        walk: The walk that found it; knows other names of the objects on the way.
        files: Files of the functions on the stack.
        sources: The parsed files.
        context: What is known of the run.
    """
    hook = piled_hook(trail)
    if hook is not None and (registered := registration_of(hook.value, sources)) is not None:
        return Cause(Link(hook.value, Via.LOCAL, hook.value.__name__, hook.parent), registered)
    at = next((at for at, link in enumerate(trail) if issubclass(type(link.value), logging.LogRecord)), None)
    if at is not None and (logged := _logged(trail[at], sources)) is not None:
        kept = _stated(trail[: at + 1], trail.index(innermost(trail[at])), walk, files, sources, context)
        if (adds := kept.statement) is not None and adds.grows and adds.certain and is_user_file(adds.file):
            return replace(kept, feeding=logged)
        return Cause(innermost(trail[at]), logged)
    made_up = numbered(trail[start], [*files, *user_files()], sources)
    if made_up is not None:
        return Cause(trail[start], made_up)
    return _stated(trail, start, walk, files, sources, context)


def _stated(
    trail: list[Link], start: int, walk: Walk, files: Sequence[str], sources: Sources, context: SearchContext
) -> Cause:
    """The first of the names on a trail with a statement that makes it grow, in the order told above."""
    cause = Cause(trail[start], None)
    for index in [start, *range(len(trail) - 1, start, -1), *range(start - 1, -1, -1)]:
        link = trail[index]
        if type(link.value) is _LRU_CACHE:
            return Cause(innermost(link), cached_function(link.value, sources))
        if link.via not in NAMES:
            continue
        names = [(link, trail[index:])]
        for other in walk.others(link):
            above = other.trail()
            name = innermost(other)
            names.append((name, above[above.index(name) :] + trail[index + 1 :]))
        known = [(name, what) for name, rest in names if (what := sought_of(name, rest)) is not None]
        found = [
            statement
            for name, what in known
            if (statement := _statement(what, [*files, *files_of_owner(name)], sources, context)) is not None
        ]
        best = max(found, key=lambda statement: statement.score, default=None) or cached_attribute(link, sources)
        if best is None or not _better(best, cause.statement, outside=index < start):
            continue
        own = [name for name, what in known if what.attribute or not is_alias(what, sources)]
        cause = Cause(own[0] if own else link, best)
        if best.grows and best.certain and is_user_file(best.file):
            break
    return cause


def _logged(record: Link, sources: Sources) -> Statement | None:
    """The call that made a log record which some handler keeps, arguments and all."""
    attributes = attributes_of(record.value)
    file, line, function = (attributes.get(name) for name in ("pathname", "lineno", "funcName"))
    if type(file) is not str or type(line) is not int or not is_user_file(file):
        return None
    source = sources.get(file)
    text = source.text(line, line) if source is not None else ""
    return Statement(file, line, str(function), text, True, loops=True, score=3.0)


def _better(new: Statement, old: Statement | None, *, outside: bool) -> bool:
    """Whether a statement for a further name explains more than the one for the names before.

    Args:
        new: The statement for the further name.
        old: The best so far.
        outside: Whether the further name lies around those before, not between them and the tensor.
    """
    if old is None or is_user_file(new.file) > is_user_file(old.file):
        return True  # a library's own list is filled by whoever calls the library
    if is_user_file(new.file) < is_user_file(old.file):
        return False
    if outside:  # a constructor says how an element is made, not who keeps it
        return new.grows and new.certain and not old.grows and (new.loops or (old.quiet and not new.quiet))
    return new.grows > old.grows or (new.grows == old.grows and new.certain >= old.certain and not new.quiet)


def _statement(what: NameQuery, near: Sequence[str], sources: Sources, context: SearchContext) -> Statement | None:
    found = find_statement(what, near, sources, context)
    if found is not None:
        return found
    if sources.others is None:
        sources.others = user_files()
    return find_statement(what, [*near, *sources.others], sources, context)
