"""The name that a line of source gives its value to."""

from __future__ import annotations

import ast
import linecache

from memguard.probes.parsing import parse


def assigned_at(file: str, line: int) -> tuple[str, str] | None:
    """The name that a statement gives its value to, and its text; None if it is no assignment to a single name."""
    text = "".join(linecache.getlines(file))
    tree = parse(text)
    for node in ast.walk(tree) if tree is not None else ():
        if not isinstance(node, ast.Assign) or not node.lineno <= line <= (node.end_lineno or node.lineno):
            continue
        if len(node.targets) == 1 and isinstance(node.targets[0], (ast.Name, ast.Attribute, ast.Subscript)):
            return ast.unparse(node.targets[0]), " ".join((ast.get_source_segment(text, node) or "").split())
    return None
