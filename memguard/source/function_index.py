"""One pass over the syntax tree of a file: its functions, with what each of them binds, stores, calls and returns."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from memguard.source.chains import last_name
from memguard.source.functions import Function, Site, Store
from memguard.source.targets import bind, parts_of, parts_of_loop

_OFF = frozenset({"no_grad", "inference_mode"})


def functions_of(tree: ast.Module) -> list[Function]:
    """The functions, lambdas and class bodies of a file in their order; the first is the module itself.

    Raises:
        RecursionError: An expression is nested too deeply.
    """
    index = _Index(tree)
    for stmt in tree.body:
        index.visit(stmt, index.functions[0], stmt, False, False)
    return index.functions


def turns_grad_off(node: ast.expr) -> bool:
    """Whether an expression is ``torch.no_grad()``, ``torch.inference_mode`` or ``torch.set_grad_enabled(False)``."""
    if isinstance(node, ast.Call):
        name = last_name(node.func)
        if name == "set_grad_enabled":
            return bool(node.args) and isinstance(node.args[0], ast.Constant) and node.args[0].value is False
        return name in _OFF
    return last_name(node) in _OFF


class _Index:
    """Collects the functions of one file.

    Each step takes a node, the function and the statement in which it stands, whether that is in a loop, and whether
    gradients are off there; it answers whether the node's parts stand in a loop, or None where it has visited them.
    """

    def __init__(self, tree: ast.Module) -> None:
        self.functions = [Function("<module>", 0, node=tree)]

    def visit(self, node: ast.AST, function: Function, stmt: ast.AST, loops: bool, off: bool) -> None:
        """Notes a node and everything in it."""
        step = _STEPS.get(type(node))
        if step is not None:
            parts_loop = step(self, node, function, stmt, loops, off)
            if parts_loop is None:
                return
            loops = parts_loop
        for part in ast.iter_child_nodes(node):
            self.visit(part, function, part if isinstance(part, ast.stmt) else stmt, loops, off)

    # What opens a scope

    def function(self, node: Any, function: Function, stmt: ast.AST, loops: bool, off: bool) -> None:
        function.bound.add(node.name)
        first = min([node.lineno, *(item.lineno for item in node.decorator_list)])
        inner = Function(node.name, first, function, owner=function.name if function.is_class else None)
        inner.params, inner.node = _params(node.args), node
        inner.bound.update(inner.params)
        inner.decorators = [last_name(_called(item)) or "" for item in node.decorator_list]
        self.functions.append(inner)
        for item in [*node.decorator_list, *node.args.defaults, *node.args.kw_defaults]:
            if item is not None:
                self.visit(item, function, item, loops, off)
        off = any(turns_grad_off(item) for item in node.decorator_list)
        for child in node.body:
            self.visit(child, inner, child, False, off)

    def lambda_(self, node: ast.Lambda, function: Function, stmt: ast.AST, loops: bool, off: bool) -> None:
        inner = Function("<lambda>", node.lineno, function, params=_params(node.args))
        inner.bound.update(inner.params)
        self.functions.append(inner)
        inner.returns.append(node.body)
        self.visit(node.body, inner, node.body, False, False)

    def class_(self, node: ast.ClassDef, function: Function, stmt: ast.AST, loops: bool, off: bool) -> None:
        function.bound.add(node.name)
        first = min([node.lineno, *(item.lineno for item in node.decorator_list)])
        body = Function(node.name, first, function, owner=node.name, is_class=True)
        self.functions.append(body)
        for child in node.body:
            self.visit(child, body, child, False, off)

    # What runs its parts under another condition

    def for_(self, node: Any, function: Function, stmt: ast.AST, loops: bool, off: bool) -> None:
        _store_elements(node.target, node.iter, node.lineno, function, off)
        self.visit(node.iter, function, node.iter, loops, off)
        for child in [*node.body, *node.orelse]:
            self.visit(child, function, child, True, off)

    def while_(self, node: ast.While, function: Function, stmt: ast.AST, loops: bool, off: bool) -> None:
        self.visit(node.test, function, node.test, True, off)
        for child in [*node.body, *node.orelse]:
            self.visit(child, function, child, True, off)

    def with_(self, node: Any, function: Function, stmt: ast.AST, loops: bool, off: bool) -> None:
        for item in node.items:
            self.visit(item.context_expr, function, item.context_expr, loops, off)
            if item.optional_vars is not None:
                bind(item.optional_vars, function)
        off = off or any(turns_grad_off(item.context_expr) for item in node.items)
        off = off and not any(last_name(_called(item.context_expr)) == "enable_grad" for item in node.items)
        for child in node.body:
            self.visit(child, function, child, loops, off)

    def comprehension(self, node: Any, function: Function, stmt: ast.AST, loops: bool, off: bool) -> bool:
        for clause in node.generators:
            _store_elements(clause.target, clause.iter, node.lineno, function, off)
        return True

    # What binds, stores, calls and returns

    def assign(self, node: ast.Assign, function: Function, stmt: ast.AST, loops: bool, off: bool) -> bool:
        for target in node.targets:
            _store(target, node.value, node.lineno, _end(stmt), function, loops, off)
        return loops

    def annotated(self, node: ast.AnnAssign, function: Function, stmt: ast.AST, loops: bool, off: bool) -> bool:
        if node.value is not None:
            _store(node.target, node.value, node.lineno, _end(stmt), function, loops, off)
        return loops

    def augmented(self, node: ast.AugAssign, function: Function, stmt: ast.AST, loops: bool, off: bool) -> bool:
        bind(node.target, function)
        function.stores.append(Store(node.target, node.value, node.lineno, True, loops, off, end_line=_end(stmt)))
        return loops

    def walrus(self, node: ast.NamedExpr, function: Function, stmt: ast.AST, loops: bool, off: bool) -> bool:
        _store(node.target, node.value, node.lineno, _end(node), function, loops, off)
        return loops

    def call(self, node: ast.Call, function: Function, stmt: ast.AST, loops: bool, off: bool) -> bool:
        function.calls.append(Site(node, node.lineno, loops, off, _end(stmt)))
        return loops

    def returned(self, node: Any, function: Function, stmt: ast.AST, loops: bool, off: bool) -> bool:
        if node.value is not None:
            function.returns.append(node.value)
        return loops

    def outer(self, node: Any, function: Function, stmt: ast.AST, loops: bool, off: bool) -> bool:
        function.outer.update(node.names)
        return loops

    def imported(self, node: Any, function: Function, stmt: ast.AST, loops: bool, off: bool) -> bool:
        function.bound.update((item.asname or item.name).partition(".")[0] for item in node.names)
        return loops

    def caught(self, node: ast.ExceptHandler, function: Function, stmt: ast.AST, loops: bool, off: bool) -> bool:
        if node.name:
            function.bound.add(node.name)
        return loops

    def leaf(self, node: ast.AST, function: Function, stmt: ast.AST, loops: bool, off: bool) -> None:
        """Nothing is in it."""


_BASES = (ast.expr_context, ast.operator, ast.boolop, ast.unaryop, ast.cmpop)
_LEAVES = (ast.Name, ast.Constant, *(kind for base in _BASES for kind in base.__subclasses__()))
_STEPS: dict[type[ast.AST], Callable[..., bool | None]] = {
    ast.FunctionDef: _Index.function,
    ast.AsyncFunctionDef: _Index.function,
    ast.Lambda: _Index.lambda_,
    ast.ClassDef: _Index.class_,
    ast.For: _Index.for_,
    ast.AsyncFor: _Index.for_,
    ast.While: _Index.while_,
    ast.With: _Index.with_,
    ast.AsyncWith: _Index.with_,
    ast.ListComp: _Index.comprehension,
    ast.SetComp: _Index.comprehension,
    ast.DictComp: _Index.comprehension,
    ast.GeneratorExp: _Index.comprehension,
    ast.Assign: _Index.assign,
    ast.AnnAssign: _Index.annotated,
    ast.AugAssign: _Index.augmented,
    ast.NamedExpr: _Index.walrus,
    ast.Call: _Index.call,
    ast.Return: _Index.returned,
    ast.Yield: _Index.returned,
    ast.Global: _Index.outer,
    ast.Nonlocal: _Index.outer,
    ast.Import: _Index.imported,
    ast.ImportFrom: _Index.imported,
    ast.ExceptHandler: _Index.caught,
    **dict.fromkeys(_LEAVES, _Index.leaf),
}


def _store(target: ast.expr, value: ast.expr, line: int, end: int, function: Function, loops: bool, off: bool) -> None:
    bind(target, function)
    for part, source in parts_of(target, value):
        function.stores.append(Store(part, source, line, False, loops, off, end_line=end))


def _store_elements(target: ast.expr, iterable: ast.expr, line: int, function: Function, off: bool) -> None:
    """What a loop's variables take."""
    bind(target, function)
    for part, source in parts_of_loop(target, iterable):
        function.stores.append(Store(part, source, line, False, True, off, from_loop=True, end_line=line))


def _end(node: ast.AST) -> int:
    return getattr(node, "end_lineno", None) or 0


def _called(node: ast.expr) -> ast.expr:
    return node.func if isinstance(node, ast.Call) else node


def _params(args: ast.arguments) -> list[str]:
    extra = [item.arg for item in (args.vararg, args.kwarg) if item is not None]
    return [item.arg for item in [*args.posonlyargs, *args.args, *args.kwonlyargs]] + extra
