"""Searches the scopes of some files for the statements that store something under a name, and scores them by evidence.

Each way to store (by assignment, call, element, return, yield) is weighed against all the others; what was proven at
run time is only given a line.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import final

from memguard.source.expressions import (
    Accessor,
    Chain,
    arguments,
    called_name,
    calls_in,
    chain_of,
    chains_of,
    is_none,
    names_in,
)
from memguard.source.model import SourceModel, Sources
from memguard.source.name_query import Anchor, NameQuery, SearchContext, Statement, depends, expand, forwarded
from memguard.source.scopes import Call, Scope, Store, is_inside
from memguard.source.values import may_carry, may_make
from memguard.source.vocabulary import ANY_MUTATOR, FIRST_ARGUMENT_MUTATORS, MUTATORS, PREPARES, READERS, STAGES

MAX_HOPS = 3
"""Calls through which a holder is followed as an argument."""
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.GeneratorExp)
_INLINED = (ast.ListComp, ast.SetComp) if sys.version_info >= (3, 12) else ()
"""Those that run in the frame of the function around them."""


def find_statement(
    query: NameQuery, files: Iterable[str], sources: Sources, context: SearchContext
) -> Statement | None:
    """The statement that best explains how tensors came under a name.

    Args:
        query: The name and what lies under it.
        files: Files in which an attribute or a global may be stored, likeliest first.
        sources: The parsed files.
        context: What is known of the run.
    """
    search = _Search(query, sources, context)
    search.everywhere([*([query.file] if query.file else []), *files])
    best = max(search.found, key=lambda statement: (statement.score, -statement.line), default=None)
    return best if best is None else replace(best, also=_also(best, search.found))


def _also(best: Statement, found: Iterable[Statement]) -> tuple[int, ...]:
    """Further lines of its function that add to the same name."""
    if not best.grows:
        return ()
    alike = (one for one in found if (one.file, one.function) == (best.file, best.function))
    return tuple(sorted({one.line for one in alike if one.grows and one.certain} - {best.line}))


def is_alias(query: NameQuery, sources: Sources) -> bool:
    """Whether a variable is only another name of something that has one: ``log = self.log``, a loop's variable."""
    owner = sources.get(query.file).scope_of(query.first_line, query.function or "<module>")
    stores = [s for s in owner.stores if isinstance(s.target, ast.Name) and s.target.id == query.name] if owner else []
    return bool(stores) and all(
        not store.augmented and (store.from_loop or len(chain_of(store.value) or ()) > 1) for store in stores
    )


def find_collecting(
    running: Iterable[tuple[str, int, str | None]], sources: Sources, *, graph: bool = True
) -> Statement | None:
    """A comprehension or generator expression that is being evaluated: what it has collected has no name yet.

    Args:
        running: (file, line, name of the code of the user's that runs there) of the frames on the stack, innermost
            first: the function that is called, or the comprehension itself; None where neither has a frame.
        sources: The parsed files.
        graph: Whether a graph is kept, else any tensor.
    """
    for file, line, called in running:
        # Where nothing of the user's is called, a generator would be running itself, as "<genexpr>".
        kinds = _COMPREHENSIONS if called is not None else _INLINED
        model = sources.get(file)
        for scope, store in ((one, s) for one in model.scopes for s in one.stores):
            if not store.line <= line <= store.end_line or store.from_loop or (graph and store.no_grad):
                continue
            parts = [node for node in ast.walk(store.value) if isinstance(node, kinds)]
            inside = {id(node) for node in calls_in(*parts)}
            if any(called_name(call) == called and id(call) not in inside for call in calls_in(store.value)):
                continue  # they are the arguments of a call that is running
            if any(may_carry(part.elt, scope, graph=graph) for part in parts):
                text = model.text(store.line, store.end_line)
                return Statement(file, store.line, scope.name, text, True, loops=True, score=1.0)
    return None


class _Sight:
    """A function, and how the name looks in it."""

    def __init__(self, model: SourceModel, scope: Scope, anchor: Anchor, hops: int = 0) -> None:
        self.model, self.scope, self.anchor, self.hops = model, scope, anchor, hops
        """`hops`: calls that led here."""


@final
class _Search:
    """One search for a name through the functions of some files; `found` are all statements, with their scores."""

    def __init__(self, query: NameQuery, sources: Sources, context: SearchContext) -> None:
        self.query, self.sources, self.context = query, sources, context
        self.found: list[Statement] = []
        self._files: list[str] = []
        self._entered: set[tuple[int, str]] = set()
        self._getters: set[Accessor] = set()
        """Properties and methods that return the attribute."""

    def everywhere(self, files: list[str]) -> None:
        """Searches every function of the files."""
        self._files = list(dict.fromkeys(files))
        query, words = self.query, (self.query.name, *self.query.own_classes)
        for file in self._files:
            model = self.sources.get(file, words)
            for scope in model.scopes if query.attribute else ():
                if scope.owner in query.classes and self._returns_it(scope):
                    self._getters.add(("attr" if "property" in scope.decorators else "call", scope.name))
            for scope in model.scopes:
                anchor = self._anchor(model, scope)
                if anchor is not None:
                    self._in_scope(_Sight(model, scope, anchor))
                if scope.owner in query.own_classes and scope.params:
                    self._in_scope(_Sight(model, scope, Anchor(scope.params[0], False)))

    def _returns_it(self, scope: Scope) -> bool:
        """Whether a method of the owner does no more than return the attribute."""
        own = (("name", scope.params[0] if scope.params else ""), ("attr", self.query.name))
        return len(scope.returns) == 1 and chain_of(scope.returns[0]) == own and not scope.stores

    def _anchor(self, model: SourceModel, scope: Scope) -> Anchor | None:
        """How the name looks from inside a function; None where it cannot be seen."""
        query = self.query
        if query.attribute:
            return Anchor(query.name, True)
        home = scope.home_of(query.name)
        if query.function is None:
            if home.parent is not None:
                return None
            shared = any({model.file, query.file} <= cells for cells in self.context.cells)
            own = shared or model.file == query.file or query.name in model.module.bound
            return Anchor(query.name, not own)  # else state.LOG of another module
        owner = model.scope_of(query.first_line, query.function) if model.file == query.file else None
        return Anchor(query.name, False) if owner is not None and home is owner.home_of(query.name) else None

    def _in_scope(self, sight: _Sight) -> None:
        for store in sight.scope.stores:
            self._judge_store(sight, store)
        for call in sight.scope.calls:
            self._judge_call(sight, call)

    def _judge_store(self, sight: _Sight, store: Store) -> None:
        target = chain_of(store.target)
        if target is None or (store.from_loop and sight.anchor.attribute):
            return
        own = len(target) == 1  # a plain name is the variable itself, not what it refers to
        if own and sight.hops and not store.augmented:
            return  # a parameter that gets another value: the caller's name keeps its own
        for chain, rest in self._matches(target, sight, aliases=store.augmented or not own):
            level = _level(rest)
            keys = self._keys_fit(rest)
            if level is None or keys is None or not self._carries([store.value], sight):
                continue
            grows, fits = True, True
            if store.augmented:
                fits = self._kind(level) in ("tensor", "object", *MUTATORS) and self._kind(level) != "frozenset"
            elif rest and rest[-1][0] == "item":
                level -= 1
                grows = rest[-1][1] is None or self._depends(store, sight)
                # What is written into a tensor brings a graph along, and no memory.
                fits = self._kind(level) in (
                    "dict",
                    "list",
                    "object",
                    "deque",
                    *(["tensor"] if self.context.graph else []),
                )
            else:
                grows = self._depends(store, sight) and not self._is_loops(sight)
            if fits:
                score = (3.0 if grows else 1.0) + (0.5 if store.loops else 0.0) + keys
                self._add(sight, store, chain, level, score, grows=grows)
            return

    def _judge_call(self, sight: _Sight, call: Call) -> None:
        node, name = call.node, called_name(call.node)
        if name == "setattr" and len(node.args) == 3 and isinstance(node.args[1], ast.Constant):
            target = ast.Attribute(node.args[0], str(node.args[1].value), ast.Store())
            store = Store(target, node.args[2], call.line, False, call.loops, call.no_grad, end_line=call.end_line)
            self._judge_store(sight, store)
            return
        for chain in chains_of(node.func):
            for full, rest in self._matches(chain, sight):
                if rest and rest[-1][0] == "attr" and self._judge_method(sight, call, full, rest):
                    return
                level = _level(rest)
                if level is not None and self._kind(level) == "object" and self._carries(arguments(call.node), sight):
                    self._add(sight, call, full, level, 1.5 if call.loops else 1.0)
                    return  # metric(output, target)
        if name in FIRST_ARGUMENT_MUTATORS and len(node.args) >= 2:
            for full, rest in self._matches(chain_of(node.args[0]), sight):
                level = _level(rest)
                if level is not None and self._kind(level) in ("list", "deque"):
                    self._add(sight, call, full, level, 3.0)
                    return
        for arg in arguments(call.node):  # map(history.append, losses), register_hook(grads.append)
            for full, rest in self._matches(chain_of(arg), sight) if isinstance(arg, ast.Attribute) else ():
                level = _level(rest[:-1])
                if rest and level is not None and rest[-1][1] in MUTATORS.get(self._kind(level), ()):
                    self._add(sight, call, full, level, 2.0)
        if sight.hops < MAX_HOPS:
            self._follow_arguments(sight, forwarded(node))

    def _judge_method(self, sight: _Sight, call: Call, chain: Chain, rest: Chain) -> bool:
        method, level, keys = str(rest[-1][1]), _level(rest[:-1]), self._keys_fit(rest[:-1])
        if level is None or keys is None or not self._carries(arguments(call.node), sight):
            return False
        kind = self._kind(level)
        if kind in MUTATORS and not (level == 0 and self.query.own_classes and method not in READERS):
            fits = method in MUTATORS[kind]
        elif kind == "tensor":
            fits = method.endswith("_") and not method.endswith("__")
        else:
            fits = method not in READERS
        if fits:
            known = kind == "tensor" or method in MUTATORS.get(kind, ())
            score = (3.0 if known else 2.0 if method in ANY_MUTATOR else 1.5) + keys
            self._add(sight, call, chain, level, score + (0.5 if call.loops else 0.0))
        return fits

    def _carries(self, args: Iterable[ast.expr], sight: _Sight) -> bool:
        context, beside = self.context, dict(self.query.beside)
        something = [arg for arg in args if not is_none(arg) and (not beside or may_make(arg, beside))]
        return any(context.numbers or may_carry(arg, sight.scope, graph=context.graph) for arg in something)

    def _follow_arguments(self, sight: _Sight, call: ast.Call) -> None:
        """Where the holder itself is an argument, the search goes on in the function that is called."""
        given: list[tuple[int | str, ast.expr]] = list(enumerate(call.args))
        given += [(item.arg, item.value) for item in call.keywords if item.arg]
        for position, arg in given:
            rests = [rest for _, rest in self._matches(chain_of(arg), sight)]
            if not rests or any(rests):
                continue
            for other, callee in self._callees(sight.model, call):
                params = callee.params[int(callee.owner is not None and "staticmethod" not in callee.decorators) :]
                if isinstance(position, int):
                    param = params[position] if position < len(params) else None
                else:
                    param = position if position in callee.params else None
                if param is None or (id(callee), param) in self._entered:
                    continue
                self._entered.add((id(callee), param))
                for inner in other.scopes:
                    if inner is callee or (inner.home_of(param) is callee and is_inside(inner, callee)):
                        self._in_scope(_Sight(other, inner, Anchor(param, False), sight.hops + 1))

    def _callees(self, model: SourceModel, call: ast.Call) -> Iterator[tuple[SourceModel, Scope]]:
        name = called_name(call)
        for file in dict.fromkeys([model.file, *self._files]):
            other = self.sources.get(file, (name,))
            for scope in other.scopes if name else ():
                fits = scope.name == name or (scope.name == "__init__" and scope.owner == name)
                if fits and not scope.is_class and scope.params:
                    yield other, scope

    def _matches(self, chain: Chain | None, sight: _Sight, *, aliases: bool = True) -> Iterator[tuple[Chain, Chain]]:
        """The chain, aliases resolved if wanted, and what follows the name in it."""
        anchor = sight.anchor
        for full in expand(chain, sight.scope.aliases if aliases else {}) if chain is not None else ():
            for index, step in enumerate(full):
                if anchor.attribute:
                    fits = step == ("attr", anchor.name) or step in self._getters
                    fits = fits and self._owner_fits(full[:index], sight.scope)
                else:
                    fits = step == ("name", anchor.name)
                if fits:
                    yield full, self._items(full[index + 1 :])
                    break

    def _items(self, rest: Chain) -> Chain:
        """The chain with attributes of a dict read as its items, as classes like AttrDict do."""
        steps: list[Accessor] = []
        for kind, key in rest:
            dicts = self._kind(len(steps)) == "dict" and self.query.own_classes and key not in MUTATORS["dict"]
            steps.append(("item", key) if kind == "attr" and dicts else (kind, key))
        return tuple(steps)

    def _owner_fits(self, base: Chain, scope: Scope) -> bool:
        """Whether ``base.attribute`` can belong to the owner: ``self`` only in one of its classes."""
        owner = scope.method_owner
        if not self.query.classes or len(base) != 1 or owner is None:
            return True
        return not owner.params or owner.params[0] != base[0][1] or owner.owner in self.query.classes

    def _kind(self, level: int) -> str:
        kinds = self.query.kinds
        return kinds[level] if 0 <= level < len(kinds) else "object"

    def _keys_fit(self, rest: Chain) -> float | None:
        """A bonus for constant keys that agree with those at run time; None when they disagree."""
        pairs = zip(rest, self.query.keys, strict=False)
        constant = [(key, known) for (kind, key), known in pairs if kind == "item" and None not in (key, known)]
        return float(len(constant)) if all(key == known for key, known in constant) else None

    def _depends(self, store: Store, sight: _Sight) -> bool:
        """Whether a value is made from what the holder held before, directly or through names of the function."""
        return depends(store.value, store.line, sight.anchor, sight.model, sight.scope, set())

    def _is_loops(self, sight: _Sight) -> bool:
        """Whether a variable is a loop's: each turn gives it a new value, so nothing is carried over."""
        name = sight.anchor.name
        fed = sight.scope.home_of(name).feeds(name)
        return not sight.anchor.attribute and any(from_loop for _, _, from_loop in fed)

    def _add(
        self, sight: _Sight, what: Store | Call, chain: Chain, level: int, score: float, *, grows: bool = True
    ) -> None:
        """Notes a statement, its score raised or lowered by the circumstances."""
        query, context, model, scope = self.query, self.context, sight.model, sight.scope
        asks = isinstance(what, Call) and self._kind(level) == "object"  # metrics.update(x): its parts may take it
        place, quiet = (model.file, scope.first_line), scope.name in PREPARES
        owner = scope.method_owner.owner if scope.method_owner is not None else None
        score -= 0.1 * sight.hops
        score += 1.0 if place in context.running else 0.25 if place in context.calling else 0.0
        score -= 1.0 if _is_in_other_loop(model, what.line, context.running.get(place)) else 0.0
        if query.attribute and owner in query.classes:
            score += 1.5 - 0.1 * query.classes.index(owner)
        elif owner is not None and owner in query.own_classes:
            score += 1.5
        elif query.attribute and query.base is not None and query.base in (step[1] for step in chain):
            score += 0.5
        if what.no_grad and context.graph:
            score -= 2.5
        if quiet or (scope.parent is None and query.attribute):
            score -= 2.0
        score += 0.5 if level == query.grows else 0.0
        nodes = [what.value] if isinstance(what, Store) else arguments(what.node)
        score += 1.0 if any(name in context.names for part in nodes for name in names_in(part)) else 0.0
        score += _stage_fits(scope, evaluates=context.evaluates) if context.evaluates is not None else 0.0
        certain = isinstance(what, Store) or not asks or called_name(what.node) in ANY_MUTATOR
        text = model.text(what.line, what.end_line)
        self.found.append(Statement(model.file, what.line, scope.path, text, grows, what.loops, quiet, certain, score))


def _level(rest: Chain) -> int | None:
    """How many containers lie between the name and what a chain reaches; None if it goes through an attribute."""
    level = 0
    for kind, _ in rest:
        if kind == "item":
            level += 1
        elif kind == "attr" or level == 0:
            return None
    return level


def _is_in_other_loop(model: SourceModel, line: int, running: int | None) -> bool:
    """Whether a line lies in a loop of its function, and the line that runs there in a loop beside that one."""
    if running is None:
        return False
    loops, now = model.around(line)[1], model.around(running)[1]
    return bool(loops and now) and not any(loop is other for loop in loops for other in now)


def _stage_fits(scope: Scope, *, evaluates: bool) -> float:
    """A bonus where a function's name tells the stage, like ``validation_step``, a malus where it tells the other."""
    for outer in scope.visible():
        words = outer.name.lower()
        if any(word in words for word in STAGES):
            return 1.0 if evaluates else -1.0
        if "train" in words or "fit" in words:
            return -1.0 if evaluates else 1.0
    return 0.0
