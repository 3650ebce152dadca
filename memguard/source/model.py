"""SourceModel: a file parsed once, with what surrounds a line and what a statement there does."""

from __future__ import annotations

import ast
import functools
import linecache
import tokenize
from collections.abc import Callable, Collection
from typing import Any, ClassVar, TypeVar, final, overload

from memguard.records.facts import Place
from memguard.source.expressions import FUNCTIONS, LOOPS, FunctionNode, Loop, first_line, parse, spans
from memguard.source.scopes import Scope, scopes_of

MAX_FILES = 24
"""Models that are kept."""
MAX_LINES = 12_000
"""Lines of the models that are kept, at 1.2 KB each; and that one search may read, at 20 microseconds each."""
_Node = TypeVar("_Node", bound=ast.AST)


@final
class SourceModel:
    """One parsed file. A file that does not exist is an empty one, as is one that Python cannot read.

    Attributes:
        is_read: Whether Python could; else what it seems to lack says nothing.
    """

    _models: ClassVar[dict[str, tuple[list[str], SourceModel]]] = {}

    def __init__(self, file: str, lines: list[str], tree: ast.Module | None) -> None:
        self.file, self.is_read = file, tree is not None
        self.tree, self.lines = (tree, lines) if tree is not None else (ast.Module([], []), [])
        self.nodes = list(ast.walk(self.tree))
        """All nodes, breadth first: outer before inner."""
        self._blocks = [node for node in self.nodes if isinstance(node, (*FUNCTIONS, *LOOPS))]
        self._by_kind: dict[type[ast.AST], list[ast.AST]] = {}

    @classmethod
    def of(cls, file: str | None) -> SourceModel:
        """The model of a file, or of a notebook's cell; one that is not read where there is no file named.

        A file that `linecache` has read anew since, as it was changed, is parsed anew.
        """
        if file is None:
            return UNREAD
        lines, models = linecache.getlines(file), cls._models
        known = models.pop(file, None)
        if known is None or (known[0] is not lines and known[0] != lines):
            known = lines, cls(file, lines, parse("".join(lines)))
        models[file] = known  # the newest last
        while len(models) > 1 and (len(models) > MAX_FILES or sum(len(k) for k, _ in models.values()) > MAX_LINES):
            models.pop(next(iter(models)), None)
        return known[1]

    @functools.cached_property
    def scopes(self) -> list[Scope]:
        """The scopes in their order, the module first; the module alone where an expression is nested too deeply."""
        try:
            return scopes_of(self.tree)
        except RecursionError:
            return [Scope("<module>", 0, node=self.tree)]

    @property
    def module(self) -> Scope:
        """The file's own scope."""
        return self.scopes[0]

    @overload
    def all_of(self, kind: type[_Node], /) -> list[_Node]: ...

    @overload
    def all_of(self, *kinds: type[ast.AST]) -> list[Any]: ...

    def all_of(self, *kinds: type[ast.AST]) -> list[Any]:
        """All nodes of some kinds, outer before inner."""
        if len(kinds) > 1:
            return [node for node in self.nodes if isinstance(node, kinds)]
        found = self._by_kind.get(kinds[0])
        if found is None:
            found = self._by_kind[kinds[0]] = [node for node in self.nodes if isinstance(node, kinds)]
        return found

    @property
    def functions(self) -> list[FunctionNode]:
        """All functions and methods, outer before inner."""
        return self.all_of(*FUNCTIONS)

    # What is around a line

    def around(self, line: int) -> tuple[FunctionNode | ast.Module, list[Loop]]:
        """The innermost function (or the module) around a line, and its loops around it, outermost first."""
        function: FunctionNode | ast.Module = self.tree
        loops: list[Loop] = []
        for node in self._blocks:
            if spans(node, line):
                if isinstance(node, FUNCTIONS):
                    function, loops = node, []
                else:
                    loops.append(node)
        return function, loops

    def function_at(self, line: int) -> FunctionNode | ast.Module:
        """The innermost function (or the module) around a line."""
        return self.around(line)[0]

    def scope_at(self, line: int) -> Scope:
        """The scope of the innermost function around a line, else the module's; lambdas and classes are passed over."""
        node = self.function_at(line)
        return next((scope for scope in self.scopes if scope.node is node), self.module)

    def scope_of(self, first: int, name: str) -> Scope | None:
        """The scope of a code object by its first line, that of a decorator if it has any, and its name."""
        if name == "<module>":
            return self.module if self.is_read else None
        short = name.rpartition(".")[2]
        return next((scope for scope in self.scopes if (scope.first_line, scope.name) == (first, short)), None)

    def function_of(self, first: int) -> FunctionNode | None:
        """The function that begins on a line, its decorators included."""
        return next((node for node in self.functions if first_line(node) == first), None)

    def functions_named(self, name: str) -> list[FunctionNode]:
        """All functions and methods of a name."""
        return [node for node in self.functions if node.name == name]

    def loops_in(self, scope: ast.AST | None, line: int) -> list[Loop]:
        """The loops within a function around a line, outermost first; those of functions in it as well."""
        first, last = getattr(scope, "lineno", 0), getattr(scope, "end_lineno", None) or len(self.lines)
        loops = [node for node in self._blocks if isinstance(node, LOOPS) and spans(node, line)]
        return [loop for loop in loops if first <= loop.lineno <= last]

    def node_at(self, line: int, kind: type[_Node]) -> _Node | None:
        """The outermost node of a kind that a line lies in."""
        return next((node for node in self.all_of(kind) if spans(node, line)), None)

    # Words

    def text(self, line: int, end_line: int | None = None) -> str:
        """The statement on some lines, as one line of at most 160 characters, without its comments."""
        end = max(line, min(end_line or line, line + 7))
        text = " ".join(self.code(number) for number in range(line, end + 1)).strip()
        return text if len(text) <= 160 else text[:157] + "..."

    def place(self, line: int, function: str | None = None, holder: str | None = None) -> Place:
        """A line as a place, with its text."""
        return Place(file=self.file, line=line, function=function, holder=holder, source=self.code(line))

    def code(self, line: int) -> str:
        """What Python reads of one line: no comment, no indentation; empty where there is no such line."""
        text = self.lines[line - 1] if 0 < line <= len(self.lines) else ""
        return (text[: self._comments.get(line)] if "#" in text else text).strip()

    @functools.cached_property
    def _comments(self) -> dict[int, int]:
        """The column at which the comment of a line begins."""
        tokens = tokenize.generate_tokens(iter(self.lines).__next__)
        try:
            return dict(token.start for token in tokens if token.type == tokenize.COMMENT)
        except (tokenize.TokenError, SyntaxError):  # a magic line of a notebook, which the parser was spared
            return {}


UNREAD = SourceModel("", [], None)


@final
class Sources:
    """The files that one search reads, with a bound on their lines.

    Args:
        max_lines: How many lines are read in all; later files count as unreadable.
        is_late: Asked before a file is read; whether there is no time left for it.
    """

    def __init__(self, max_lines: int = MAX_LINES, is_late: Callable[[], bool] = lambda: False) -> None:
        self._is_late, self._max_lines, self._left = is_late, max_lines, max_lines
        self._files: dict[str, SourceModel] = {}
        self._others: tuple[list[str], Sources] | None = None

    def others(self, list_files: Callable[[], list[str]]) -> tuple[list[str], Sources]:
        """Files of all the user's modules, listed once, and a bound of their own: the nearest files stay readable."""
        if self._others is None:
            self._others = list_files(), Sources(self._max_lines, self._is_late)
        return self._others

    def get(self, file: str | None, words: Collection[str] = ()) -> SourceModel:
        """A file's model; one that is not read where that is too much, or the file has none of some words."""
        if file is None or file in self._files:
            return self._files[file] if file is not None else UNREAD
        lines = linecache.getlines(file)
        if words and not any(word in line for word in words for line in lines):
            return UNREAD  # it is not worth it
        fits = bool(lines) and len(lines) <= self._left and not self._is_late()
        self._left -= len(lines) if fits else 0
        self._files[file] = SourceModel.of(file if fits else None)
        return self._files[file]
