"""Methods of a model that answer with what its parts answer: the line that matters is the one that asks them."""

from __future__ import annotations

import ast
import functools
import inspect
import linecache
import sys
import textwrap
from types import CodeType, FrameType

from torch import nn

from memguard.probes.objects.frames import is_user_frame, read_locals, user_frames
from memguard.source.chains import last_name
from memguard.source.emptied.bounded import FUNCTIONS, around, last_part
from memguard.source.function_index import functions_of
from memguard.source.functions import Function
from memguard.source.graph_flow import flows, is_own, names_in
from memguard.source.parsing import parse_file

_ACTS = frozenset({"eval", "train", "backward", "manual_backward", "step", "zero_grad", "toggle_optimizer"})
"""Calls of a function that does more than to answer."""
_SWITCHES = frozenset({"enable_grad", "set_grad_enabled"})
"""What decides for itself whether there is a graph."""
_WITHIN = frozenset({"<listcomp>", "<setcomp>", "<dictcomp>"})
"""Frames that Python before 3.12 makes for a part of a function."""
_TURNS = (ast.For, ast.While, ast.AsyncFor, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
"""What comes to a line more than once."""
_JUDGES = ("loss", "entropy", "criterion", "nll")
"""Parts of the names of calls that judge an answer."""


def asking_frame(frame: FrameType | None = None, *, strict: bool) -> FrameType | None:
    """The user's innermost frame that is no method of a model which only answers; None without the user's code.

    ``return self.decoder(z)`` in a method of the model is a part of it: the line is where that method is called.

    Args:
        frame: Where to begin; the caller's frame if not given.
        strict: Whether to pass over methods alone that return what the call gives as it is, else all whose answer has
            its graph.
    """
    found = next(user_frames(sys._getframe(1) if frame is None else frame), None)
    while found is not None:
        above = _above_method(found, strict=strict)
        if above is None:
            break
        found = above
    return found


def judging_frame(frame: FrameType) -> FrameType:
    """The user's innermost frame, from one on, that is no method of a model at all: what evaluates."""
    while True:
        above = frame.f_back if frame.f_code.co_name in _WITHIN else _above_method(frame, strict=None)
        if above is None:
            return frame
        frame = above


def _above_method(frame: FrameType, *, strict: bool | None) -> FrameType | None:
    """The user's frame that calls this one, if this is a method of a model that answers; None: that does anything."""
    code, above = frame.f_code, frame.f_back
    if not code.co_argcount or code.co_varnames[0] != "self" or above is None or not is_user_frame(above):
        return None
    if strict is not None and not answers(code, frame.f_lineno, strict=strict):
        return None
    return above if issubclass(type(read_locals(frame).get("self")), nn.Module) else None


@functools.lru_cache(maxsize=1024)
def answers(code: CodeType, line: int, *, strict: bool) -> bool:
    """Whether what is called on a line of a function is what it returns.

    Args:
        code: The function.
        line: The line.
        strict: As it is; else what is made from it with its graph counts as well.
    """
    function = function_of_code(code)
    called = [last_name(site.node.func) or "" for site in function.calls] if function is not None else []
    if function is None or any(name in _ACTS or any(word in name for word in _JUDGES) for name in called):
        return False
    at = line - code.co_firstlineno + 1
    for returned in function.returns:
        if returned.lineno <= at <= (returned.end_lineno or returned.lineno):
            return flows(returned, function, set(), at) and (not strict or _is_one_call(returned))
    stored = [store for store in function.stores if store.line <= at <= store.end_line and not store.from_loop]
    if strict:
        stored = [s for s in stored if _is_one_call(s.value) and flows(s.value, function, set(), at)]
        plain = {store.target.id for store in stored if isinstance(store.target, ast.Name)}
        plain.difference_update(name for store in function.stores if store.line > at for name in names_in(store.target))
        return bool(function.returns) and all(isinstance(r, ast.Name) and r.id in plain for r in function.returns)
    held: set[str] = set()
    for store in sorted(function.stores, key=lambda store: store.line):
        if store in stored or store.line >= at:
            held.update(names_in(store.target) if flows(store.value, function, held, at) else ())
    return any(flows(returned, function, held) for returned in function.returns)


@functools.lru_cache(maxsize=1024)
def is_asked_for_its_caller(code: CodeType, line: int) -> bool:
    """Whether a function that asks a model on a line does so once, and gives back what came of it.

    What loops over batches, or goes backward where it is told to, is a whole epoch or step: what it asks is its own.
    So is what it asks with gradients switched on: a caller's no_grad would change nothing.
    """
    function, tree = function_of_code(code), parse_file(code.co_filename)
    if function is None or tree is None or not function.returns:
        return False
    loops = around(tree, line)[1]
    called = {last_name(site.node.func) for site in function.calls}
    return not loops and called.isdisjoint(_ACTS) and not _is_switched_on(tree, line)


@functools.lru_cache(maxsize=1024)
def is_part_of_a_call(code: CodeType, line: int) -> bool:
    """Whether a method asks a part on a line for what it was given: ``model.features(x)`` is a call of the model.

    What makes its input itself, or asks once for each turn of a loop, is a function of its own: it samples, or rolls
    out. A loop whose variable is called, ``for block in self.blocks``, goes through the parts of one call.
    """
    function = function_of_code(code)
    if function is None or function.node is None:
        return False
    at = line - code.co_firstlineno + 1
    for node in ast.walk(function.node):
        if isinstance(node, _TURNS) and node.lineno <= at <= (node.end_lineno or at) and not _is_over_parts(node):
            return False
    given = set(function.params[1:])
    for store in sorted(function.stores, key=lambda store: store.line):
        if store.end_line < at and not given.isdisjoint(names_in(store.value)):
            given.update(names_in(store.target))
    asked = [site for site in function.calls if site.line <= at <= site.end_line]
    return any(not given.isdisjoint(names_in(part)) for site in asked for part in site.arguments())


def _is_over_parts(node: ast.AST) -> bool:
    """Whether what a loop goes through is called in it."""
    clauses = getattr(node, "generators", [node])
    turns = {name for clause in clauses if hasattr(clause, "target") for name in names_in(clause.target)}
    called = (part.func for part in ast.walk(node) if isinstance(part, ast.Call))
    return any(isinstance(function, ast.Name) and function.id in turns for function in called)


def _is_switched_on(tree: ast.Module, line: int) -> bool:
    """Whether a line stands under a switch of gradients: a block, or the decorator of a function."""
    for node in ast.walk(tree):
        switches = [item.context_expr for item in node.items] if isinstance(node, (ast.With, ast.AsyncWith)) else []
        if isinstance(node, FUNCTIONS):
            switches = node.decorator_list
        if switches and node.lineno <= line <= (node.end_lineno or 0):  # type: ignore[attr-defined]
            names = {last_part(switch.func if isinstance(switch, ast.Call) else switch) for switch in switches}
            if not names.isdisjoint(_SWITCHES):
                return True
    return False


def function_of_code(code: CodeType) -> Function | None:
    """The syntax of one function alone; None where it cannot be had."""
    lines = linecache.getlines(code.co_filename)[code.co_firstlineno - 1 :]
    try:
        functions = functions_of(ast.parse(textwrap.dedent("".join(inspect.getblock(lines)))))
    except (SyntaxError, ValueError, RecursionError, IndexError):
        return None  # the file is not what ran, or is gone
    return next((function for function in functions if function.name == code.co_name), None)


def _is_one_call(value: ast.expr) -> bool:
    """Whether an expression is one call of a part of ``self``, or what is picked out of its answer."""
    calls = [node for node in ast.walk(value) if isinstance(node, ast.Call) and is_own(node.func)]
    while value not in calls and isinstance(value, (ast.Call, ast.Attribute, ast.Subscript)):
        value = value.func if isinstance(value, ast.Call) else value.value
    return calls == [value]
