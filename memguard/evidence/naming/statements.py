"""From a trail of names to the one to report, with the statement that stored it."""

from __future__ import annotations

import functools
import logging
import re
import types
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, final

from memguard.evidence.naming.names import (
    MIN_ALIKE,
    NAMES,
    NUMBER,
    class_of,
    files_of_owner,
    innermost,
    sought_of,
    user_files,
)
from memguard.heap.attributes import attributes_of, mro_of, namespace_of
from memguard.heap.children import LRU_CACHE, Scope, Via
from memguard.heap.containers import container_of, length_of
from memguard.heap.frames import is_user_file
from memguard.heap.snapshot import HeapSnapshot
from memguard.heap.walk import Link
from memguard.source.model import Sources
from memguard.source.name_query import NameQuery, SearchContext, Statement
from memguard.source.search import find_statement, is_alias


@final
@dataclass(frozen=True, slots=True)
class HoldingStatement:
    """A name and what gives it its value. Lives as long as the walk."""

    name: Link
    statement: Statement | None


def find_cause(
    trail: list[Link],
    start: int,
    snapshot: HeapSnapshot,
    files: Sequence[str],
    sources: Sources,
    context: SearchContext,
) -> HoldingStatement:
    """The name to tell for what lies at the end of a trail, and the statement that puts it there.

    The name of the longest container comes first, then those between it and the tensor, from the inside out, then those
    around it; the first with a statement that makes it grow is taken, else the innermost with an assignment.

    Args:
        trail: From a root to the tensor.
        start: Position of the name of the longest container.
        snapshot: The look that found it; knows other names of the objects on the way.
        files: Files of the functions on the stack.
        sources: The parsed files.
        context: What is known of the run.
    """
    hook = piled_hook(trail)
    if hook is not None and (registered := registration_of(hook.value, sources)) is not None:
        return HoldingStatement(Link(hook.value, Via.LOCAL, hook.value.__name__, hook.parent), registered)
    if (made_up := _numbered(trail[start], [*files, *user_files()], sources)) is not None:
        return made_up
    record = next((link for link in trail if issubclass(type(link.value), logging.LogRecord)), None)
    logged = _logged(record, sources) if record is not None else None
    if record is None or logged is None:
        return _stated(trail, start, snapshot, files, sources, context)
    trail = record.trail()
    kept = _stated(trail, trail.index(innermost(record)), snapshot, files, sources, context)
    if (adds := kept.statement) is not None and adds.grows and adds.certain and is_user_file(adds.file):
        return kept  # a handler of the user's own
    return HoldingStatement(innermost(record), logged)


def _stated(
    trail: list[Link],
    start: int,
    snapshot: HeapSnapshot,
    files: Sequence[str],
    sources: Sources,
    context: SearchContext,
) -> HoldingStatement:
    """The first of the names on a trail with a statement that makes it grow, in the order told above."""
    cause = HoldingStatement(trail[start], None)
    for index in [start, *range(len(trail) - 1, start, -1), *range(start - 1, -1, -1)]:
        link = trail[index]
        if type(link.value) is LRU_CACHE:
            name = innermost(link)
            made = cached_function(link.value, sources)
            if made is None and (what := sought_of(name, trail[trail.index(name) :])) is not None:
                made = _statement(what, [*files, *files_of_owner(name)], sources, context)  # of a method, say
            return HoldingStatement(name, made)
        is_named = link.via in NAMES
        names = [(link, trail[index:])] if is_named else []
        for other in snapshot.others(link):  # of an element, what else has it: a list of which this is a part
            above = other.trail()
            name = innermost(other)
            names.append((name, above[above.index(name) :] + trail[index + 1 :]))
        known = [(name, what) for name, rest in names if (what := sought_of(name, rest)) is not None]
        found = [
            (statement, name)
            for name, what in known
            if (statement := _statement(what, [*files, *files_of_owner(name)], sources, context)) is not None
        ]
        best, its_name = max(found, key=lambda one: one[0].score, default=(cached_attribute(link, sources), link))
        if best is None or not (is_named or best.grows) or not _better(best, cause.statement, outside=index < start):
            continue
        known_by = cause.statement if index < start and trail[index + 1].via is Via.ATTRIBUTE else None
        if known_by is not None and not known_by.quiet and is_user_file(known_by.file):
            continue  # a known method sets it: what its object is called with explains it no better
        own = [name for name, what in known if what.attribute or not is_alias(what, sources)] if is_named else []
        cause = HoldingStatement(own[0] if own else link if is_named else its_name, best)
        if best.grows and best.certain and is_user_file(best.file):
            break
    return cause


def _logged(record: Link, sources: Sources) -> Statement | None:
    """The call that made a log record which some handler keeps, arguments and all."""
    attributes = attributes_of(record.value)
    file, line, function = (attributes.get(name) for name in ("pathname", "lineno", "funcName"))
    if type(file) is not str or type(line) is not int or not is_user_file(file):
        return None
    return replace(_stated_on(line, file, str(function), sources), loops=True)


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
    files, others = sources.others(user_files)
    return find_statement(what, [*near, *files], others, context)


def cached_function(wrapper: Any, sources: Sources) -> Statement | None:
    """The definition of a function whose results an lru_cache keeps."""
    function = attributes_of(wrapper).get("__wrapped__")
    if type(function) is not types.FunctionType:
        return None
    code = function.__code__
    return _stated_on(code.co_firstlineno, code.co_filename, code.co_name, sources)


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
    function = source.scope_of(code.co_firstlineno, code.co_name)
    if function is None or len(function.returns) != 1:
        return None
    value = function.returns[0]
    text = source.text(value.lineno, value.end_lineno or value.lineno)
    return Statement(source.file, value.lineno, function.path, text, False, score=1.0)


PILE = 4
"""Hooks of one function on one module from which on they are a pile."""
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


def piled_hook(trail: list[Link]) -> Link | None:
    """The hook function through which a trail leads, if its module has many hooks of the same code.

    More of them than the longest container below one has elements: else that is what grows.
    """
    for index, link in enumerate(trail):
        module = link.parent.value if link.parent is not None and link.via is Via.PART else None
        if type(link.value) is types.FunctionType and module is not None:
            attributes = attributes_of(module)
            below = (length_of(inner.value) for inner in trail[index:] if container_of(type(inner.value)) is not None)
            least = max(PILE, *below, 0)
            for hooks in _HOOKS:
                if "_modules" in attributes and _count(attributes.get(hooks), link.value.__code__) >= least:
                    return link
    return None


def registration_of(hook: types.FunctionType, sources: Sources) -> Statement | None:
    """The call that registers a hook function, by its name or that of who makes it, or, for a lambda, on its line."""
    code = hook.__code__
    source = sources.get(code.co_filename)
    if not source.is_read:
        return None
    names = str(hook.__qualname__).replace(".<locals>", "").split(".")
    lines = [code.co_firstlineno] if code.co_name == "<lambda>" else []
    while names and not lines:  # the nearest call, below the definition first
        pattern = re.compile(rf"\bregister_\w*hook\s*\(.*\b{re.escape(names.pop())}\b")
        found = [number for number, text in enumerate(source.lines, 1) if pattern.search(text.partition("#")[0])]
        lines = sorted(found, key=lambda number: (number < code.co_firstlineno, abs(number - code.co_firstlineno)))
    if not lines:
        return None
    function = str(hook.__qualname__).rpartition(".<locals>.")[0] or "<module>"
    return _stated_on(lines[0], code.co_filename, function.replace(".<locals>", ""), sources)


def _stated_on(line: int, file: str, function: str, sources: Sources) -> Statement:
    """A line that is known to be what fills a holder."""
    return Statement(file, line, function, sources.get(file).text(line, line), True, score=3.0)


def _count(hooks: Any, code: types.CodeType) -> int:
    values = list(hooks.values()) if isinstance(hooks, dict) else []
    return sum(1 for hook in values if type(hook) is types.FunctionType and hook.__code__ is code)


_MAKES_NAMES = re.compile(
    r"\b(?:setattr|register_buffer)\s*\(|\b__dict__\s*\[|\b(?:vars|globals|locals)\s*\([^()]*\)\s*\["
)


def numbered_attribute(link: Link) -> Link | None:
    """The first of many attributes or buffers of an object with names that differ in a number only."""
    if container_of(type(link.value)) is not None:
        return None
    names: dict[str, list[str]] = {}
    for name in (tensors := _attributes_and_buffers(link.value)):
        prefix, *numbers = NUMBER.split(name, maxsplit=1) if type(name) is str else [""]
        if prefix and numbers:
            names.setdefault(prefix, []).append(name)
    most = max(names.values(), key=len, default=[])
    return Link(tensors[most[0]], Via.ATTRIBUTE, most[0], link) if len(most) >= MIN_ALIKE else None


def _attributes_and_buffers(owner: object) -> dict[Any, Any]:
    attributes = attributes_of(owner)
    return {**attributes, **(attributes.get("_buffers") or {})} if "_modules" in attributes else dict(attributes)


def _numbered(link: Link, files: Sequence[str], sources: Sources) -> HoldingStatement | None:
    """The first name and the statement that makes such names up, if a link's owner has many that differ in a number."""
    if link.parent is None or type(link.key) is not str or link.via not in (Via.ATTRIBUTE, Via.GLOBAL):
        return None
    prefix, number = NUMBER.split(link.key, maxsplit=1)[0], NUMBER.search(link.key)
    if number is None or not prefix:
        return None
    owner = link.parent.value
    names = owner.variables if type(owner) is Scope else _attributes_and_buffers(owner)
    pattern = re.compile(rf"{re.escape(prefix)}\d+")
    alike = [name for name in list(names) if type(name) is str and pattern.match(name)]
    if len(alike) < MIN_ALIKE:
        return None
    for file in dict.fromkeys(files):
        source = sources.get(file, (prefix,))
        for line, text in enumerate(source.lines, 1):
            code = text.partition("#")[0]
            if prefix in code and _MAKES_NAMES.search(code):
                made = Statement(file, line, source.scope_at(line).name, code.strip(), True, loops=True, score=3.0)
                return HoldingStatement(Link(link.value, link.via, alike[0], link.parent), made)
    return None
