"""Large tensors in local variables of the user's functions: whether they are read again, and who else holds them."""

from __future__ import annotations

import gc
import sys
import types
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import final

import torch

from memguard.heap.attributes import is_tensor
from memguard.heap.containers import elements_of, tensors_in
from memguard.heap.frames import is_module_level, is_script, read_locals, user_frames
from memguard.records.facts import Place
from memguard.source.model import Sources
from memguard.source.reads import read_local
from memguard.torch_objects.storages import storage_key, storages_of, users_of

_NESTS = (list, tuple, dict)


@final
@dataclass(frozen=True, slots=True)
class LargeLocal:
    """A local variable that holds a large storage alive."""

    name: str
    bytes: int
    place: Place
    """Where the variable got its value."""
    read_again: bool | None
    """Whether the function reads it before it gets a new value; None if its source is not at hand."""
    last_turns: bool = False
    """Whether it is the loop's last turn's: what sets it in every turn stands below the line that runs, or runs."""
    shared: bool = False
    """Whether something else may hold the same storage: a caller, what it was taken from, what a loop goes through."""
    backward_follows: bool = False
    """Whether the function calls backward further down: the peak comes while the variable is there."""


def find_large_locals(
    min_bytes: int,
    *,
    ignore: Callable[[int], bool] = lambda key: False,
    frame: types.FrameType | None = None,
    since: Mapping[types.CodeType, int] | None = None,
    answers: Collection[tuple[int, int]] = (),
    on_host: bool = True,
) -> tuple[LargeLocal, ...]:
    """Local variables of the functions on the stack, and of the script, that hold large tensors, the largest first.

    Args:
        min_bytes: Smallest storage that counts.
        ignore: Told a storage's key; whether it belongs to parameters, gradients or optimizer state.
        frame: Where the stack begins; the caller's frame if not given.
        since: Of each function, the line from which on reads count; by default the one that runs. Others are left out.
        answers: Lists, dicts and the like that a model gave, by their ids and those of their types: their tensors count
            as their variable's. Of others only tensors count.
        on_host: Whether tensors in host memory count; where a device is watched they are none of its peak.
    """
    sources = Sources()
    found: dict[int, LargeLocal] = {}
    frames: dict[int, types.FrameType] = {}
    for user_frame in user_frames(sys._getframe(1) if frame is None else frame):
        code = user_frame.f_code
        if (is_module_level(code) and not is_script(code.co_filename)) or (since is not None and code not in since):
            continue
        line = user_frame.f_lineno if since is None else since[code]
        variables = read_locals(user_frame)
        for name in variables:
            value = variables[name]  # items() would keep a pair that has it too
            storages = _storages(value, min_bytes, answers) if on_host or not is_on_host(value) else {}
            if not storages:
                continue
            local = _local(name, 0, user_frame, sources, line, runs=since is None)
            for key, size in storages.items():
                if ignore(key):
                    continue
                local = replace(local, bytes=size)
                known = found.get(key)
                if known is None:
                    found[key], frames[key] = local, user_frame
                elif frames[key] is not user_frame:
                    # Another function holds it as well; if that one reads it on, nothing is gained here.
                    read_again = known.read_again if local.read_again is False else local.read_again
                    found[key] = replace(known, shared=True, read_again=read_again)
                elif local.read_again is not False:  # another name of it, or a part of it
                    found[key] = replace(known, read_again=local.read_again)
    frames.clear()
    return tuple(sorted(_by_name(found.values()), key=lambda local: -local.bytes))


def hangs_on_others(
    local: LargeLocal, *, frame: types.FrameType | None = None, others: Collection[object] = ()
) -> bool:
    """Whether something else holds what a variable holds: a dataset, an object, a view. Then ``del`` gains nothing.

    Args:
        local: One that `find_large_locals` has just found.
        frame: Where the stack begins; the caller's frame if not given.
        others: What may refer to it besides, like the generator whose variable it is.
    """
    for user_frame in user_frames(sys._getframe(1) if frame is None else frame):
        code = user_frame.f_code
        if (code.co_filename, code.co_name) != (local.place.file, local.place.function):
            continue
        variables = read_locals(user_frame)
        nests = [value for value in variables.values() if _is_nest(type(value))]  # batch, of which x is a part
        return is_held_elsewhere(variables.get(local.name), variables, [user_frame.f_globals, nests, *nests, *others])
    return False


def _storages(value: object, min_bytes: int, answers: Collection[tuple[int, int]]) -> dict[int, int]:
    """The storages that a variable holds as a large tensor, or as a model's answer without a graph: bytes by key."""
    if is_tensor(value):  # the first asks no object
        key = storage_key(value)
        return {key[0]: key[1]} if key is not None and key[1] >= min_bytes else {}
    if (id(value), id(type(value))) not in answers:  # to hash a class may run the user's code
        return {}
    return _of_nest(value, min_bytes)


def _is_nest(kind: type) -> bool:
    """Whether it is one of a few classes, by identity: a metaclass may define equality."""
    return any(kind is one for one in _NESTS)


def _of_nest(value: object, min_bytes: int) -> dict[int, int]:
    """The storages of the tensors without a graph that a list, tuple or dict holds: bytes by key."""
    tensors = list(tensors_in(value, 3))
    found = {} if any(tensor.requires_grad for tensor in tensors) else storages_of(tensors)
    return found if sum(found.values()) >= min_bytes else {}


def is_on_host(value: object) -> bool:
    """Whether it is a tensor in host memory."""
    return is_tensor(value) and value.device.type == "cpu"


def _by_name(found: Iterable[LargeLocal]) -> Iterator[LargeLocal]:
    """What one variable holds in several tensors, as one."""
    sizes: dict[LargeLocal, int] = {}
    for local in found:
        alike = replace(local, bytes=0)
        sizes[alike] = sizes.get(alike, 0) + local.bytes
    return (replace(local, bytes=size) for local, size in sizes.items())


def _local(name: str, size: int, frame: types.FrameType, sources: Sources, line: int, *, runs: bool) -> LargeLocal:
    code = frame.f_code
    model = sources.get(code.co_filename)
    said = read_local(model, code.co_firstlineno, code.co_name, name, line, frame.f_lineno, runs=runs)
    place = Place(file=code.co_filename, line=said.line or line, function=code.co_name, holder=name, source=said.source)
    return LargeLocal(name, size, place, said.read_again, said.last_turns, said.shared, said.backward_follows)


MAX_PARTS = 256


def is_held_elsewhere(value: object, variables: Mapping[str, object], others: Sequence[object] = ()) -> bool:
    """Whether anything else refers to a value, or to what is in it; asks all objects, some 10 to 30 ms.

    Of views of other tensors, and of tensors of other classes, that is not known: they count as held.

    Args:
        value: A tensor, or a list, tuple or dict.
        variables: The dict by which the function's variables were read, which has it too.
        others: What may refer to it besides.
    """
    parts: list[object] = [value]
    for part in parts:
        if len(parts) > MAX_PARTS:
            return True  # too many to be sure
        if type(part) is torch.Tensor:
            if part._base is not None or (users_of(part) or 1) > 1:
                return True
        elif is_tensor(part):
            return True
        else:
            parts += islice(elements_of(part), MAX_PARTS + 1)
    asked = tuple(parts)  # from Python 3.13 on, the arguments of the call below are found as well
    own = {id(part) for part in (*parts, parts, asked, variables, *others)}
    referrers = gc.get_referrers(*asked)
    return any(id(one) not in own and type(one) is not types.FrameType for one in referrers)
