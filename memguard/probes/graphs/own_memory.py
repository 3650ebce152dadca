"""Whether a module keeps a memory in an attribute of its own: read and written back, made from the old one.

Or a function in a variable: a moving average that it computes with.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from types import FrameType
from typing import Any

import torch
from torch import nn

from memguard.facts import Place
from memguard.probes.graphs.self_made import ASSIGNS, is_attribute, is_self_made, is_written, reads, targets, up_to
from memguard.probes.naming.roots import submodules_of
from memguard.probes.objects import attributes_of, is_user_class
from memguard.probes.objects.frames import read_locals
from memguard.source.blended import is_blended_state, is_blended_variable
from memguard.source.chains import last_name
from memguard.source.parsing import parse_file

_JOINS = frozenset({"cat", "concat", "concatenate", "stack", "hstack", "vstack"})
_MOVES = frozenset({"to", "cuda", "cpu", "float", "double", "half", "bfloat16", "type_as", "contiguous", "clone"})
"""Methods that give the same values elsewhere, or in another form."""


_STEPS = ("forward", "training_step")
"""Methods in which a module does what a batch asks for."""


def is_own_memory(place: Place, models: Iterable[nn.Module], frames: Iterable[FrameType] = ()) -> bool:
    """Whether what is kept is a memory: each batch reads it, or a part of the model makes it from its old value.

    So is a moving average that is computed with. A running sum or mean that is only shown is none.

    Args:
        place: The statement that keeps.
        models: The models, one of which has the memory.
        frames: The user's frames, in which what has it, or the variable, may be instead.
    """
    owner, _, name = (place.holder or "").rpartition(".")
    if place.file is None or place.line is None or not name:
        return False
    if not owner:
        return _is_tensor_of(frames, place.file, name) and is_blended_variable(place.file, place.line, name)
    for one in _owners(models, frames, owner.rpartition(".")[2]):
        attributes = attributes_of(one)
        buffers = attributes.get("_buffers")
        value: Any = attributes.get(name, dict.get(buffers, name) if isinstance(buffers, dict) else None)
        if issubclass(type(value), torch.Tensor):
            if not _has_several(value):
                return False  # an average rather than a memory
            is_read = issubclass(type(one), nn.Module) and _is_read_first(place.file, place.line, name)
            is_state = is_read or is_blended_state(place.file, place.line, name)
            return is_state or is_self_made(place.file, place.line, name, one)
    return False


def _is_tensor_of(frames: Iterable[FrameType], file: str, name: str) -> bool:
    """Whether a function of a file has more than a number in a variable: of one, an average is only shown."""
    here = (frame for frame in frames if frame.f_code.co_filename == file)
    values: Iterator[Any] = (read_locals(frame).get(name) for frame in here)
    return any(issubclass(type(value), torch.Tensor) and _has_several(value) for value in values)


def _has_several(tensor: torch.Tensor) -> bool:
    """Whether it has more than one element; a subclass's own code is not asked."""
    with torch._C.DisableTorchFunctionSubclass():
        return torch.Tensor.numel(tensor) > 1


def _owners(models: Iterable[nn.Module], frames: Iterable[FrameType], name: str) -> Iterator[object]:
    """Objects whose class has a name: parts of the models, what variables stand for, and what that has, with its parts.

    A module of which only methods and parts are called is none of the models.
    """
    seen: set[int] = set()
    for part in (part for model in models for part in submodules_of(model, seen)):
        if type(part).__name__ == name:
            yield part
    for frame in frames:
        for value in list(read_locals(frame).values()):
            is_model = issubclass(type(value), nn.Module)
            if is_model or (is_user_class(type(value)) and not issubclass(type(value), type)):
                below = [value] if is_model else [value, *attributes_of(value).values()]
                yield from (part for one in below for part in _with_parts(one, seen) if type(part).__name__ == name)


def _with_parts(value: object, seen: set[int]) -> Iterator[object]:
    """Something, and of a module its submodules, each once."""
    return submodules_of(value, seen) if issubclass(type(value), nn.Module) else iter((value,))


def _is_read_first(file: str, line: int, name: str) -> bool:
    """Whether a step reads the old value before the statement on a line makes the new one, there or in a method."""
    tree = parse_file(file)
    classes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)] if tree is not None else []
    for kind in classes:
        methods = {node.name: node for node in kind.body if isinstance(node, ast.FunctionDef)}
        steps = [methods[step] for step in _STEPS if step in methods]
        method = next((m for m in methods.values() if m.lineno <= line <= (m.end_lineno or 0)), None)
        if not steps or method is None:
            continue
        *before, write = up_to(method.body, line)
        if method in steps:
            return is_written(write, name) and _is_used(before, write, name)
        value = write.value if isinstance(write, ast.Assign) else None
        if is_written(write, name) and reads(value, name, ()) and not _is_joined(value):
            return any(_is_read_before(step, method.name, methods, name) for step in steps)
    return False


def _is_read_before(step: ast.FunctionDef, writer: str, methods: Mapping[str, ast.FunctionDef], name: str) -> bool:
    """Whether a step, before it calls the method that writes, reads, or calls one that does: ``self.retrieve(q)``."""
    for statement in step.body:
        called = [
            node.func.attr
            for node in ast.walk(statement)
            if isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and is_attribute(node.func, node.func.attr)
        ]
        if writer in called:
            return False
        if isinstance(statement, (*ASSIGNS, ast.Return)) and reads(statement.value, name, ()):
            return True
        for reader in (methods[each] for each in called if each in methods):
            values = (node.value for node in ast.walk(reader) if isinstance(node, (*ASSIGNS, ast.Return)))
            if any(reads(value, name, ()) for value in values):
                return True
    return False


def _is_used(before: list[ast.stmt], write: ast.stmt, name: str) -> bool:
    """Whether the old value goes into the new one, and into something else that is computed before."""
    simple = [node for statement in before for node in ast.walk(statement) if isinstance(node, (*ASSIGNS, ast.Return))]
    aliases = [node for node in simple if node.value is not None and _is_alias(node.value, name)]
    old = {target for node in aliases for target in targets(node)}
    read = [node for node in simple if node not in aliases and reads(node.value, name, old)]
    made_of = {node.id for node in ast.walk(write) if isinstance(node, ast.Name)}
    parts = [node for node in read if targets(node) & made_of]
    if any(_is_joined(node.value) for node in [*parts, write] if isinstance(node, ASSIGNS)):
        return False
    return bool(len(read) > len(parts)) and bool(parts or reads(getattr(write, "value", None), name, old))


def _is_joined(value: ast.expr | None) -> bool:
    """Whether old and new stand side by side, as in a queue: ``torch.cat([k, self.queue])[:size]`` collects."""
    while isinstance(value, ast.Subscript):
        value = value.value
    return isinstance(value, ast.Call) and last_name(value.func) in _JOINS


def _is_alias(value: ast.expr, name: str) -> bool:
    """``self.memory`` itself, moved (``self.memory.to(x.device)``), or one of two: ``a if b else self.memory``."""
    if isinstance(value, ast.IfExp):
        return _is_alias(value.body, name) or _is_alias(value.orelse, name)
    while isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr in _MOVES:
        value = value.func.value
    return is_attribute(value, name)
