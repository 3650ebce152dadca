"""The name that a line of source gives its value to, and how to call what has none."""

from __future__ import annotations

import ast
import linecache

from memguard.source.parsing import parse


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


def spelled(name: str, source: str | None) -> str:
    """A variable as its user would call it: ``model(...)[1]`` for the ``_`` of ``loss, _ = model(x)``.

    Args:
        name: The variable.
        source: The statement that sets it.
    """
    if name.strip("_"):
        return name
    tree = parse(source or "")
    node = tree.body[0] if tree is not None and tree.body else None
    if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Call):
        return name
    for target in node.targets:
        parts = target.elts if isinstance(target, (ast.Tuple, ast.List)) else []
        places = [number for number, part in enumerate(parts) if isinstance(part, ast.Name) and part.id == name]
        if places and not any(isinstance(part, ast.Starred) for part in parts):
            return f"{ast.unparse(node.value.func)}(...)[{places[-1]}]"
    return name
