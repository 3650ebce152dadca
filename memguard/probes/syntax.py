"""A source file as functions, the names they bind and the places where things are stored; parsed, never run."""

from __future__ import annotations

import ast
import linecache
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import final

Accessor = tuple[str, "str | int | None"]
"""One step of an expression like ``self.logs["loss"]``: ("name", "self"), ("attr", "logs"), ("item", "loss")."""
Chain = tuple[Accessor, ...]

MAX_LINES = 12_000


@final
@dataclass(slots=True, eq=False)
class Function:
    """A function, a lambda, a class body or a whole module."""

    name: str
    first_line: int
    parent: Function | None = None
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
    calls: list[Site] = field(default_factory=list)
    returns: list[ast.expr] = field(default_factory=list)
    node: ast.AST | None = None
    aliases: dict[str, list[Chain]] | None = None
    """What its names stand for, once it was asked (`memguard.probes.flow.aliases_of`)."""

    @property
    def path(self) -> str:
        """Like ``LitModel.training_step``."""
        names: list[str] = []
        function: Function | None = self
        while function is not None and function.parent is not None:
            names.append(function.name)
            function = function.parent
        return ".".join(reversed(names)) or self.name

    def binds(self, name: str) -> bool:
        """Whether a name is a local variable of this function."""
        return name in self.bound and name not in self.outer

    def feeds(self, name: str) -> Iterator[tuple[ast.expr, int, bool]]:
        """What flows into a local variable: (expression, line, whether the variable is a loop's)."""
        for store in self.stores:
            target = store.target
            while isinstance(target, (ast.Subscript, ast.Attribute)):
                target = target.value
            if isinstance(target, ast.Name) and target.id == name:
                yield store.value, store.line, store.from_loop
        for site in self.calls:
            method = site.node.func
            if isinstance(method, ast.Attribute) and isinstance(method.value, ast.Name) and method.value.id == name:
                for arg in site.node.args:
                    yield arg, site.line, False

    def enclosing(self) -> Iterator[Function]:
        """This function and those around it whose names it can see; class bodies are passed over."""
        function: Function | None = self
        while function is not None:
            if function is self or not function.is_class:
                yield function
            function = function.parent

    def home_of(self, name: str) -> Function:
        """The function whose variable a name is when it is used here."""
        last = self
        for function in self.enclosing():
            last = function
            if function.binds(name):
                return function
        return last


@final
@dataclass(frozen=True, slots=True, eq=False)
class Store:
    """An assignment: ``target = value``, ``target += value``, a loop's target, a walrus."""

    target: ast.expr
    value: ast.expr
    line: int
    augmented: bool
    loops: bool
    """Whether it stands in a loop."""
    no_grad: bool
    """Whether it stands where gradients are off."""
    from_loop: bool = False
    """Whether the target is a loop's variable: it takes the elements of the value."""
    end_line: int = 0


@final
@dataclass(frozen=True, slots=True, eq=False)
class Site:
    """A call."""

    node: ast.Call
    line: int
    loops: bool
    no_grad: bool
    end_line: int = 0

    def arguments(self) -> list[ast.expr]:
        """Positional and keyword arguments."""
        return [*self.node.args, *(item.value for item in self.node.keywords)]


@final
@dataclass(slots=True, eq=False)
class Source:
    """One parsed file."""

    file: str
    lines: list[str]
    functions: list[Function]
    module: Function

    def text(self, line: int, end_line: int) -> str:
        """The statement on some lines, as one line of at most 160 characters."""
        text = " ".join(part.strip() for part in self.lines[line - 1 : max(line, min(end_line, line + 7))])
        return text if len(text) <= 160 else text[:157] + "..."

    def function_at(self, first_line: int, name: str) -> Function | None:
        """The function that starts on a line: the code object's first line, that of a decorator if it has any."""
        if name == "<module>":
            return self.module
        short = name.rpartition(".")[2]
        for function in self.functions:
            if function.first_line == first_line and function.name == short:
                return function
        return None

    def node_at(self, first_line: int, name: str) -> ast.AST | None:
        """The syntax tree of the function that starts on a line."""
        function = self.function_at(first_line, name)
        return function.node if function is not None else None


@final
class Sources:
    """Parsed files, each parsed once; lives as long as one naming.

    Args:
        max_lines: How many lines are parsed in all, about 15 microseconds each; later files count as unreadable.
        is_late: Asked before a file is parsed; whether there is no time left for it.
    """

    def __init__(self, max_lines: int = MAX_LINES, is_late: Callable[[], bool] = lambda: False) -> None:
        self._is_late = is_late
        self._files: dict[str, Source | None] = {}
        self._left = max_lines
        self.others: list[str] | None = None
        """Files of all the user's modules, once somebody asked for them."""

    def mention(self, file: str, words: Iterable[str]) -> bool:
        """Whether a file's text has one of some words, and so is worth parsing."""
        if file in self._files:
            return self._files[file] is not None
        lines = linecache.getlines(file)
        return any(word in line for word in words for line in lines)

    def get(self, file: str) -> Source | None:
        """A parsed file; None when it cannot be read or parsed."""
        if file not in self._files:
            self._files[file] = self._parse(file)
        return self._files[file]

    def _parse(self, file: str) -> Source | None:
        lines = linecache.getlines(file)
        if not lines or len(lines) > self._left or self._is_late():
            return None
        self._left -= len(lines)
        try:
            tree = ast.parse("".join(lines))
        except (SyntaxError, ValueError, RecursionError):
            return None
        indexer = _Indexer()
        try:
            indexer.module_body(tree)
        except RecursionError:
            return None
        return Source(file, lines, indexer.functions, indexer.module)


_LEAVES = (ast.Name, ast.Constant, ast.expr_context, ast.operator, ast.boolop, ast.unaryop, ast.cmpop)
_OFF = frozenset({"no_grad", "inference_mode"})


def turns_grad_off(node: ast.expr) -> bool:
    """Whether an expression is ``torch.no_grad()``, ``torch.inference_mode`` or ``torch.set_grad_enabled(False)``."""
    if isinstance(node, ast.Call):
        name = last_name(node.func)
        if name == "set_grad_enabled":
            return bool(node.args) and isinstance(node.args[0], ast.Constant) and node.args[0].value is False
        return name in _OFF
    return last_name(node) in _OFF


def last_name(node: ast.expr) -> str | None:
    """``"c"`` of ``a.b.c`` or of ``c``."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else None


class _Indexer:
    """Fills the functions of one file in a single pass."""

    def __init__(self) -> None:
        self.module = Function("<module>", 0)
        self.functions: list[Function] = [self.module]

    def module_body(self, tree: ast.Module) -> None:
        for stmt in tree.body:
            self._visit(stmt, self.module, stmt, False, False)

    def _visit(self, node: ast.AST, function: Function, stmt: ast.AST, loops: bool, off: bool) -> None:
        if isinstance(node, _LEAVES):
            return
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            self._function(node, function, loops, off)
            return
        if isinstance(node, ast.Lambda):
            inner = Function("<lambda>", node.lineno, function, params=_params(node.args))
            inner.bound.update(inner.params)
            self.functions.append(inner)
            inner.returns.append(node.body)
            self._visit(node.body, inner, node.body, False, False)
            return
        if isinstance(node, ast.ClassDef):
            function.bound.add(node.name)
            first = min([node.lineno, *(item.lineno for item in node.decorator_list)])
            body = Function(node.name, first, function, owner=node.name, is_class=True)
            self.functions.append(body)
            for child in node.body:
                self._visit(child, body, child, False, off)
            return
        end = getattr(stmt, "end_lineno", None) or 0
        if isinstance(node, ast.Assign):
            for target in node.targets:
                self._store(target, node.value, node.lineno, end, function, loops, off)
        elif isinstance(node, ast.AnnAssign):
            if node.value is not None:
                self._store(node.target, node.value, node.lineno, end, function, loops, off)
        elif isinstance(node, ast.AugAssign):
            _bind(node.target, function)
            store = Store(node.target, node.value, node.lineno, True, loops, off, end_line=end)
            function.stores.append(store)
        elif isinstance(node, ast.NamedExpr):
            self._store(node.target, node.value, node.lineno, node.end_lineno or 0, function, loops, off)
        elif isinstance(node, (ast.For, ast.AsyncFor)):
            self._targets_of_loop(node.target, node.iter, node.lineno, function, off)
            self._visit(node.iter, function, node.iter, loops, off)
            for child in [*node.body, *node.orelse]:
                self._visit(child, function, child, True, off)
            return
        elif isinstance(node, ast.While):
            self._visit(node.test, function, node.test, True, off)
            for child in [*node.body, *node.orelse]:
                self._visit(child, function, child, True, off)
            return
        elif isinstance(node, (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)):
            for clause in node.generators:
                self._targets_of_loop(clause.target, clause.iter, node.lineno, function, off)
            loops = True
        elif isinstance(node, (ast.With, ast.AsyncWith)):
            for item in node.items:
                self._visit(item.context_expr, function, item.context_expr, loops, off)
                if item.optional_vars is not None:
                    _bind(item.optional_vars, function)
            off = off or any(turns_grad_off(item.context_expr) for item in node.items)
            off = off and not any(last_name(_called(item.context_expr)) == "enable_grad" for item in node.items)
            for child in node.body:
                self._visit(child, function, child, loops, off)
            return
        elif isinstance(node, ast.Call):
            function.calls.append(Site(node, node.lineno, loops, off, end))
        elif isinstance(node, (ast.Global, ast.Nonlocal)):
            function.outer.update(node.names)
        elif isinstance(node, (ast.Return, ast.Yield)) and node.value is not None:
            function.returns.append(node.value)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            function.bound.update((item.asname or item.name).partition(".")[0] for item in node.names)
        elif isinstance(node, ast.ExceptHandler) and node.name:
            function.bound.add(node.name)
        for part in ast.iter_child_nodes(node):
            self._visit(part, function, part if isinstance(part, ast.stmt) else stmt, loops, off)

    def _function(
        self, node: ast.FunctionDef | ast.AsyncFunctionDef, function: Function, loops: bool, off: bool
    ) -> None:
        function.bound.add(node.name)
        first = min([node.lineno, *(item.lineno for item in node.decorator_list)])
        inner = Function(node.name, first, function, owner=function.name if function.is_class else None)
        inner.params, inner.node = _params(node.args), node
        inner.bound.update(inner.params)
        inner.decorators = [last_name(_called(item)) or "" for item in node.decorator_list]
        self.functions.append(inner)
        for item in [*node.decorator_list, *node.args.defaults, *node.args.kw_defaults]:
            if item is not None:
                self._visit(item, function, item, loops, off)
        off = any(turns_grad_off(item) for item in node.decorator_list)
        for stmt in node.body:
            self._visit(stmt, inner, stmt, False, off)

    def _store(
        self, target: ast.expr, value: ast.expr, line: int, end: int, function: Function, loops: bool, off: bool
    ) -> None:
        _bind(target, function)
        for part, source in _pairs(target, value):
            function.stores.append(Store(part, source, line, False, loops, off, end_line=end))

    def _targets_of_loop(self, target: ast.expr, iterable: ast.expr, line: int, function: Function, off: bool) -> None:
        _bind(target, function)
        for part, source in _loop_pairs(target, iterable):
            function.stores.append(Store(part, source, line, False, True, off, from_loop=True, end_line=line))


def _called(node: ast.expr) -> ast.expr:
    return node.func if isinstance(node, ast.Call) else node


def _params(args: ast.arguments) -> list[str]:
    extra = [item.arg for item in (args.vararg, args.kwarg) if item is not None]
    return [item.arg for item in [*args.posonlyargs, *args.args, *args.kwonlyargs]] + extra


def _bind(target: ast.expr, function: Function) -> None:
    if isinstance(target, ast.Name):
        function.bound.add(target.id)
        return
    for node in ast.walk(target):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            function.bound.add(node.id)


def _pairs(target: ast.expr, value: ast.expr) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Each single target of an assignment with what it takes."""
    if isinstance(target, ast.Starred):
        yield target.value, value
    elif isinstance(target, (ast.Tuple, ast.List)):
        same = isinstance(value, (ast.Tuple, ast.List)) and len(value.elts) == len(target.elts)
        for index, part in enumerate(target.elts):
            yield from _pairs(part, value.elts[index] if same and isinstance(value, (ast.Tuple, ast.List)) else value)
    else:
        yield target, value


def _loop_pairs(target: ast.expr, iterable: ast.expr) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Each variable of a loop with what it runs over: ``enumerate``, ``zip`` and ``.items()`` are seen through."""
    if isinstance(target, (ast.Tuple, ast.List)):
        if isinstance(iterable, ast.Call):
            name = last_name(iterable.func)
            if name == "zip" and len(iterable.args) == len(target.elts):
                for part, source in zip(target.elts, iterable.args, strict=True):
                    yield from _loop_pairs(part, source)
                return
            if name == "enumerate" and iterable.args and len(target.elts) == 2:
                yield from _loop_pairs(target.elts[1], iterable.args[0])
                return
            if name == "items" and isinstance(iterable.func, ast.Attribute) and len(target.elts) == 2:
                yield from _loop_pairs(target.elts[1], iterable.func.value)
                return
        for part in target.elts:
            yield part, iterable
        return
    if isinstance(iterable, ast.Call) and isinstance(iterable.func, ast.Attribute) and iterable.func.attr == "values":
        iterable = iterable.func.value
    yield target, iterable


def chains_of(node: ast.expr) -> Iterator[Chain]:
    """The chains an expression may stand for: both of ``(a if train else b).append``."""
    if isinstance(node, (ast.Attribute, ast.Subscript)):
        for value in _choices(node.value if isinstance(node, ast.Attribute) else node):
            chain = chain_of(value)
            if chain is not None:
                yield (*chain, ("attr", node.attr)) if isinstance(node, ast.Attribute) else chain
        return
    for value in _choices(node):
        chain = chain_of(value)
        if chain is not None:
            yield chain


def _choices(node: ast.expr) -> Iterator[ast.expr]:
    if isinstance(node, ast.IfExp):
        yield from _choices(node.body)
        yield from _choices(node.orelse)
    elif isinstance(node, ast.BoolOp):
        for value in node.values:
            yield from _choices(value)
    elif isinstance(node, ast.NamedExpr):
        yield from _choices(node.value)
    elif isinstance(node, ast.Subscript) and isinstance(node.value, (ast.Dict, ast.List, ast.Tuple)):
        values = node.value.values if isinstance(node.value, ast.Dict) else node.value.elts
        for value in values:
            yield from _choices(value)
    else:
        yield node


def chain_of(node: ast.expr) -> Chain | None:
    """An expression as a chain of accessors, or None if it does not start at a name.

    ``logs.setdefault(k, []).append`` gives name logs, item None, attr append: a call of ``get`` or ``setdefault`` reads
    an item, any other call is ("call", method).
    """
    if isinstance(node, ast.Name):
        return (("name", node.id),)
    if isinstance(node, ast.Attribute):
        base = chain_of(node.value)
        return None if base is None else (*base, ("attr", node.attr))
    if isinstance(node, ast.Subscript):
        if isinstance(node.value, ast.Call) and last_name(node.value.func) == "globals":
            return (("name", _constant(node.slice)),)
        base = chain_of(node.value)
        if base is None:
            return None
        if base[-1] == ("attr", "__dict__") and isinstance(node.slice, ast.Constant):
            return (*base[:-1], ("attr", str(node.slice.value)))
        return (*base, ("item", _constant(node.slice)))
    if isinstance(node, ast.Await):
        return chain_of(node.value)
    if isinstance(node, ast.Call):
        if isinstance(node.func, ast.Attribute):
            base = chain_of(node.func.value)
            if base is None:
                return None
            if node.func.attr in ("get", "setdefault", "pop", "__getitem__"):
                return (*base, ("item", _constant(node.args[0]) if node.args else None))
            return (*base, ("call", node.func.attr))
        if isinstance(node.func, ast.Name):
            if node.func.id == "getattr" and len(node.args) >= 2:
                base, name = chain_of(node.args[0]), _constant(node.args[1])
                return (*base, ("attr", name)) if base is not None and isinstance(name, str) else None
            if node.func.id == "type" and len(node.args) == 1:
                return chain_of(node.args[0])
            if node.func.id == "vars" and len(node.args) == 1:
                base = chain_of(node.args[0])
                return (*base, ("attr", "__dict__")) if base is not None else None
    return None


def _constant(node: ast.expr) -> str | int | None:
    if isinstance(node, ast.Constant) and type(node.value) in (str, int):
        value: str | int = node.value  # type: ignore[assignment]
        return value
    return None
