"""What limits a growing container: the reasons in the source, and whether it is a cache."""

from __future__ import annotations

import ast
import enum
import itertools
from collections.abc import Iterator
from typing import final

from memguard.source.expressions import (
    FUNCTIONS,
    assigns,
    called_name,
    calls_in,
    first_line,
    is_none,
    last_part,
    method_base,
    spans,
    symbol_of,
)
from memguard.source.model import SourceModel
from memguard.source.resets import (
    asks_first,
    begins_anew,
    begins_attribute,
    catches_missing_key,
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
from memguard.source.steps import suites_of
from memguard.source.vocabulary import REMEMBERS

_LEAVES = (ast.Return, ast.Continue)


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
    """It is a local variable of one pass over the data, which ends with its function."""
    ENDS_LAST = enum.auto()
    """The same of a function that is called once and trains: it ends with the run."""
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
    if model is None or line is None or not holder or name == "_trainer":
        return Bound.UNKNOWN  # Lightning's own loop keeps it for its caller: what trainer.predict() returns
    function, loops = model.around(line)
    nodes, inside = model.nodes, list(ast.walk(function))
    found = Bound(0)
    if any(is_comprehension(node, name, line) for node in nodes):
        found |= Bound.REBUILT
    if attribute and any(begins_attribute(node, name) for node in model.functions):
        found |= Bound.REBUILT
    if attribute and is_reset_by_base(model, holder.rpartition(".")[0]):
        found |= Bound.REBUILT
    if any(begins_anew(node, name) for loop in loops[:-1] for node in loop.body):
        found |= Bound.REBUILT
    if any(removes(node, name, attribute) for node in nodes) or removals_by_alias(model, name):
        found |= Bound.REMOVED
    if is_counted(model, line) or any(is_measured(node, name) for node in model.all_of(ast.Compare)):
        found |= Bound.MEASURED
    if any(_is_by_index(node, name, line, function) for node in inside):
        found |= Bound.INDEXED
    if asks_first(function, line):
        found |= Bound.KEYED
    if attribute or len(loops) > 1 or not any(assigns(node, name) for node in inside):
        return found  # of an attribute or a global only these count
    if isinstance(function, FUNCTIONS):
        return found | (Bound.ENDS_LAST if trains(loops, model) and runs_once(model, function) else Bound.ENDS)
    return found | (Bound.EVALUATION if evaluates and not trains(loops, model) else Bound(0))


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
    """Whether a container never holds more than so much: it has a maxlen, or something is taken out of it.

    Args:
        file: Where it is filled.
        holder: Its name, like ``best`` or ``Trainer.best``.
    """
    model, (name, attribute) = SourceModel.of(file), symbol_of(holder)
    if model is None or not holder:
        return False
    return any(removes(node, name, attribute) for node in model.nodes) or bool(removals_by_alias(model, name))


def is_made_anew(file: str | None, line: int | None, holder: str | None) -> bool:
    """Whether each turn of the loop around a line first gives a name something that does not come of what it was.

    ``images = batch.to(device)`` and then ``images = interpolate(images, size)``: its size changes, and nothing grows.

    Args:
        file: Where it is set.
        line: A statement that sets it.
        holder: Its name.
    """
    model, (name, _) = SourceModel.of(file), symbol_of(holder)
    if model is None or line is None or not holder:
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

    Args:
        file: Where it is.
        line: The statement, or a cached function's first line.
        holder: Its name, like ``mask`` or ``Net.masks``.
    """
    model, (name, _) = SourceModel.of(file), symbol_of(holder)
    if model is None or line is None or not holder:
        return False
    for node in model.functions_named(name):
        if first_line(node) <= line <= node.lineno and any(called_name(d) in REMEMBERS for d in node.decorator_list):
            return True
    function = model.function_at(line)
    for statement in ast.walk(function):  # self.filters = functools.lru_cache(maxsize=None)(self._filters)
        is_made = isinstance(statement, ast.Assign) and spans(statement, line) and assigns(statement, name)
        if is_made and any(called_name(call) in REMEMBERS for call in calls_in(statement)):
            return True
    fillings = (_Filling(function, target, path) for target, path in _fillings(function, line))
    return any(filling.is_for_want_of_key() for filling in fillings)


def _fillings(function: ast.AST, line: int) -> Iterator[tuple[ast.Subscript, list[ast.AST]]]:
    """What a line gives a value under a key, each with the nodes from the function down to the statement."""
    stack: list[list[ast.AST]] = [[function]]
    while stack:
        path = stack.pop()
        node = path[-1]
        if isinstance(node, ast.Assign) and spans(node, line):
            yield from ((target, path) for target in node.targets if isinstance(target, ast.Subscript))
        stack.extend([*path, child] for child in ast.iter_child_nodes(node) if not isinstance(child, ast.expr))


@final
class _Filling:
    """One statement that stores under a key: ``self.masks[n] = mask``.

    Args:
        function: The function around it.
        target: What it gives a value.
        path: From the function down to the statement.
    """

    def __init__(self, function: ast.AST, target: ast.Subscript, path: list[ast.AST]) -> None:
        self._nodes, self._path = list(ast.walk(function)), path
        self._container, self._key = ast.unparse(target.value), ast.unparse(target.slice)
        self._got: set[str] = set()
        """Variables that have what ``get`` gave for the key."""
        for node in self._nodes:
            if isinstance(node, (ast.NamedExpr, ast.Assign)) and self._is_got(node.value):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                self._got.update(one.id for one in targets if isinstance(one, ast.Name))

    def is_for_want_of_key(self) -> bool:
        """Whether it is done where the key lacks, nothing else is stored there, and what is stored is read back."""
        items = [node for node in self._nodes if isinstance(node, ast.Subscript) and self._is_item(node)]
        reads = [item for item in items if isinstance(item.ctx, ast.Load)]
        if len(items) - len(reads) != 1 or not self._is_guarded():
            return False
        return bool(reads) or bool(self._got) or len(getattr(self._path[-1], "targets", ())) > 1

    def _is_guarded(self) -> bool:
        """Whether it is not reached with a key that is there."""
        for outer, inner in itertools.pairwise(self._path):
            if isinstance(outer, ast.If) and self._says(outer.test, there=inner not in outer.body):
                return True
            if isinstance(inner, ast.ExceptHandler) and isinstance(outer, ast.Try) and self._tries(outer):
                return True
            for block in (suite for suite in suites_of(outer) if inner in suite):
                before = block[: block.index(inner)]  # type: ignore[arg-type]
                if any(self._leaves(statement) for statement in before):
                    return True
        return False

    def _leaves(self, statement: ast.stmt) -> bool:
        """Whether a statement ends the call, or the turn of a loop, with what is there."""
        if isinstance(statement, ast.If):
            return self._says(statement.test, there=True) and isinstance(statement.body[-1], _LEAVES)
        return isinstance(statement, ast.Try) and self._tries(statement) and isinstance(statement.body[-1], _LEAVES)

    def _tries(self, statement: ast.Try) -> bool:
        """Whether it reads the key, and catches that it lacks."""
        inside = (node for part in statement.body for node in ast.walk(part))
        return catches_missing_key(statement) and any(map(self._is_item, inside))

    def _says(self, test: ast.expr, *, there: bool) -> bool:
        """Whether a test holds where the key is there, or where it lacks; one of several that are joined will do."""
        if isinstance(test, ast.BoolOp):
            return any(self._says(part, there=there) for part in test.values)
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            return self._says(test.operand, there=not there)
        if not isinstance(test, ast.Compare):
            return there and self._is_got(test)
        operator, other = test.ops[0], test.comparators[0]
        if isinstance(operator, (ast.In, ast.NotIn)):
            is_asked = ast.unparse(method_base(other) or other) == self._container
            return is_asked and ast.unparse(test.left) == self._key and isinstance(operator, ast.In) is there
        if not is_none(other) or not isinstance(operator, (ast.Is, ast.IsNot)):
            return False
        return self._is_got(test.left) and isinstance(operator, ast.IsNot) is there

    def _is_item(self, node: ast.AST) -> bool:
        """Whether it is what lies under the key."""
        if not isinstance(node, ast.Subscript):
            return False
        return ast.unparse(node.value) == self._container and ast.unparse(node.slice) == self._key

    def _is_got(self, node: ast.expr) -> bool:
        """Whether it is what ``get`` gave for the key."""
        if isinstance(node, ast.NamedExpr):
            return self._is_got(node.value)
        if isinstance(node, ast.Name):
            return node.id in self._got
        if not isinstance(node, ast.Call) or called_name(node) != "get" or (base := method_base(node)) is None:
            return False
        return ast.unparse(base) == self._container and bool(node.args) and ast.unparse(node.args[0]) == self._key
