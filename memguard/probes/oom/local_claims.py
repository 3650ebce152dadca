"""What the local variables of the running code hold when memory has run out: of this batch, or piled up over many."""

from __future__ import annotations

from collections.abc import Iterator
from types import FrameType

import torch

from memguard.heap.containers import container_of, tensors_in
from memguard.heap.frames import is_user_frame, read_locals
from memguard.heap.sites import place_of
from memguard.postmortem.scene import TopLine
from memguard.probes.oom.census import TOP, Census
from memguard.probes.oom.stack import Stack
from memguard.probes.oom.variables import items_of
from memguard.source.model import Sources
from memguard.source.stores import filled_at


def claim_locals(census: Census, stack: Stack) -> tuple[TopLine, ...]:
    """Local variables of the failing code; returns the user's frames and what their own variables hold.

    What a loop outside of all models has put into a list, round by round, is no temporary but kept. A storage counts
    for the innermost frame that has it.
    """
    lines, counted, sources = [], set[int](), Sources()
    for index, frame in enumerate(stack.frames):
        own: dict[int, int] = {}
        place = place_of(frame)
        ours = str(frame.f_globals.get("__name__")).partition(".")[0] == "memguard"
        for name, value in read_locals(frame).items():
            piled = index >= stack.outside and _is_piled(frame, name, value, sources)
            for tensor in _each_in(value) if piled else tensors_in(value, 2):
                key = census.key_of(tensor)
                if key is None:
                    continue
                owner = "outputs" if piled or key in census.tables else "temporaries"
                nbytes = census.claim(tensor, owner, "a temporary" if ours else f"`{name}` in {frame.f_code.co_name}()")
                if nbytes or census.owner[key] in ("activations", "temporaries"):
                    own[key] = census.size[key]
        if own and is_user_frame(frame):
            total = sum(size for key, size in own.items() if key not in counted)
            counted.update(own)
            lines.append(TopLine(file=place.file, line=place.line, function=place.function, bytes=total))
    return tuple(sorted((line for line in lines if line.bytes), key=lambda line: -line.bytes)[:TOP])


def _is_piled(frame: FrameType, name: str, value: object, sources: Sources) -> bool:
    if container_of(type(value)) is None or not is_user_frame(frame):
        return False
    if next(_each_in(value), None) is None:
        return False
    source = sources.get(frame.f_code.co_filename)
    scope = source.scope_of(frame.f_code.co_firstlineno, frame.f_code.co_name) if source is not None else None
    if source is None or scope is None:
        return False
    return filled_at(source, scope, name, frame.f_lineno) is not None


def _each_in(value: object) -> Iterator[torch.Tensor]:
    """The tensors of a container, of more than one look into a variable takes."""
    for item in items_of(value):
        yield from tensors_in(item, 2)
