"""Hooks that put aside what autograd saves: ``saved_tensors_hooks(pack, unpack)``, and classes made of it."""

from __future__ import annotations

import ast

from memguard.records.facts import Place
from memguard.source.expressions import last_name, last_part
from memguard.source.model import SourceModel
from memguard.source.vocabulary import REMOVES

_HOOKS = "saved_tensors_hooks"


def remedy_of_stash(place: Place) -> str | None:
    """What to change where a statement is part of a pack hook, and nothing takes out what it puts aside; else None."""
    model, name = SourceModel.of(place.file), (place.function or "").rpartition(".")[2]
    stash = (place.holder or "").rpartition(".")[2]
    if model is None or not name or not stash:
        return None
    for call in model.all_of(ast.Call):
        hooks = [last_part(arg) for arg in (*call.args, *(keyword.value for keyword in call.keywords))][:2]
        if len(hooks) == 2 and hooks[0] == name and (last_part(call.func) == _HOOKS or _is_constructor(model, call)):
            if any(_takes_out(function, stash) for function in model.functions_named(hooks[1] or "")):
                return None
            return (
                f"take each out of `{stash}` when backward reads it: {stash}.pop(key) in {hooks[1]}(), or del what the "
                "step has put there when its backward is over."
            )
    return None


def _is_constructor(model: SourceModel, call: ast.Call) -> bool:
    """Whether a call is ``super().__init__(...)`` in a class made of the hooks."""
    if last_part(call.func) != "__init__":
        return False
    kinds = (node for node in model.all_of(ast.ClassDef) if node.lineno <= call.lineno <= (node.end_lineno or 0))
    return any(last_part(base) == _HOOKS for node in kinds for base in node.bases)


def _takes_out(function: ast.AST, stash: str) -> bool:
    """Whether a function removes something from what has that name."""
    for node in ast.walk(function):
        method = node.func if isinstance(node, ast.Call) else None
        parts: list[ast.expr] = [method.value] if isinstance(method, ast.Attribute) and method.attr in REMOVES else []
        if isinstance(node, ast.Delete):
            parts = [target.value for target in node.targets if isinstance(target, ast.Subscript)]
        if any(last_name(part) == stash for part in parts):
            return True
    return False
