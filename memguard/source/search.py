"""Searches parsed functions for the statements that store something under a name, and scores them by evidence.

Long because each way to store (by assignment, call, element, return, yield) is weighed against all the others.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from typing import final

from memguard.source.chains import Accessor, Chain, chain_of, chains_of, last_name
from memguard.source.flow import Anchor, aliases_of, depends, expand, forwarded, is_inside
from memguard.source.functions import Function, Site, Store
from memguard.source.sought import Hints, Sought, Statement
from memguard.source.syntax import Source, Sources
from memguard.source.values import may_carry

_MUTATORS: dict[str, frozenset[str]] = {
    "list": frozenset({"append", "extend", "insert", "__iadd__"}),
    "deque": frozenset({"append", "appendleft", "extend", "extendleft", "insert"}),
    "dict": frozenset({"update", "setdefault", "__setitem__", "__ior__"}),
    "set": frozenset({"add", "update", "__ior__"}),
    "tuple": frozenset(),
    "frozenset": frozenset(),
}
_ANY_MUTATOR = frozenset().union(*_MUTATORS.values()) | {"put", "put_nowait", "push", "store", "log", "record"}
_FIRST_ARGUMENT_MUTATORS = frozenset({"heappush", "heappushpop", "insort", "insort_left", "insort_right", "append"})
_QUIET_FUNCTIONS = frozenset({"__init__", "reset", "clear", "setup", "zero", "on_train_start", "__setstate__"})
_READERS = frozenset({"reset", "clear", "compute", "result", "avg", "average", "eval", "train", "to", "parameters"})

MAX_HOPS = 3
"""Calls through which a holder is followed as an argument."""


@final
class Sight:
    """A function, and how the sought name looks in it.

    Args:
        source: The file.
        function: The function.
        anchor: The name as it is written here.
        hops: Calls that led here.
    """

    def __init__(self, source: Source, function: Function, anchor: Anchor, hops: int = 0) -> None:
        self.source, self.function, self.anchor, self.hops = source, function, anchor, hops
        self.aliases = aliases_of(function)


@final
class Search:
    """One search for a name through the functions of some files; `found` are all statements, with their scores."""

    def __init__(self, sought: Sought, sources: Sources, hints: Hints) -> None:
        self.sought, self.sources, self.hints = sought, sources, hints
        self.found: list[Statement] = []
        self._files: list[str] = []
        self._entered: set[tuple[int, str]] = set()
        self._getters: set[Accessor] = set()  # properties and methods that return the sought attribute

    def everywhere(self, files: list[str]) -> None:
        """Searches every function of the files."""
        self._files = list(dict.fromkeys(files))
        words = (self.sought.name, *self.sought.own_classes)
        for file in self._files:
            source = self.sources.get(file) if self.sources.mention(file, words) else None
            if source is None:
                continue
            for function in source.functions if self.sought.attribute else ():
                if function.owner in self.sought.classes and self._returns_it(function):
                    self._getters.add(("attr" if "property" in function.decorators else "call", function.name))
            for function in source.functions:
                anchor = self._anchor(source, function)
                if anchor is not None:
                    self._in_function(Sight(source, function, anchor))
                if function.owner in self.sought.own_classes and function.params:
                    self._in_function(Sight(source, function, Anchor(function.params[0], False)))

    def _returns_it(self, function: Function) -> bool:
        """Whether a method of the owner does no more than return the sought attribute."""
        own = (("name", function.params[0] if function.params else ""), ("attr", self.sought.name))
        return len(function.returns) == 1 and chain_of(function.returns[0]) == own and not function.stores

    def _anchor(self, source: Source, function: Function) -> Anchor | None:
        """How the sought name looks from inside a function; None where it cannot be seen."""
        sought = self.sought
        if sought.attribute:
            return Anchor(sought.name, True)
        home = function.home_of(sought.name)
        if sought.function is None:
            if home.parent is not None:
                return None
            shared = any({source.file, sought.file} <= cells for cells in self.hints.cells)
            if shared or source.file == sought.file or sought.name in source.module.bound:
                return Anchor(sought.name, False)
            return Anchor(sought.name, True)  # state.LOG of another module
        if source.file != sought.file:
            return None
        owner = source.function_at(sought.first_line, sought.function)
        if owner is None or home is not owner.home_of(sought.name):
            return None
        return Anchor(sought.name, False)

    def _in_function(self, sight: Sight) -> None:
        for store in sight.function.stores:
            self._judge_store(sight, store)
        for site in sight.function.calls:
            self._judge_call(sight, site)

    def _judge_store(self, sight: Sight, store: Store) -> None:
        target = chain_of(store.target)
        if target is None or (store.from_loop and sight.anchor.attribute):
            return
        own = len(target) == 1  # a plain name is the variable itself, not what it stands for
        if own and sight.hops and not store.augmented:
            return  # a parameter that gets another value: the caller's name keeps its own
        for chain, rest in self._matches(target, sight, aliases=store.augmented or not own):
            level = self._level(rest)
            if level is None:
                continue
            kind = self._kind(level)
            keys = self._keys_fit(rest)
            if keys is None or not self._carries([store.value], sight):
                continue
            if store.augmented:
                grows = True
                fits = kind in ("tensor", "list", "deque", "dict", "set", "tuple", "object")
            elif rest and rest[-1][0] == "item":
                outer = self._kind(level - 1)
                grows = rest[-1][1] is None or self._depends(store, sight)
                fits = outer in ("dict", "list", "tensor", "object", "deque")
                level -= 1
            else:
                grows = self._depends(store, sight) and not self._fresh(sight)
                fits = True
            if fits:
                base = (3.0 if grows else 1.0) + (0.5 if store.loops else 0.0) + keys
                self._add(sight, store, chain, level, base, grows=grows)
            return

    def _judge_call(self, sight: Sight, site: Site) -> None:
        call = site.node
        name = last_name(call.func) or ""
        if name == "setattr" and len(call.args) == 3 and isinstance(call.args[1], ast.Constant):
            target = ast.Attribute(call.args[0], str(call.args[1].value), ast.Store())
            store = Store(target, call.args[2], site.line, False, site.loops, site.no_grad, end_line=site.end_line)
            self._judge_store(sight, store)
            return
        for chain in chains_of(call.func):
            for full, rest in self._matches(chain, sight):
                method = rest and rest[-1][0] == "attr"
                if method and self._judge_method(sight, site, full, rest):
                    return
                level = self._level(rest)
                if level is not None and self._kind(level) == "object" and self._carries(site.arguments(), sight):
                    self._add(sight, site, full, level, 1.5 if site.loops else 1.0)
                    return  # metric(output, target)
        if name in _FIRST_ARGUMENT_MUTATORS and len(call.args) >= 2:
            first = chain_of(call.args[0])
            for full, rest in self._matches(first, sight) if first else ():
                level = self._level(rest)
                if level is not None and self._kind(level) in ("list", "deque"):
                    self._add(sight, site, full, level, 3.0)
                    return
        for arg in site.arguments():
            self._judge_handed_method(sight, site, arg)
        if sight.hops < MAX_HOPS:
            self._follow_arguments(sight, forwarded(call))

    def _judge_method(self, sight: Sight, site: Site, chain: Chain, rest: Chain) -> bool:
        method = str(rest[-1][1])
        level = self._level(rest[:-1])
        keys = self._keys_fit(rest[:-1])
        if level is None or keys is None or not self._carries(site.arguments(), sight):
            return False
        kind = self._kind(level)
        if kind in _MUTATORS and not (level == 0 and self.sought.own_classes and method not in _READERS):
            fits = method in _MUTATORS[kind] or (method == "setdefault" and kind == "dict")
        elif kind == "tensor":
            fits = method.endswith("_") and not method.endswith("__")
        else:
            fits = method not in _READERS
        if not fits:
            return False
        known = kind == "tensor" or method in _MUTATORS.get(kind, ())
        score = (3.0 if known else 2.0 if method in _ANY_MUTATOR else 1.5) + keys
        score += 0.5 if site.loops else 0.0
        self._add(sight, site, chain, level, score)
        return True

    def _carries(self, args: Iterable[ast.expr], sight: Sight) -> bool:
        hints = self.hints
        something = [arg for arg in args if not (isinstance(arg, ast.Constant) and arg.value is None)]
        return any(hints.numbers or may_carry(arg, sight.function, graph=hints.graph) for arg in something)

    def _judge_handed_method(self, sight: Sight, site: Site, arg: ast.expr) -> None:
        """``map(history.append, losses)``, ``register_hook(grads.append)``: the call hands the mutator over."""
        chain = chain_of(arg) if isinstance(arg, ast.Attribute) else None
        for full, rest in self._matches(chain, sight) if chain is not None else ():
            level = self._level(rest[:-1])
            if rest and level is not None and rest[-1][1] in _MUTATORS.get(self._kind(level), ()):
                self._add(sight, site, full, level, 2.0)

    def _follow_arguments(self, sight: Sight, call: ast.Call) -> None:
        """Where the holder itself is an argument, the search goes on in the function that is called."""
        given: list[tuple[int | str, ast.expr]] = list(enumerate(call.args))
        given += [(item.arg, item.value) for item in call.keywords if item.arg]
        for position, arg in given:
            target = chain_of(arg)
            if target is None or not any(True for _ in self._matches(target, sight)):
                continue
            if any(rest for _, rest in self._matches(target, sight)):
                continue
            for other, callee in self._callees(sight.source, call):
                params = callee.params
                if isinstance(position, int):
                    bound = callee.owner is not None and "staticmethod" not in callee.decorators
                    index = position + (1 if bound else 0)
                    param = params[index] if index < len(params) else None
                else:
                    param = position if position in params else None
                if param is None or (id(callee), param) in self._entered:
                    continue
                self._entered.add((id(callee), param))
                for inner in other.functions:
                    if inner is callee or (inner.home_of(param) is callee and is_inside(inner, callee)):
                        self._in_function(Sight(other, inner, Anchor(param, False), sight.hops + 1))

    def _callees(self, source: Source, call: ast.Call) -> Iterator[tuple[Source, Function]]:
        name = last_name(call.func)
        for file in dict.fromkeys([source.file, *self._files]):
            other = self.sources.get(file) if name is not None and self.sources.mention(file, (name,)) else None
            for function in other.functions if other is not None else ():
                if other is None or function.is_class or not function.params:
                    continue
                if function.name == name or (function.name == "__init__" and function.owner == name):
                    yield other, function

    def _matches(self, chain: Chain, sight: Sight, *, aliases: bool = True) -> Iterator[tuple[Chain, Chain]]:
        """The chain, aliases resolved if wanted, and what follows the sought name in it."""
        anchor = sight.anchor
        for full in expand(chain, sight.aliases if aliases else {}):
            for index, (kind, name) in enumerate(full):
                if anchor.attribute:
                    if not (kind == "attr" and name == anchor.name) and (kind, name) not in self._getters:
                        continue
                elif name != anchor.name or kind != "name":
                    continue
                if anchor.attribute and not self._owner_fits(full[:index], sight.function):
                    continue
                yield full, self._items(full[index + 1 :])
                break

    def _items(self, rest: Chain) -> Chain:
        """The chain with attributes of a dict read as its items, as classes like AttrDict do."""
        steps: list[Accessor] = []
        for kind, key in rest:
            dicts = self._kind(len(steps)) == "dict" and self.sought.own_classes and key not in _MUTATORS["dict"]
            steps.append(("item", key) if kind == "attr" and dicts else (kind, key))
        return tuple(steps)

    def _owner_fits(self, base: Chain, function: Function) -> bool:
        """Whether ``base.attribute`` can belong to the owner: ``self`` only in one of its classes."""
        classes = self.sought.classes
        if not classes or len(base) != 1:
            return True
        owner = next((outer for outer in function.enclosing() if outer.owner is not None), None)
        if owner is None or not owner.params or owner.params[0] != base[0][1]:
            return True
        return owner.owner in classes

    def _level(self, rest: Chain) -> int | None:
        """How many containers lie between the name and what a chain reaches; None if it goes through an attribute."""
        level = 0
        for kind, _ in rest:
            if kind == "item":
                level += 1
            elif kind == "attr" or level == 0:
                return None
        return level

    def _kind(self, level: int) -> str:
        kinds = self.sought.kinds
        return kinds[level] if 0 <= level < len(kinds) else "object"

    def _keys_fit(self, rest: Chain) -> float | None:
        """A bonus for constant keys that agree with those at run time; None when they disagree."""
        bonus = 0.0
        for (kind, key), known in zip(rest, self.sought.keys, strict=False):
            if kind != "item" or key is None or known is None:
                continue
            if key != known:
                return None
            bonus += 1.0
        return bonus

    def _depends(self, store: Store, sight: Sight) -> bool:
        """Whether a value is made from what the holder held before, directly or through names of the function."""
        return depends(store.value, store.line, sight.anchor, sight.source, sight.function)

    def _fresh(self, sight: Sight) -> bool:
        """Whether a variable is a loop's: each turn gives it a new value, so nothing is carried over."""
        name = sight.anchor.name
        fed = sight.function.home_of(name).feeds(name)
        return not sight.anchor.attribute and any(from_loop for _, _, from_loop in fed)

    def _add(
        self, sight: Sight, what: Store | Site, chain: Chain, level: int, score: float, *, grows: bool = True
    ) -> None:
        """Notes a statement, its score raised or lowered by the circumstances."""
        sought, hints = self.sought, self.hints
        asks = isinstance(what, Site) and self._kind(level) == "object"  # metrics.update(x): its parts may take it
        if grows and level < sought.grows and "object" in sought.kinds[level + 1 : sought.grows] and not asks:
            return  # it only puts the object in its place whose container grows
        source, function = sight.source, sight.function
        score -= 0.1 * sight.hops
        if (source.file, function.first_line) in hints.running:
            score += 1.0
        elif (source.file, function.first_line) in hints.calling:
            score += 0.25  # of statements that are alike, one that is known to run
        owner = next((outer.owner for outer in function.enclosing() if outer.owner is not None), None)
        if sought.attribute and owner in sought.classes:
            score += 1.5 - 0.1 * sought.classes.index(owner)
        elif owner is not None and owner in sought.own_classes:
            score += 1.5
        elif sought.attribute and sought.base is not None and sought.base in (step[1] for step in chain):
            score += 0.5
        if what.no_grad and hints.graph:
            score -= 2.5
        if function.name in _QUIET_FUNCTIONS or (function.parent is None and sought.attribute):
            score -= 2.0
        if level == sought.grows:
            score += 0.5
        nodes = [what.value] if isinstance(what, Store) else what.arguments()
        used = {node.id for part in nodes for node in ast.walk(part) if isinstance(node, ast.Name)}
        if used & hints.names:
            score += 1.0
        if hints.evaluates is not None:
            score += _phase(function, evaluates=hints.evaluates)
        quiet = function.name in _QUIET_FUNCTIONS
        certain = isinstance(what, Store) or self._kind(level) != "object" or last_name(what.node.func) in _ANY_MUTATOR
        text = source.text(what.line, what.end_line)
        self.found.append(
            Statement(
                source.file,
                what.line,
                function.path,
                text,
                grows,
                what.loops,
                quiet=quiet,
                certain=certain,
                score=score,
            )
        )


def _phase(function: Function, *, evaluates: bool) -> float:
    """A bonus where a function's name tells the stage, like ``validation_step``, a malus where it tells the other."""
    for outer in function.enclosing():
        words = outer.name.lower()
        if any(word in words for word in ("valid", "eval", "test", "predict", "infer")):
            return 1.0 if evaluates else -1.0
        if "train" in words or "fit" in words:
            return -1.0 if evaluates else 1.0
    return 0.0
