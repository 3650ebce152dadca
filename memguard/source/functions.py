"""A function of a source file: the names that it binds, what it stores, calls and returns."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import final

from memguard.source.chains import Chain


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
    """What its names stand for, once it was asked (`memguard.source.flow.aliases_of`)."""

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
