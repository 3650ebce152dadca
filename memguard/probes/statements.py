"""The statement that makes something grow, by the syntax tree; only places a line for what was proven at run time."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import final

from memguard.probes.syntax import (
    Accessor,
    Chain,
    Function,
    Site,
    Source,
    Sources,
    Store,
    chain_of,
    chains_of,
    last_name,
)
from memguard.probes.values import may_carry

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

_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.GeneratorExp)

MAX_HOPS = 3


@final
@dataclass(frozen=True, slots=True)
class Sought:
    """A name that holds something, and what lies between the name and the tensors."""

    name: str
    attribute: bool = False
    """Whether the name is an object's attribute, else it is a variable."""
    file: str | None = None
    """For a variable: the file of its function or module."""
    first_line: int = 0
    function: str | None = None
    """For a variable: its function, None for a module's global."""
    classes: tuple[str, ...] = ()
    """For an attribute: names of the owner's classes, in the order of inheritance."""
    base: str | None = None
    """For an attribute: the name under which its owner was met."""
    own_classes: tuple[str, ...] = ()
    """Names of the user's classes of the value itself: a list that logs in methods of its own."""
    kinds: tuple[str, ...] = ()
    """Kinds of the objects from the name's own value down to the tensor, like ("dict", "list", "tensor")."""
    keys: tuple[str | int | None, ...] = ()
    """The key that leads from each of these to the next, None where it has no constant one."""
    grows: int = 0
    """Position of the longest container among `kinds`."""


@final
@dataclass(frozen=True, slots=True)
class Hints:
    """What is known of the run beside the name."""

    graph: bool = True
    """Whether a graph is kept (a detached value cannot), else any tensor."""
    numbers: bool = False
    """Whether plain values count as well."""
    running: frozenset[tuple[str, int]] = frozenset()
    """(file, first line) of the functions on the stack."""
    names: frozenset[str] = frozenset()
    """Variables that refer to the same tensors."""
    evaluates: bool | None = None
    """Whether the tensors come from an evaluation stage, if known."""


@final
@dataclass(frozen=True, slots=True)
class Statement:
    """A statement that makes the holder grow, or gives it its value."""

    file: str
    line: int
    function: str
    source: str
    grows: bool
    """Whether it adds to what was there; False for a plain assignment."""
    loops: bool = False
    """Whether it stands in a loop."""
    quiet: bool = False
    """Whether it stands in a function that prepares, like ``__init__``."""
    certain: bool = True
    """False for a call that only may store what it is given, like ``metric(output)`` of an installed class."""
    score: float = field(default=0.0, compare=False)


def find_statement(sought: Sought, files: Iterable[str], sources: Sources, hints: Hints) -> Statement | None:
    """The statement that best explains how tensors came under a name.

    Args:
        sought: The name and what lies under it.
        files: Files in which an attribute or a global may be stored, likeliest first.
        sources: The parsed files.
        hints: What is known of the run.
    """
    search = _Search(sought, sources, hints)
    search.everywhere([*([sought.file] if sought.file else []), *files])
    return max(search.found, key=lambda statement: (statement.score, -statement.line), default=None)


@final
class _Search:
    def __init__(self, sought: Sought, sources: Sources, hints: Hints) -> None:
        self.sought, self.sources, self.hints = sought, sources, hints
        self.found: list[Statement] = []
        self._files: list[str] = []
        self._entered: set[tuple[int, str]] = set()
        self._getters: set[Accessor] = set()  # properties and methods that return the sought attribute

    def everywhere(self, files: list[str]) -> None:
        self._files = list(dict.fromkeys(files))
        for file in self._files:
            source = self.sources.get(file)
            if source is None:
                continue
            for function in source.functions if self.sought.attribute else ():
                if function.owner in self.sought.classes and self._returns_it(function):
                    self._getters.add(("attr" if "property" in function.decorators else "call", function.name))
            for function in source.functions:
                self._in_function(source, function, self._anchor(source, function), 0)
                if function.owner in self.sought.own_classes and function.params:
                    self._in_function(source, function, _Anchor(function.params[0], False), 0)

    def _returns_it(self, function: Function) -> bool:
        """Whether a method of the owner does no more than return the sought attribute."""
        own = (("name", function.params[0] if function.params else ""), ("attr", self.sought.name))
        return len(function.returns) == 1 and chain_of(function.returns[0]) == own and not function.stores

    def _anchor(self, source: Source, function: Function) -> _Anchor | None:
        """How the sought name looks from inside a function; None where it cannot be seen."""
        sought = self.sought
        if sought.attribute:
            return _Anchor(sought.name, True)
        home = function.home_of(sought.name)
        if sought.function is None:
            if home.parent is not None:
                return None
            if source.file == sought.file or sought.name in source.module.bound:
                return _Anchor(sought.name, False)
            return _Anchor(sought.name, True)  # state.LOG of another module
        if source.file != sought.file:
            return None
        owner = source.function_at(sought.first_line, sought.function)
        if owner is None or home is not owner.home_of(sought.name):
            return None
        return _Anchor(sought.name, False)

    def _in_function(self, source: Source, function: Function, anchor: _Anchor | None, hops: int) -> None:
        if anchor is None:
            return
        aliases = _aliases(function)
        for store in function.stores:
            self._judge_store(source, function, store, anchor, aliases, hops)
        for site in function.calls:
            self._judge_call(source, function, site, anchor, aliases, hops)

    # -- one store ----------------------------------------------------------------------------------------------

    def _judge_store(
        self, source: Source, function: Function, store: Store, anchor: _Anchor, aliases: _Aliases, hops: int
    ) -> None:
        target = chain_of(store.target)
        if target is None or (store.from_loop and anchor.attribute):
            return
        own = len(target) == 1  # a plain name is the variable itself, not what it stands for
        for chain, rest in self._matches(target, anchor, {} if own and not store.augmented else aliases, function):
            level = self._level(rest)
            if level is None:
                continue
            kind = self._kind(level)
            keys = self._keys_fit(rest)
            if keys is None or not self._carries([store.value], function):
                continue
            if store.augmented:
                grows = True
                fits = kind in ("tensor", "list", "deque", "dict", "set", "tuple", "object")
            elif rest and rest[-1][0] == "item":
                outer = self._kind(level - 1)
                grows = rest[-1][1] is None or self._mentions(store.value, store.line, anchor, function)
                fits = outer in ("dict", "list", "tensor", "object", "deque")
                level -= 1
            else:
                grows = self._mentions(store.value, store.line, anchor, function) and not self._fresh(function, anchor)
                fits = True
            if fits:
                base = (3.0 if grows else 1.0) + (0.5 if store.loops else 0.0) + keys
                self._add(source, function, store.line, store.end_line, store, grows, base, level, chain, hops)
            return

    # -- one call -----------------------------------------------------------------------------------------------

    def _judge_call(
        self, source: Source, function: Function, site: Site, anchor: _Anchor, aliases: _Aliases, hops: int
    ) -> None:
        call = site.node
        args = [*call.args, *(item.value for item in call.keywords)]
        name = last_name(call.func) or ""
        if name == "setattr" and len(call.args) == 3 and isinstance(call.args[1], ast.Constant):
            target = ast.Attribute(call.args[0], str(call.args[1].value), ast.Store())
            store = Store(target, call.args[2], site.line, False, site.loops, site.no_grad, end_line=site.end_line)
            self._judge_store(source, function, store, anchor, aliases, hops)
            return
        for chain in chains_of(call.func):
            for full, rest in self._matches(chain, anchor, aliases, function):
                method = rest and rest[-1][0] == "attr"
                if method and self._judge_method(source, function, site, full, rest, args, hops):
                    return
                level = self._level(rest)
                if level is not None and self._kind(level) == "object" and self._carries(args, function):
                    self._add(source, function, site.line, site.end_line, site, True, 1.0, level, full, hops)
                    return  # metric(output, target)
        if name in _FIRST_ARGUMENT_MUTATORS and len(call.args) >= 2:
            first = chain_of(call.args[0])
            for full, rest in self._matches(first, anchor, aliases, function) if first else ():
                level = self._level(rest)
                if level is not None and self._kind(level) in ("list", "deque"):
                    self._add(source, function, site.line, site.end_line, site, True, 3.0, level, full, hops)
                    return
        for arg in args:
            self._judge_handed_method(source, function, site, arg, anchor, aliases, hops)
        if hops < MAX_HOPS:
            self._follow_arguments(source, function, call, anchor, aliases, hops)

    def _judge_method(
        self,
        source: Source,
        function: Function,
        site: Site,
        chain: Chain,
        rest: Chain,
        args: list[ast.expr],
        hops: int,
    ) -> bool:
        method = str(rest[-1][1])
        level = self._level(rest[:-1])
        keys = self._keys_fit(rest[:-1])
        if level is None or keys is None or not self._carries(args, function):
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
        self._add(source, function, site.line, site.end_line, site, True, score, level, chain, hops)
        return True

    def _carries(self, args: Iterable[ast.expr], function: Function) -> bool:
        numbers = self.hints.numbers
        return any(numbers or may_carry(arg, function, graph=self.hints.graph) for arg in args)

    def _judge_handed_method(
        self,
        source: Source,
        function: Function,
        site: Site,
        arg: ast.expr,
        anchor: _Anchor,
        aliases: _Aliases,
        hops: int,
    ) -> None:
        """``map(history.append, losses)``, ``register_hook(grads.append)``: the call hands the mutator over."""
        chain = chain_of(arg) if isinstance(arg, ast.Attribute) else None
        for full, rest in self._matches(chain, anchor, aliases, function) if chain is not None else ():
            level = self._level(rest[:-1])
            if rest and level is not None and rest[-1][1] in _MUTATORS.get(self._kind(level), ()):
                self._add(source, function, site.line, site.end_line, site, True, 2.0, level, full, hops)

    def _follow_arguments(
        self, source: Source, function: Function, call: ast.Call, anchor: _Anchor, aliases: _Aliases, hops: int
    ) -> None:
        """Where the holder itself is an argument, the search goes on in the function that is called."""
        call = _forwarded(call)
        given: list[tuple[int | str, ast.expr]] = list(enumerate(call.args))
        given += [(item.arg, item.value) for item in call.keywords if item.arg]
        for position, arg in given:
            target = chain_of(arg)
            if target is None or not any(True for _ in self._matches(target, anchor, aliases, function)):
                continue
            if any(rest for _, rest in self._matches(target, anchor, aliases, function)):
                continue
            for other, callee in self._callees(source, call):
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
                    if inner is callee or (inner.home_of(param) is callee and _inside(inner, callee)):
                        self._in_function(other, inner, _Anchor(param, False), hops + 1)

    def _callees(self, source: Source, call: ast.Call) -> Iterator[tuple[Source, Function]]:
        name = last_name(call.func)
        for file in dict.fromkeys([source.file, *self._files]):
            other = self.sources.get(file)
            for function in other.functions if other is not None else ():
                if other is None or function.is_class or not function.params:
                    continue
                if function.name == name or (function.name == "__init__" and function.owner == name):
                    yield other, function

    # -- matching -----------------------------------------------------------------------------------------------

    def _matches(
        self, chain: Chain, anchor: _Anchor, aliases: _Aliases, function: Function
    ) -> Iterator[tuple[Chain, Chain]]:
        """The chain, aliases resolved, and what follows the sought name in it."""
        for full in _expand(chain, aliases):
            for index, (kind, name) in enumerate(full):
                if anchor.attribute:
                    if not (kind == "attr" and name == anchor.name) and (kind, name) not in self._getters:
                        continue
                elif name != anchor.name or kind != "name":
                    continue
                if anchor.attribute and not self._owner_fits(full[:index], function):
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

    def _mentions(self, value: ast.expr, line: int, anchor: _Anchor, function: Function) -> bool:
        """Whether a value is made from what the holder held before, directly or through names of this function."""
        return _depends(value, line, anchor, function, set(), 0)

    def _fresh(self, function: Function, anchor: _Anchor) -> bool:
        """Whether a variable is a loop's: each turn gives it a new value, so nothing is carried over."""
        home = function.home_of(anchor.name)
        return not anchor.attribute and any(from_loop for _, _, from_loop in home.feeds(anchor.name))

    def _add(
        self,
        source: Source,
        function: Function,
        line: int,
        end_line: int,
        what: Store | Site,
        grows: bool,
        score: float,
        level: int,
        chain: Chain,
        hops: int,
    ) -> None:
        sought, hints = self.sought, self.hints
        if grows and level < sought.grows and "object" in sought.kinds[level + 1 : sought.grows]:
            return  # it only puts the object in its place whose container grows
        score -= 0.1 * hops
        if (source.file, function.first_line) in hints.running:
            score += 1.0
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
        nodes = [what.value] if isinstance(what, Store) else [*what.node.args, *(k.value for k in what.node.keywords)]
        used = {node.id for part in nodes for node in ast.walk(part) if isinstance(node, ast.Name)}
        if used & hints.names:
            score += 1.0
        if hints.evaluates is not None:
            score += _phase(function, evaluates=hints.evaluates)
        names = [outer.name for outer in function.enclosing() if outer.parent is not None][::-1]
        text = source.text(line, end_line)
        quiet = function.name in _QUIET_FUNCTIONS
        certain = isinstance(what, Store) or self._kind(level) != "object" or last_name(what.node.func) in _ANY_MUTATOR
        self.found.append(
            Statement(
                source.file,
                line,
                ".".join(names) or "<module>",
                text,
                grows,
                what.loops,
                quiet=quiet,
                certain=certain,
                score=score,
            )
        )


@final
@dataclass(frozen=True, slots=True)
class _Anchor:
    name: str
    attribute: bool


_Aliases = dict[str, list[Chain]]


def _aliases(function: Function) -> _Aliases:
    """Names in a function that stand for a chain: ``log = self.log``, ``for log in logs.values()``."""
    found: _Aliases = {}
    for outer in function.enclosing():
        for store in outer.stores:
            if store.augmented or not isinstance(store.target, ast.Name):
                continue
            if outer is not function and function.home_of(store.target.id) is not outer:
                continue
            for chain in chains_of(store.value):
                if chain == (("name", store.target.id),) or chain[-1][0] == "call":
                    continue
                item: tuple[Accessor, ...] = (("item", None),) if store.from_loop else ()
                chains = found.setdefault(store.target.id, [])
                if len(chains) < 4:
                    chains.append((*chain, *item))
    return found


def _expand(chain: Chain, aliases: _Aliases, depth: int = 0) -> Iterator[Chain]:
    yield chain
    if depth < 3 and chain[0][0] == "name":
        for other in aliases.get(str(chain[0][1]), ()):
            yield from _expand((*other, *chain[1:]), aliases, depth + 1)


def _depends(value: ast.expr, line: int, anchor: _Anchor, function: Function, seen: set[str], depth: int) -> bool:
    """Whether an expression on a line uses the anchor, directly or through variables set on lines before it."""
    if depth > 6:
        return False
    names = set()
    for node in ast.walk(value):
        if isinstance(node, ast.Attribute) and anchor.attribute and node.attr == anchor.name:
            return True
        if isinstance(node, ast.Name):
            if not anchor.attribute and node.id == anchor.name:
                return True
            names.add(node.id)
        elif isinstance(node, ast.Call) and anchor.attribute and _method_uses(function, last_name(node.func), anchor):
            return True  # self.h = self.step(x)
    for name in names - seen:
        seen.add(name)
        for fed, before, from_loop in function.feeds(name):
            if (before < line or from_loop) and _depends(fed, before, anchor, function, seen, depth + 1):
                return True
    return False


def _method_uses(function: Function, name: str | None, anchor: _Anchor) -> bool:
    """Whether a method of the same class mentions the anchor's attribute."""
    for other in _methods(function, name):
        parts = [*(s.value for s in other.stores), *other.returns, *(site.node for site in other.calls)]
        for part in parts:
            if any(isinstance(node, ast.Attribute) and node.attr == anchor.name for node in ast.walk(part)):
                return True
    return False


def _forwarded(call: ast.Call) -> ast.Call:
    """The call that ``partial(f, x)``, ``submit(f, x)`` or ``Thread(target=f, args=(x,))`` will make."""
    name = last_name(call.func)
    if name in ("partial", "submit", "apply_async", "call_soon") and call.args:
        return ast.Call(call.args[0], call.args[1:], call.keywords)
    if name in ("Thread", "Process"):
        named = {item.arg: item.value for item in call.keywords}
        target, args = named.get("target"), named.get("args")
        if target is not None and isinstance(args, (ast.Tuple, ast.List)):
            return ast.Call(target, args.elts, [])
    return call


def _methods(function: Function, name: str | None) -> Iterator[Function]:
    """Methods of the same class by name."""
    body = next((outer.parent for outer in function.enclosing() if outer.owner is not None), None)
    if body is not None and name is not None:
        for other in body.children:
            if other.name == name:
                yield other


def _inside(inner: Function, outer: Function) -> bool:
    function: Function | None = inner
    while function is not None:
        if function is outer:
            return True
        function = function.parent
    return False


def _phase(function: Function, *, evaluates: bool) -> float:
    """A bonus where a function's name tells the stage, like ``validation_step``, a malus where it tells the other."""
    for outer in function.enclosing():
        words = outer.name.lower()
        if any(word in words for word in ("valid", "eval", "test", "predict", "infer")):
            return 1.0 if evaluates else -1.0
        if "train" in words or "fit" in words:
            return -1.0 if evaluates else 1.0
    return 0.0


def is_alias(sought: Sought, sources: Sources) -> bool:
    """Whether a variable only stands for something with a name of its own: ``log = self.log``, a loop's variable."""
    source = sources.get(sought.file) if sought.file is not None else None
    owner = source.function_at(sought.first_line, sought.function or "<module>") if source is not None else None
    if owner is None:
        return False
    stores = [s for s in owner.stores if isinstance(s.target, ast.Name) and s.target.id == sought.name]
    return bool(stores) and all(
        not store.augmented and (store.from_loop or len(chain_of(store.value) or ()) > 1) for store in stores
    )


def find_collecting(running: Iterable[tuple[str, int]], sources: Sources, *, graph: bool = True) -> Statement | None:
    """A comprehension or generator expression that is being evaluated: what it has collected has no name yet.

    Args:
        running: (file, line) of the frames on the stack, innermost first.
        sources: The parsed files.
        graph: Whether a graph is kept, else any tensor.
    """
    for file, line in running:
        source = sources.get(file)
        for function in source.functions if source is not None else ():
            if source is None:
                continue
            for store in function.stores:
                if not store.line <= line <= store.end_line or store.from_loop or (graph and store.no_grad):
                    continue
                parts = [node for node in ast.walk(store.value) if isinstance(node, _COMPREHENSIONS)]
                if parts and any(may_carry(part.elt, function, graph=graph) for part in parts):
                    text = source.text(store.line, store.end_line)
                    return Statement(file, store.line, function.name, text, True, loops=True, score=1.0)
    return None
