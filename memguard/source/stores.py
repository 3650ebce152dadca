"""Where a value is stored: the name that a line gives it to, what keeps or returns it, what a loop makes of it."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Collection, Iterable, Iterator
from types import FrameType
from typing import NamedTuple, final

from memguard.records.facts import Place
from memguard.source.expressions import (
    ASSIGNMENTS,
    FUNCTIONS,
    arguments,
    called_name,
    item_base,
    last_name,
    last_part,
    method_base,
    names_in,
    parse,
    parse_statement,
    spans,
    symbol_of,
)
from memguard.source.model import SourceModel
from memguard.source.name_query import Anchor, depends
from memguard.source.reads import leads_to_read
from memguard.source.scopes import Scope
from memguard.source.vocabulary import ADDS, JOINS, SHARES


def assigned_at(file: str, line: int) -> tuple[str, str] | None:
    """The name that a statement gives its value to, and its text; None if it is no assignment to a single name."""
    model = SourceModel.of(file)
    for node in model.all_of(ast.Assign):
        single = len(node.targets) == 1 and isinstance(node.targets[0], (ast.Name, ast.Attribute, ast.Subscript))
        if single and spans(node, line):
            text = ast.get_source_segment("".join(model.lines), node) or ""
            return ast.unparse(node.targets[0]), " ".join(text.split())
    return None


# What a function returns, or keeps


def shares(value: ast.AST, name: str) -> bool:
    """Whether an expression is the variable, or a view of it."""
    while isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
        if value.func.attr not in SHARES and not value.func.attr.endswith("_"):
            return False
        value = value.func.value
    if isinstance(value, ast.Attribute) and value.attr == "data":
        value = value.value
    return isinstance(value, ast.Name) and value.id == name


def gives_back(file: str, line: int) -> bool:
    """Whether the function around a line returns what the line makes, and keeps it nowhere else.

    Args:
        file: A source file.
        line: A ``return``, or an assignment to a variable that the function sets once, in no loop, and returns.
    """
    function, loops = SourceModel.of(file).around(line)
    if not isinstance(function, FUNCTIONS):
        return False
    inside = list(ast.walk(function))
    returned = [node.value for node in inside if isinstance(node, ast.Return) and node.value is not None]
    if any(spans(value, line) for value in returned):
        return True
    sets = [node for node in inside if isinstance(node, ast.Assign)]
    target = next((node.targets[0] for node in sets if spans(node, line) and len(node.targets) == 1), None)
    if not isinstance(target, ast.Name) or not any(shares(value, target.id) for value in returned):
        return False
    if loops:
        return False  # there the variable itself still has the last turn's
    names = [node for node in inside if isinstance(node, ast.Name) and node.id == target.id]
    kept = any(shares(node.value, target.id) for node in sets)
    return not kept and sum(isinstance(node.ctx, ast.Store) for node in names) == 1


@final
class Rebinding(NamedTuple):
    """A statement that gives a name something new."""

    name: str
    source: str
    doubles: bool
    """Whether the name has the last one all through a call that does not read it."""


def rebinding_at(file: str, line: int) -> Rebinding | None:
    """The statement on a line, if it gives a single name a value."""
    target, model = assigned_at(file, line), SourceModel.of(file)
    if target is None:
        return None
    name, source = target
    here = (node.value for node in model.all_of(ast.Assign) if spans(node, line))
    values = [value for value in here if isinstance(value, ast.Call)]
    stays = name.replace(".", "").isidentifier() and ("." in name or _outlives_its_run(model, line, name))
    doubles = stays and bool(values) and not any(leads_to_read(model, value, name) for value in values)
    return Rebinding(name, source, doubles)


def _outlives_its_run(model: SourceModel, line: int, name: str) -> bool:
    """Whether a variable set on a line still has its value when the line runs again: no function's that has ended."""
    function, loops = model.around(line)
    outer = (node for node in ast.walk(function) if isinstance(node, (ast.Global, ast.Nonlocal)))
    return function is model.tree or bool(loops) or any(name in node.names for node in outer)


# What loops fill


def filled_at(model: SourceModel, scope: Scope, name: str, line: int) -> int | None:
    """The first line at which the innermost loop around a line adds to a local variable that it does not make anew."""
    loops = model.loops_in(scope.node, line)
    if not loops:
        return None
    stores = [s for s in scope.stores if spans(loops[-1], s.line) and _item_root(s.target) == name]
    if any(isinstance(store.target, ast.Name) and not store.augmented for store in stores):
        return None
    adding = (c for c in scope.calls if called_name(c.node) in ADDS | {"update"} and spans(loops[-1], c.line))
    calls = [call.line for call in adding if _item_root(method_base(call.node)) == name]
    return min([*(store.line for store in stores), *calls], default=None)


def _item_root(node: ast.expr | None) -> str | None:
    base = item_base(node) if node is not None else None
    return base.id if isinstance(base, ast.Name) else None


def feedback_of(scope: Scope, name: str) -> tuple[str | None, int | None]:
    """Whether a loop makes a variable from its last value: ``"carried"`` or ``"added"``, with the statement's line.

    ``x, h = f(x, h)`` carries, ``total += loss`` adds.
    """
    for store in scope.stores:
        if isinstance(store.target, ast.Name) and store.target.id == name and store.loops:
            reads = name in names_in(store.value)
            adds = isinstance(store.value, ast.BinOp) and isinstance(store.value.op, ast.Add)
            if store.augmented or reads:
                return "added" if store.augmented or adds else "carried", store.line
    return None, None


def ends_with_a_call(place: Place, frames: Iterable[FrameType]) -> bool:
    """Whether a holder is a local variable of a running function that is called in a loop: each turn has a new one."""
    stack, name = list(frames), place.holder
    for index, frame in enumerate(stack) if name is not None and "." not in name else ():
        code = frame.f_code
        names = (str(getattr(code, "co_qualname", code.co_name)), code.co_name)
        has = code.co_name != "<module>" and name in (*code.co_varnames, *code.co_cellvars)
        if code.co_filename == place.file and place.function in names and has:
            return any(is_in_loop(caller) for caller in stack[index + 1 :])
    return False


def is_in_loop(frame: FrameType) -> bool:
    """Whether the line that a frame runs lies in a loop of its own."""
    model, code = SourceModel.of(frame.f_code.co_filename), frame.f_code
    first = code.co_firstlineno if code.co_name != "<module>" else 0
    return any(first <= loop.lineno for loop in model.loops_in(model.tree, frame.f_lineno))


# Statements that pass on what another has filled


def passes_on(place: Place, filled: Collection[Place]) -> bool:
    """Whether a statement stores a variable as it is that another filled, as ``traces.append(trace)`` does."""
    for value in _stored(parse_statement(place.source)):
        for one in filled:
            if one.file != place.file or one.line == place.line or one.holder is None:
                continue
            if isinstance(value, ast.Name) and (value.id, place.function) == (one.holder, one.function):
                return True
    return False


def _stored(node: ast.stmt | None) -> Iterator[ast.expr]:
    """What a statement stores, and the parts of it where it is a tuple, a list or a dict that is written out."""
    value = getattr(node, "value", None) if isinstance(node, (ast.Expr, *ASSIGNMENTS)) else None
    waiting: list[ast.expr] = [value] if value is not None else []
    if isinstance(node, ast.Expr):
        waiting = arguments(node.value) if isinstance(node.value, ast.Call) else []
    for one in waiting:
        if isinstance(one, (ast.Tuple, ast.List, ast.Dict)):
            waiting += one.values if isinstance(one, ast.Dict) else one.elts
        else:
            yield one


# States that a program carries from batch to batch


def makes_state(place: Place) -> bool:
    """Whether the statement at a place makes all that a name has, or some rows of it, from what it was.

    ``self.memory = self.cell(x, self.memory)``: a memory, a moving average. The old value may go through variables, and
    through methods that read it. What adds in place is a sum, and what joins old and new collects.
    """
    model, (name, attribute) = SourceModel.of(place.file), symbol_of(place.holder)
    if place.line is None or not name:
        return False
    scope, anchor = model.scope_at(place.line), Anchor(name, attribute)
    for store in scope.stores:
        if store.line <= place.line <= store.end_line and last_part(store.target) == name and not store.augmented:
            value = _followed(store.value, store.line, scope)
            return not _is_joined(value) and depends(store.value, store.line, anchor, model, scope, set())
    return False


def _followed(value: ast.expr, line: int, scope: Scope) -> ast.expr:
    """What a variable was given last before a line; of any other expression it itself."""
    if not isinstance(value, ast.Name):
        return value
    given = [(at, fed) for fed, at, _ in scope.feeds(value.id) if at < line]
    return max(given, key=lambda pair: pair[0])[1] if given else value


def _is_joined(value: ast.expr) -> bool:
    """Whether old and new are side by side, as in a queue: ``torch.cat([k, self.queue])[:size]`` collects."""
    if isinstance(value, ast.IfExp):
        return _is_joined(value.body) or _is_joined(value.orelse)
    while isinstance(value, ast.Subscript):
        value = value.value
    return isinstance(value, ast.Call) and called_name(value) in JOINS


# Statements by their text alone


def own_text(source: str | None, name: str) -> str:
    """Of several statements on a line those that set a name; the whole line where none does."""
    text = (source or "").strip()
    own = [ast.unparse(node) for node in _assignments(text) if name in _last_names(*node.targets)]
    return "\n".join(own) or text


def is_updated_from_itself(source: str | None, name: str) -> bool:
    """Whether a statement makes what is under a name from what it was."""
    own = [node for node in _assignments((source or "").strip()) if name in _last_names(*node.targets)]
    return bool(name) and any(name in _last_names(node.value) for node in own)


def is_new_item(source: str | None, name: str) -> bool:
    """Whether a statement puts under a key of a name what does not come of what is there: ``cache[size] = grid``."""
    for node in _assignments((source or "").strip()):
        targets = (target for target in node.targets if isinstance(target, ast.Subscript))
        if any(last_part(target) == name for target in targets):
            return name not in _last_names(node.value)
    return False


def carries_itself(source: str | None, name: str) -> bool:
    """Whether a statement makes all of what is under a name from all of what it was: a state, and no window of some."""
    for node in _assignments((source or "").strip()):
        tuples = [target.elts for target in node.targets if isinstance(target, ast.Tuple)]
        pairs = [(target, node.value) for target in (*node.targets, *itertools.chain.from_iterable(tuples))]
        if isinstance(node.value, ast.Tuple):
            pairs = [pair for elements in tuples for pair in zip(elements, node.value.elts, strict=False)]
        for target, value in pairs:
            parts = {id(part) for cut in ast.walk(value) if isinstance(cut, ast.Subscript) for part in ast.walk(cut)}
            read = {last_name(part) for part in ast.walk(value) if id(part) not in parts}
            if last_name(target) == name and name in read:
                return True
    return False


def _assignments(text: str) -> list[ast.Assign]:
    tree = parse(text)
    return [node for node in tree.body if isinstance(node, ast.Assign)] if tree is not None else []


def _last_names(*nodes: ast.AST) -> set[str]:
    return {last_name(part) or "" for node in nodes for part in ast.walk(node)}


def keeps_a_slice(source: str | None) -> bool:
    """Whether an assignment keeps only a part of what it joins: ``bank = torch.cat([bank, z])[-256:]``."""
    tree = parse((source or "").strip())
    if tree is None:
        return True  # it cannot be read, so nothing is concluded
    values = [node.value for node in tree.body if isinstance(node, ASSIGNMENTS)]
    parts = (part for value in values for part in (value, method_base(value)))
    return any(isinstance(part, ast.Subscript) and isinstance(part.slice, ast.Slice) for part in parts)
