"""Source files of the user as functions, the names they bind and the places where things are stored; never run."""

from __future__ import annotations

import ast
import linecache
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import final

from memguard.source.function_index import functions_of
from memguard.source.functions import Function
from memguard.source.parsing import parse

MAX_LINES = 12_000


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
        tree = parse("".join(lines))
        if tree is None:
            return None
        try:
            functions = functions_of(tree)
        except RecursionError:
            return None  # deeper than we go
        return Source(file, lines, functions, functions[0])
