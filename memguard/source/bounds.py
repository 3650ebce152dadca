"""What limits a growing container: the reasons in the source, and whether it is a cache."""

from __future__ import annotations

import ast
import enum
from collections.abc import Iterator
from typing import final

from memguard.records.facts import Place
from memguard.source.expressions import (
    FUNCTIONS,
    assigned_pairs,
    assigns,
    called_name,
    calls_in,
    first_line,
    flat_targets,
    item_base,
    last_part,
    mentions,
    method_base,
    spans,
    symbol_of,
    targets_of,
)
from memguard.source.model import SourceModel
from memguard.source.resets import (
    asks_first,
    begins_anew,
    begins_attribute,
    is_comprehension,
    is_counted,
    is_measured,
    is_reset_by_base,
    measured,
    removals_by_alias,
    removes,
    runs_once,
    trains,
)
from memguard.source.vocabulary import ADDS, REMEMBERS, REMOVES


@final
class Bound(enum.Flag):
    """Reasons why a container stays small. A caller that knows better leaves some out: ``bound & ~Bound.MEASURED``."""

    REBUILT = enum.auto()
    """A comprehension makes it; or it is begun anew by another method, a library's ``reset``, or in an outer loop."""
    REMOVED = enum.auto()
    """Something is taken out of it, or it has a maxlen."""
    MEASURED = enum.auto()
    """Its length is compared, or it is filled while a counter is below something."""
    INDEXED = enum.auto()
    """A dataset's cache by index: it has at most one element for each sample."""
    KEYED = enum.auto()
    """It is asked for a key before it is filled: how many keys there are, only the run can show."""
    ENDS = enum.auto()
    """It is a local variable of one pass over the data, which ends with its function, not with the run."""
    EVALUATION = enum.auto()
    """It is a script's variable, filled in one pass that does not train."""
    UNKNOWN = enum.auto()
    """The source cannot be read: nothing speaks against a limit."""


NO_CACHE = ~(Bound.INDEXED | Bound.KEYED)
"""For what each worker fills by itself."""


def bounds_of(file: str | None, line: int | None, holder: str | None, *, evaluates: bool = False) -> Bound:
    """All that limits a container that grows.

    Args:
        file: Where it grows.
        line: The statement that adds to it.
        holder: Its name, like ``preds`` or ``Trainer.outputs``.
        evaluates: Whether it grows in evaluation: a script's one pass counts then.
    """
    model = SourceModel.of(file)
    name, attribute = symbol_of(holder)
    if not model.is_read or line is None or not holder or name == "_trainer":
        return Bound.UNKNOWN  # Lightning's own loop keeps it for its caller: what trainer.predict() returns
    function, loops = model.around(line)
    nodes, inside = model.nodes if attribute else list(ast.walk(_home(model, name, line))), list(ast.walk(function))
    found = Bound(0)
    if any(is_comprehension(node, name, line) for node in nodes):
        found |= Bound.REBUILT
    if attribute and any(begins_attribute(node, name) for node in model.functions):
        found |= Bound.REBUILT
    if attribute and is_reset_by_base(model, holder.rpartition(".")[0]):
        found |= Bound.REBUILT
    if any(begins_anew(node, name) for loop in loops[:-1] for node in loop.body):
        found |= Bound.REBUILT
    by_alias = removals_by_alias(model, name)
    if any(removes(node, name, attribute) or id(node) in by_alias for node in nodes):
        found |= Bound.REMOVED
    if is_counted(model, line) or any(is_measured(node, name) for node in nodes):
        found |= Bound.MEASURED
    if any(_is_by_index(node, name, line, function) for node in inside):
        found |= Bound.INDEXED
    if asks_first(function, line):
        found |= Bound.KEYED
    if attribute or len(loops) > 1 or not any(assigns(node, name) for node in inside):
        return found  # of an attribute or a global only these count
    if isinstance(function, FUNCTIONS):
        return found if trains(loops, model) and runs_once(model, function) else found | Bound.ENDS
    return found | (Bound.EVALUATION if evaluates and not trains(loops, model) else Bound(0))


def is_learned_from(place: Place) -> bool:
    """Whether what is kept at a place is emptied, and a loop or function that runs a backward reads it before.

    The moves of a roll-out are needed there. What only ends with its function is not emptied in time. To add to it, to
    empty it, to ask its length or for a key is no reading.
    """
    model, line = SourceModel.of(place.file), place.line
    name, attribute = symbol_of(place.holder)
    if not model.is_read or line is None or not name:
        return False
    if not bounds_of(place.file, line, place.holder) & (Bound.REMOVED | Bound.REBUILT):
        return False
    home = model.tree if attribute else _home(model, name, line)
    for call in model.all_of(ast.Call):
        if called_name(call) != "backward" or not (home is model.tree or spans(home, call.lineno)):
            continue
        function, loops = model.around(call.lineno)
        around: ast.AST = loops[-1] if loops else function
        if around is model.tree:
            continue
        passing = {id(part) for node in ast.walk(around) for part in _only_passing(node)}
        names = (node for node in ast.walk(around) if isinstance(node, ast.Attribute if attribute else ast.Name))
        if any(last_part(node) == name and id(node) not in passing for node in names):
            return True
    return False


def _only_passing(node: ast.AST) -> Iterator[ast.expr]:
    """What a call adds to, empties or measures, what is asked for a key, and what a statement sets."""
    if isinstance(node, ast.Call):
        base = method_base(node)
        if base is not None and called_name(node) in ADDS | REMOVES:
            yield base
        if called_name(node) == "len":
            yield from node.args
    elif isinstance(node, ast.Compare) and isinstance(node.ops[0], (ast.In, ast.NotIn)):
        yield from node.comparators
    elif isinstance(node, (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Delete)):
        yield from (item_base(target) for target in flat_targets(targets_of(node)))


def _home(model: SourceModel, name: str, line: int) -> ast.AST:
    """The function around a line whose variable a name is, or the module."""
    home: ast.AST = model.tree
    for node in model.functions:
        if spans(node, line):
            given = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
            if any(one.arg == name for one in given) or any(assigns(part, name) for part in ast.walk(node)):
                home = node
    return home


@final
class Reset(enum.Enum):
    """How soon what grows is emptied."""

    NEVER = "never"
    ELSEWHERE = "elsewhere"
    """In an outer loop, or by another method: at the end of an epoch, say."""
    HERE = "here"
    """In the loop that fills it, or it has a limit."""


_LIMITS = Bound.UNKNOWN | Bound.REMOVED | Bound.MEASURED | Bound.INDEXED | Bound.KEYED
_CUTS = frozenset({"detach", "detach_"})


def reset_of(file: str | None, line: int | None, holder: str | None) -> Reset:
    """Where what a statement fills is emptied or begun anew."""
    bounds, (name, attribute) = bounds_of(file, line, holder), symbol_of(holder)
    model = SourceModel.of(file)
    if line is None or bounds & _LIMITS:
        return Reset.HERE
    loops = model.around(line)[1]
    turn = ast.walk(loops[-1] if loops else model.function_at(line))
    anew = any(_takes_turns(node) if spans(node, line) else begins_anew(node, name) for node in turn)
    scope = model.tree if attribute else _home(model, name, line)
    if anew or any(_cuts(node, name) for node in ast.walk(scope)):
        return Reset.HERE
    return Reset.ELSEWHERE if bounds & (Bound.REBUILT | Bound.ENDS) else Reset.NEVER


def _takes_turns(node: ast.AST) -> bool:
    """Whether a statement stores under one key after the other, again and again: ``ring[step % 5] = loss``."""
    targets = node.targets if isinstance(node, ast.Assign) else []
    keys = [target.slice for target in targets if isinstance(target, ast.Subscript)]
    return any(isinstance(part, ast.Mod) for key in keys for part in ast.walk(key))


def _cuts(node: ast.AST, name: str) -> bool:
    """Whether a statement cuts the graph of what a name holds: ``state = state.detach()``, ``state.detach_()``."""
    bases = [last_part(item_base(target)) for target in flat_targets(targets_of(node))]
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and called_name(node.value) == "detach_":
        bases = [last_part(method_base(node.value))]
    return name in bases and any(isinstance(n, ast.Attribute) and n.attr in _CUTS for n in ast.walk(node))


def _is_by_index(node: ast.AST, name: str, line: int, function: ast.AST) -> bool:
    """Whether a dataset stores something under the index that it was asked for: ``self.cache[i] = sample``."""
    if not isinstance(function, ast.FunctionDef) or function.name != "__getitem__" or len(function.args.args) < 2:
        return False
    if not isinstance(node, ast.Assign) or not spans(node, line):
        return False
    index = function.args.args[1].arg
    stored = (target for target in node.targets if isinstance(target, ast.Subscript))
    return any(last_part(t.value) == name and isinstance(t.slice, ast.Name) and t.slice.id == index for t in stored)


def has_limit(file: str | None, holder: str | None) -> bool:
    """Whether a container never holds more than so much: it has a maxlen, or something is taken out of it."""
    model, (name, attribute) = SourceModel.of(file), symbol_of(holder)
    if not holder:
        return False
    return any(removes(node, name, attribute) for node in model.nodes) or bool(removals_by_alias(model, name))


def is_made_anew(file: str | None, line: int | None, holder: str | None) -> bool:
    """Whether each turn of the loop around a line first gives a name something that does not come of what it was.

    ``images = batch.to(device)`` and then ``images = interpolate(images, size)``: its size changes, and nothing grows.
    """
    model, (name, _) = SourceModel.of(file), symbol_of(holder)
    if line is None or not holder:
        return False
    function, loops = model.around(line)
    body = loops[-1].body if loops else [] if function is model.tree else function.body
    return any(begins_anew(statement, name) and statement.lineno < line for statement in body)


# Limits of a length


Limit = ast.expr
"""What a length is compared with."""


def length_limits(model: SourceModel, name: str) -> list[Limit]:
    """What the length of a name is compared with."""
    found = []
    for node in model.all_of(ast.Compare):
        if is_measured(node, name):
            found += [side for side in (node.left, *node.comparators) if last_part(measured(side)) != name]
    return found


def constant_of(model: SourceModel, node: ast.expr) -> int | float | None:
    """The number that an expression is: ``50_000``, ``10 ** 6``, ``int(1e6)``, a constant of the module."""
    if isinstance(node, ast.Name):
        values = [one.value for one in model.tree.body if isinstance(one, ast.Assign) and assigns(one, node.id)]
        return _number(values[0]) if len(values) == 1 else None
    return _number(node)


def _number(node: ast.expr) -> int | float | None:
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, (int, float)) and not isinstance(node.value, bool) else None
    if isinstance(node, ast.Call) and called_name(node) == "int" and len(node.args) == 1:
        return _number(node.args[0])
    if not isinstance(node, ast.BinOp) or not isinstance(node.op, (ast.Mult, ast.Pow)):
        return None
    left, right = _number(node.left), _number(node.right)
    if left is None or right is None:
        return None
    if isinstance(node.op, ast.Mult):
        return left * right
    return left**right if 0 <= right <= 12 and abs(left) <= 1024 else None


# Caches


def is_cache(file: str | None, line: int | None, holder: str | None) -> bool:
    """Whether a statement fills a cache: a function that remembers its answers, a dict that lacked a key.

    Such a thing is read back under the key that it is filled under, and filled for want of that key alone. Results that
    pile up are not: a check against duplicates reads nothing back, a bank or a sum stores under keys that it has, too.
    """
    model, (name, _) = SourceModel.of(file), symbol_of(holder)
    if line is None or not holder:
        return False
    for node in model.functions_named(name):
        if first_line(node) <= line <= node.lineno and any(called_name(d) in REMEMBERS for d in node.decorator_list):
            return True
    function = model.function_at(line)
    for statement in ast.walk(function):  # self.filters = functools.lru_cache(maxsize=None)(self._filters)
        is_made = isinstance(statement, ast.Assign) and spans(statement, line) and assigns(statement, name)
        if is_made and any(called_name(call) in REMEMBERS for call in calls_in(statement)):
            return True
    return asks_first(function, line) and _is_read_back(function, line)


def _is_read_back(function: ast.AST, line: int) -> bool:
    """Whether what a line stores under a key is made of nothing that lay there, stored there alone, and read."""
    nodes = list(ast.walk(function))
    here = (node for node in nodes if isinstance(node, ast.Assign) and spans(node, line))
    for statement, item in ((one, target) for one in here for target in one.targets):
        if isinstance(item, ast.Subscript):
            same = [n for n in nodes if isinstance(n, ast.Subscript) and ast.unparse(n) == ast.unparse(item)]
            reads = [one for one in same if isinstance(one.ctx, ast.Load)]
            pairs = [pair for node in nodes for pair in assigned_pairs(node) if called_name(pair[1]) == "get"]
            got = {ast.unparse(name) for name, call in pairs if last_part(method_base(call)) == last_part(item.value)}
            made = statement.value if not isinstance(statement.value, ast.Name) else item
            if len(same) - len(reads) == 1 and not mentions(made, got):
                return bool(reads or got) or len(statement.targets) > 1
    return False
