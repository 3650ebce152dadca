"""The scopes of a file: functions, lambdas, class bodies and the module, what each binds, stores, calls, returns."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple, final

from memguard.source.expressions import (
    COMPREHENSIONS,
    FUNCTIONS,
    Chain,
    called_name,
    chains_of,
    first_line,
    parts_of,
    parts_of_loop,
    root_of,
)


@final
@dataclass(slots=True, eq=False)
class Scope:
    """A function, a lambda, a class body or a whole module."""

    name: str
    first_line: int
    parent: Scope | None = None
    owner: str | None = None
    """Name of the class that a method or a class body belongs to."""
    is_class: bool = False
    params: list[str] = field(default_factory=list)
    bound: set[str] = field(default_factory=set)
    """Names that are local here."""
    outer: set[str] = field(default_factory=set)
    """Names declared global or nonlocal."""
    decorators: list[str] = field(default_factory=list)
    stores: list[Store] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    returns: list[ast.expr] = field(default_factory=list)
    node: ast.AST | None = None
    _aliases: dict[str, list[Chain]] | None = None

    @property
    def path(self) -> str:
        """Like ``LitModel.training_step``."""
        names = [scope.name for scope in self.outwards() if scope.parent is not None]
        return ".".join(reversed(names)) or self.name

    @property
    def method_owner(self) -> Scope | None:
        """The innermost scope around it, itself included, that belongs to a class."""
        return next((scope for scope in self.visible() if scope.owner is not None), None)

    def binds(self, name: str) -> bool:
        """Whether a name is a local variable here."""
        return name in self.bound and name not in self.outer

    def feeds(self, name: str) -> Iterator[tuple[ast.expr, int, bool]]:
        """What flows into a local variable: (expression, line, whether the variable is a loop's)."""
        for store in self.stores:
            if not isinstance(store.target, ast.Call) and root_of(store.target) == name:
                yield store.value, store.line, store.from_loop
        for call in self.calls:
            method = call.node.func
            if isinstance(method, ast.Attribute) and isinstance(method.value, ast.Name) and method.value.id == name:
                for arg in call.node.args:
                    yield arg, call.line, False

    def outwards(self) -> Iterator[Scope]:
        """This scope and all around it."""
        scope: Scope | None = self
        while scope is not None:
            yield scope
            scope = scope.parent

    def visible(self) -> Iterator[Scope]:
        """This scope and those around it whose names it can see: no class bodies."""
        return (scope for scope in self.outwards() if scope is self or not scope.is_class)

    def home_of(self, name: str) -> Scope:
        """The scope whose variable a name is when it is used here."""
        last = self
        for last in self.visible():
            if last.binds(name):
                break
        return last

    @property
    def aliases(self) -> dict[str, list[Chain]]:
        """Names here that stand for a chain: ``log = self.log``, ``for log in logs.values()``."""
        if self._aliases is None:
            self._aliases = {}
            for outer in self.visible():
                for store in outer.stores:
                    name = store.target.id if isinstance(store.target, ast.Name) and not store.augmented else None
                    if name is not None and (outer is self or self.home_of(name) is outer):
                        self._add_aliases(name, store)
        return self._aliases

    def _add_aliases(self, name: str, store: Store) -> None:
        assert self._aliases is not None
        known = self._aliases.setdefault(name, [])
        for chain in chains_of(store.value):
            if chain != (("name", name),) and chain[-1][0] != "call" and len(known) < 4:
                known.append((*chain, ("item", None)) if store.from_loop else chain)


@final
@dataclass(frozen=True, slots=True, eq=False)
class Store:
    """An assignment: ``target = value``, ``target += value``, a loop's target, a walrus."""

    target: ast.expr
    value: ast.expr
    line: int
    augmented: bool
    loops: bool
    """Whether it lies in a loop."""
    no_grad: bool
    """Whether gradients are off there."""
    from_loop: bool = False
    """Whether the target is a loop's variable: it takes the elements of the value."""
    end_line: int = 0


@final
@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """A call."""

    node: ast.Call
    line: int
    loops: bool
    no_grad: bool
    end_line: int = 0


def scopes_of(tree: ast.Module) -> list[Scope]:
    """The scopes of a file in their order; the first is the module itself.

    Raises:
        RecursionError: An expression is nested too deeply.
    """
    index = _Index(tree)
    index.visit_all(tree.body, _Context(index.scopes[0], tree))
    return index.scopes


def turns_grad_off(node: ast.expr) -> bool:
    """Whether an expression is ``torch.no_grad()``, ``torch.inference_mode`` or ``torch.set_grad_enabled(False)``."""
    if isinstance(node, ast.Call) and called_name(node) == "set_grad_enabled":
        return bool(node.args) and isinstance(node.args[0], ast.Constant) and node.args[0].value is False
    return called_name(node) in ("no_grad", "inference_mode")


class _Context(NamedTuple):
    """Where a node lies: its scope, its statement, whether in a loop, whether gradients are off there."""

    scope: Scope
    statement: ast.AST
    loops: bool = False
    off: bool = False


_BASES = (ast.expr_context, ast.operator, ast.boolop, ast.unaryop, ast.cmpop)
_LEAVES = frozenset({ast.Name, ast.Constant, *(kind for base in _BASES for kind in base.__subclasses__())})


class _Index:
    """Collects the scopes of one file in one pass."""

    def __init__(self, tree: ast.Module) -> None:
        self.scopes = [Scope("<module>", 0, node=tree)]

    def visit_all(self, nodes: Any, where: _Context) -> None:
        """Notes some nodes, each in a statement of its own."""
        for node in nodes:
            if node is not None:
                self.visit(node, where._replace(statement=node))

    def visit(self, node: Any, where: _Context) -> None:
        """Notes a node and everything in it."""
        kind = type(node)
        if kind in _LEAVES:
            return
        step = _STEPS.get(kind)
        if step is None or step(self, node, where):
            if kind in _LOOPING:
                where = where._replace(loops=True)
            for part in ast.iter_child_nodes(node):
                self.visit(part, where._replace(statement=part) if isinstance(part, ast.stmt) else where)

    # Each notes one kind of node; True where its parts are still to be visited.

    def definition(self, node: Any, where: _Context) -> bool:
        scope, is_class = where.scope, isinstance(node, ast.ClassDef)
        scope.bound.add(node.name)
        owner = node.name if is_class else scope.name if scope.is_class else None
        inner = Scope(node.name, first_line(node), scope, owner, is_class)
        self.scopes.append(inner)
        off = where.off
        if not is_class:
            inner.node = node
            self._take_params(inner, node.args)
            inner.decorators = [called_name(item) for item in node.decorator_list]
            self.visit_all([*node.decorator_list, *node.args.defaults, *node.args.kw_defaults], where)
            off = any(turns_grad_off(item) for item in node.decorator_list)
        self.visit_all(node.body, _Context(inner, node, False, off))
        return False

    def lambda_(self, node: ast.Lambda, where: _Context) -> bool:
        inner = Scope("<lambda>", node.lineno, where.scope)
        self._take_params(inner, node.args)
        self.scopes.append(inner)
        inner.returns.append(node.body)
        self.visit(node.body, _Context(inner, node.body))
        return False

    def loop(self, node: Any, where: _Context) -> bool:
        inside = where._replace(loops=True)
        if isinstance(node, ast.While):
            self.visit_all([node.test], inside)
        else:
            self._elements(node, node.lineno, where)
            self.visit_all([node.iter], where)
        self.visit_all([*node.body, *node.orelse], inside)
        return False

    def with_(self, node: Any, where: _Context) -> bool:
        off = where.off
        for item in node.items:
            self.visit_all([item.context_expr], where)
            if item.optional_vars is not None:
                self._bind(item.optional_vars, where.scope)
            off = off or turns_grad_off(item.context_expr)
        off = off and not any(called_name(item.context_expr) == "enable_grad" for item in node.items)
        self.visit_all(node.body, where._replace(off=off))
        return False

    def comprehension(self, node: Any, where: _Context) -> bool:
        for clause in node.generators:
            self._elements(clause, node.lineno, where)
        return True

    def assigned(self, node: Any, where: _Context) -> bool:
        augmented, scope = isinstance(node, ast.AugAssign), where.scope
        end = (node if isinstance(node, ast.NamedExpr) else where.statement).end_lineno  # type: ignore[attr-defined]
        for target in node.targets if isinstance(node, ast.Assign) else [node.target] if node.value else ():
            self._bind(target, scope)
            for part, value in [(target, node.value)] if augmented else parts_of(target, node.value):
                store = Store(part, value, node.lineno, augmented, where.loops, where.off, end_line=end or 0)
                scope.stores.append(store)
        return True

    def call(self, node: ast.Call, where: _Context) -> bool:
        end = getattr(where.statement, "end_lineno", None) or 0
        where.scope.calls.append(Call(node, node.lineno, where.loops, where.off, end))
        return True

    def returned(self, node: Any, where: _Context) -> bool:
        if node.value is not None:
            where.scope.returns.append(node.value)
        return True

    def declared(self, node: Any, where: _Context) -> bool:
        where.scope.outer.update(node.names)
        return True

    def imported(self, node: Any, where: _Context) -> bool:
        where.scope.bound.update((item.asname or item.name).partition(".")[0] for item in node.names)
        return True

    def caught(self, node: ast.ExceptHandler, where: _Context) -> bool:
        where.scope.bound.update([node.name] if node.name else ())
        return True

    def _elements(self, node: Any, line: int, where: _Context) -> None:
        """What a loop's variables take."""
        self._bind(node.target, where.scope)
        for part, source in parts_of_loop(node.target, node.iter):
            store = Store(part, source, line, False, True, where.off, from_loop=True, end_line=line)
            where.scope.stores.append(store)

    def _bind(self, target: ast.expr, scope: Scope) -> None:
        parts = ast.walk(target) if not isinstance(target, ast.Name) else (target,)
        scope.bound.update(p.id for p in parts if isinstance(p, ast.Name) and isinstance(p.ctx, ast.Store))

    def _take_params(self, scope: Scope, args: ast.arguments) -> None:
        extra = [item.arg for item in (args.vararg, args.kwarg) if item is not None]
        scope.params = [item.arg for item in [*args.posonlyargs, *args.args, *args.kwonlyargs]] + extra
        scope.bound.update(scope.params)


_LOOPING = frozenset(COMPREHENSIONS)
_STEPS: dict[type[ast.AST], Any] = {
    **dict.fromkeys((*FUNCTIONS, ast.ClassDef), _Index.definition),
    ast.Lambda: _Index.lambda_,
    **dict.fromkeys((ast.For, ast.AsyncFor, ast.While), _Index.loop),
    **dict.fromkeys((ast.With, ast.AsyncWith), _Index.with_),
    **dict.fromkeys(COMPREHENSIONS, _Index.comprehension),
    **dict.fromkeys((ast.Assign, ast.AnnAssign, ast.AugAssign, ast.NamedExpr), _Index.assigned),
    ast.Call: _Index.call,
    **dict.fromkeys((ast.Return, ast.Yield), _Index.returned),
    **dict.fromkeys((ast.Global, ast.Nonlocal), _Index.declared),
    **dict.fromkeys((ast.Import, ast.ImportFrom), _Index.imported),
    ast.ExceptHandler: _Index.caught,
}


def is_inside(inner: Scope, outer: Scope) -> bool:
    """Whether a scope is another one or lies within it."""
    return any(scope is outer for scope in inner.outwards())


def method_called(scopes: list[Scope], scope: Scope, name: str | None) -> Iterator[Scope]:
    """Methods of a name in the class around a scope."""
    own = scope.method_owner
    if own is not None and own.parent is not None and name is not None:
        yield from (other for other in scopes if other.parent is own.parent and other.name == name)
