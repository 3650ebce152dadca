"""The syntax tree of a source file or a line, for a look at a statement or two; never run."""

from __future__ import annotations

import ast
import linecache


def parse(text: str) -> ast.Module | None:
    """The tree of some source; None where Python cannot read it, and nothing is to be concluded from it."""
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):  # not Python, a null byte in it, too deep
        return None


def parse_file(file: str) -> ast.Module | None:
    """The tree of a source file, empty where there is no such file; None where Python cannot read it."""
    return parse("".join(linecache.getlines(file)))
