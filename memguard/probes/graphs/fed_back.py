"""Whether a statement makes a state from itself by a model: ``memory = model.write(h, memory)``."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from types import FrameType
from typing import Any

from torch import nn

from memguard.facts import Place
from memguard.probes.objects import attributes_of
from memguard.probes.objects.frames import read_locals
from memguard.source.parsing import parse


def is_fed_back(place: Place, frames: Iterable[FrameType]) -> bool:
    """Whether what is kept is what a module made from what was there before, as a memory; a running sum is not.

    Args:
        place: The statement that keeps.
        frames: The user's frames, innermost first.
    """
    tree = parse((place.source or "").strip())
    node = tree.body[0] if tree is not None and len(tree.body) == 1 else None
    if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Call):
        return False
    call = node.value
    given = _parts_of([*call.args, *(keyword.value for keyword in call.keywords)])
    if not given & _parts_of(node.targets):
        return False
    here = (frame for frame in frames if frame.f_code.co_filename == place.file)
    return any(_is_of_module(call.func, {**frame.f_globals, **read_locals(frame)}) for frame in here)


def _parts_of(expressions: Iterable[ast.expr]) -> set[str]:
    """What is given or taken, each part of a tuple by itself: ``out, (h, c) = lstm(x, (h, c))``."""
    found = set()
    stack = list(expressions)
    while stack:
        expression = stack.pop()
        if isinstance(expression, (ast.Tuple, ast.List)):
            stack.extend(expression.elts)
        else:
            found.add(ast.unparse(expression))
    return found


def _is_of_module(function: ast.expr, variables: dict[str, Any]) -> bool:
    """Whether what is called is a module, or a method of one; a method of one's own may be anything."""
    if issubclass(type(_value(function, variables)), nn.Module):
        return True
    owner = function.value if isinstance(function, ast.Attribute) else None
    if owner is None or (isinstance(owner, ast.Name) and owner.id == "self"):
        return False
    return issubclass(type(_value(owner, variables)), nn.Module)


def _value(node: ast.expr, variables: dict[str, Any]) -> Any:
    """What a name, or a chain of attributes, stands for; None where that would need code to run."""
    if isinstance(node, ast.Name):
        return variables.get(node.id)
    if not isinstance(node, ast.Attribute):
        return None
    attributes = attributes_of(_value(node.value, variables))
    modules = attributes.get("_modules")
    return attributes.get(node.attr, dict.get(modules, node.attr) if isinstance(modules, dict) else None)
