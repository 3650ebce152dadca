"""What an object holds, read without running the user's code."""

from __future__ import annotations

import contextvars
import enum
import functools
import gc
import itertools
import types
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, final

import torch

from memguard.heap.attributes import (
    HEAP_TYPE,
    attributes_of,
    filled_slots,
    is_numpy_array,
    is_user_class,
    namespace_of,
    slots_of,
)
from memguard.heap.containers import CONTAINERS, FULL, SAMPLE, container_of, indices_of, is_atom, sample_of
from memguard.heap.frames import is_user_frame, read_locals


class Via(enum.Enum):
    """How one object holds another."""

    LOCAL = "local"
    GLOBAL = "global"
    CLOSURE = "closure"
    DEFAULT = "default"
    ATTRIBUTE = "attribute"
    ITEM = "item"
    ROOT = "root"
    PART = "part"
    """A part without a name of its own: the function of a method, the frame of a generator."""


Held = tuple[Via, "str | int | None", Any]
"""How, under which name or key (None where it has none that is worth telling), and the object."""

# fmt: off
MODULE_INTERNALS = frozenset({
    "_parameters", "_buffers", "_modules", "_non_persistent_buffers_set", "_backward_pre_hooks", "_backward_hooks",
    "_is_full_backward_hook", "_forward_hooks", "_forward_hooks_with_kwargs", "_forward_hooks_always_called",
    "_forward_pre_hooks", "_forward_pre_hooks_with_kwargs", "_state_dict_hooks", "_state_dict_pre_hooks",
    "_load_state_dict_pre_hooks", "_load_state_dict_post_hooks", "training",
})
# fmt: on
HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_C_MODULES = ("itertools", "_collections", "_functools", "_queue")
"""Of the standard library; some of their classes are heap types, like those that a class statement makes."""
_PARTLY_C_MODULES = ("builtins", "functools", "collections")
LRU_CACHE = type(functools.lru_cache(lambda: None))
MAX_ANSWERS = 2048
"""Keys and answers of an ``lru_cache`` with a limit that are read."""
_GENERATORS: dict[type, str] = {
    types.GeneratorType: "gi_frame",
    types.CoroutineType: "cr_frame",
    types.AsyncGeneratorType: "ag_frame",
}


@final
@dataclass(slots=True, eq=False)
class Scope:
    """The variables of a frame or a module, as an object that a walk can enter."""

    variables: dict[str, Any]
    file: str
    function: str | None = None
    """None for a module's globals."""
    first_line: int = 0
    """Line of the function's first decorator or of its ``def``."""
    line: int | None = None
    """Line that runs."""

    @classmethod
    def of_frame(cls, frame: types.FrameType) -> Scope:
        """The scope of a running or finished frame."""
        code = frame.f_code
        function = None if code.co_name == "<module>" else getattr(code, "co_qualname", code.co_name)
        return cls(read_locals(frame), code.co_filename, function, code.co_firstlineno, frame.f_lineno)


def children(obj: Any) -> Iterable[Held]:
    """Everything an object holds that may lead to a tensor; whoever asks for many keeps a `ChildReader`."""
    return ChildReader()(obj)


@final
class ChildReader:
    """Reads what objects hold; remembers for each type how to read it. Lives as long as one walk.

    Args:
        running: Frames that are roots of the walk already; an exception's traceback leads past them.
    """

    def __init__(self, running: Iterable[types.FrameType] = ()) -> None:
        self._readers: dict[int, Callable[[Any], Iterable[Held]] | None] = {}
        self._kinds: list[type] = []  # keeps their ids valid
        self._running = frozenset(map(id, running))

    def __call__(self, obj: Any) -> Iterable[Held]:
        """Everything an object holds that may lead to a tensor."""
        kind = type(obj)
        try:
            read = self._readers[id(kind)]
        except KeyError:
            read = self._readers[id(kind)] = self._reader(kind)
            self._kinds.append(kind)
        return read(obj) if read is not None else ()

    def is_empty(self, kind: type) -> bool:
        """Whether objects of a type are known to hold nothing."""
        return self._readers.get(id(kind), self) is None

    def _reader(self, kind: type) -> Callable[[Any], Iterable[Held]] | None:
        if is_atom(kind) or _is_ours(kind):
            return _of_scope if kind is Scope else None
        if container_of(kind) is not None:
            if any(kind is one for one in CONTAINERS):
                return _of_container
            return lambda obj: itertools.chain(_of_container(obj), _of_instance(obj))
        for known, reader in _READERS:  # by identity: `in` compares with `==`, which a metaclass may define
            if kind is known:
                return reader
        if kind is types.TracebackType:
            return functools.partial(_of_traceback, running=self._running)
        if kind is types.FrameType:
            return functools.partial(_of_frame, running=self._running)
        for base, reader in _READERS_OF_SUBCLASSES:
            if issubclass(kind, base):
                return reader
        if is_numpy_array(kind):
            return _of_array
        module = type.__dict__["__module__"].__get__(kind)
        is_static = not type.__dict__["__flags__"].__get__(kind) & HEAP_TYPE
        if type(module) is str and (module in _C_MODULES or (is_static and module in _PARTLY_C_MODULES)):
            return _of_c_object
        slots = slots_of(kind)
        return (lambda obj: _of_instance(obj, slots)) if slots else _of_instance


def function_behind(obj: object) -> types.FunctionType | None:
    """The function itself of a function or of a ``functools.partial`` of a function or method; None of others."""
    if issubclass(type(obj), functools.partial):
        obj = functools.partial.__dict__["func"].__get__(obj)
        obj = obj.__func__ if type(obj) is types.MethodType else obj
    return obj if type(obj) is types.FunctionType else None


def _is_ours(kind: type) -> bool:
    """Whether a class is memguard's: its objects hold nothing of the user's, and are many."""
    module = type.__dict__["__module__"].__get__(kind)
    return type(module) is str and module.startswith("memguard.")


def _of_scope(scope: Scope) -> Iterator[Held]:
    """The variables; not the names that Python gives every module."""
    via = Via.GLOBAL if scope.function is None else Via.LOCAL
    for name, value in scope.variables.items():
        if not name.startswith("__"):
            yield via, name, value


def _of_instance(obj: object, slots: Iterable[tuple[str, Any]] = ()) -> Iterator[Held]:
    """The attributes of an object; of a module its parts, buffers and hooks, and what the user added."""
    attributes = attributes_of(obj)
    module = "_parameters" in attributes and "_modules" in attributes
    for name, value in list(attributes.items()):
        if not (module and name in MODULE_INTERNALS):
            yield Via.ATTRIBUTE, name, value
    if module:
        for part in ("_modules", "_buffers"):  # a state carried over batches is often a buffer
            for name, value in list((attributes.get(part) or {}).items()):
                yield Via.ATTRIBUTE, name, value
        for hooks in HOOKS:
            for hook in list((attributes.get(hooks) or {}).values()):
                yield Via.PART, None, hook
    for name, value in filled_slots(obj, slots).items():
        yield Via.ATTRIBUTE, name, value


def _of_container(obj: Any) -> Iterator[Held]:
    return ((Via.ITEM, key, value) for key, value in sample_of(obj))


def _of_array(array: Any) -> Iterator[Held]:
    """The elements of an array of Python objects: a table of losses; and the tensor in which an array's memory lies."""
    for _ in range(FULL):  # an array made of another one has that for its base
        if not is_numpy_array(type(array.base)):
            break
        array = array.base
    if issubclass(type(array.base), torch.Tensor):
        yield Via.PART, None, array.base
    if array.dtype.hasobject:
        for index in indices_of(array.size):
            yield Via.ITEM, None, array.item(index)


def _of_class(cls: type) -> Iterator[Held]:
    """What the user wrote into a class."""
    if is_user_class(cls):
        for name, value in list(namespace_of(cls).items()):
            if not name.startswith("__"):
                yield Via.ATTRIBUTE, name, value


def _of_cell(cell: types.CellType) -> Iterator[Held]:
    try:
        yield Via.PART, None, cell.cell_contents
    except ValueError:  # empty: the variable has no value yet
        return


def _of_function(function: types.FunctionType) -> Iterator[Held]:
    """What a function closes over, its defaults, and the attributes that it was given."""
    code = function.__code__
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=False):
        yield from ((Via.CLOSURE, name, value) for _, _, value in _of_cell(cell))
    defaults = function.__defaults__ or ()
    positional = code.co_varnames[: code.co_argcount]
    named = [*zip(positional[len(positional) - len(defaults) :], defaults, strict=False)]
    for name, value in (*named, *(function.__kwdefaults__ or {}).items()):
        yield Via.DEFAULT, name, value
    for name, value in list(function.__dict__.items()):
        yield Via.ATTRIBUTE, name, value


def _of_partial(obj: functools.partial[Any]) -> Iterator[Held]:
    """Its function, and what is bound, under the names that the function has for it."""
    function, args, keywords = (functools.partial.__dict__[part].__get__(obj) for part in ("func", "args", "keywords"))
    yield Via.PART, None, function
    names: list[str] = []
    if (plain := function_behind(obj)) is not None:
        code = plain.__code__
        names = list(code.co_varnames[type(function) is types.MethodType : code.co_argcount])
    for value, name in itertools.zip_longest(args, names[: len(args)]):
        yield (Via.PART if name is None else Via.DEFAULT), name, value
    for name, value in dict.items(keywords):
        yield Via.DEFAULT, name, value


def _of_generator(generator: Any) -> Iterator[Held]:
    """The variables of a generator that waits."""
    frame = getattr(generator, _GENERATORS[type(generator)])  # a slot of an exact built-in type
    if frame is not None and not frame.f_back and is_user_frame(frame):  # one that runs is a root of its own
        yield Via.PART, None, Scope.of_frame(frame)


def _of_context_variable(variable: contextvars.ContextVar[Any]) -> Iterator[Held]:
    """What it stands for where this is asked, its default included: the user reads it by a call of ``get``."""
    try:
        yield Via.ITEM, None, variable.get()
    except LookupError:  # it has no value here
        return


def _of_traceback(trace: types.TracebackType | None, *, running: frozenset[int]) -> Iterator[Held]:
    """The frames of the user's code that an exception came through."""
    for _ in range(FULL):
        if trace is None:
            break
        if id(trace.tb_frame) not in running and is_user_frame(trace.tb_frame):
            scope = Scope.of_frame(trace.tb_frame)
            scope.line = trace.tb_lineno
            yield Via.PART, None, scope
        trace = trace.tb_next


def _of_frame(frame: types.FrameType | None, *, running: frozenset[int]) -> Iterator[Held]:
    """The variables of a frame that somebody keeps, and of those that called it and have ended."""
    for _ in range(FULL):
        if frame is None or id(frame) in running:
            break
        if is_user_frame(frame):
            yield Via.PART, None, Scope.of_frame(frame)
        frame = frame.f_back


def _of_exception(error: BaseException) -> Iterator[Held]:
    """Its traceback, the errors it came from, and its own attributes."""
    for link in ("__traceback__", "__cause__", "__context__"):
        yield Via.PART, None, BaseException.__dict__[link].__get__(error)
    yield from _of_instance(error)


def _of_c_object(obj: Any) -> Iterator[Held]:
    """What the collector knows of an object of the standard library's C code."""
    return ((Via.PART, None, part) for part in gc.get_referents(obj)[:SAMPLE])


def _of_cache(cache: Any) -> Iterator[Held]:
    """The answers that an ``lru_cache`` keeps: a dict of them where it has no limit, else one by one."""
    parts = [part for part in gc.get_referents(cache) if not issubclass(type(part), type) and not is_atom(type(part))]
    return ((Via.ITEM, None, part) for part in parts[:MAX_ANSWERS])


_READERS: tuple[tuple[type, Callable[[Any], Iterable[Held]]], ...] = (
    (types.FunctionType, _of_function),
    (types.MethodType, lambda method: ((Via.PART, None, method.__self__), (Via.PART, None, method.__func__))),
    (types.CellType, _of_cell),
    *((kind, _of_generator) for kind in _GENERATORS),
    (contextvars.ContextVar, _of_context_variable),
    (property, lambda prop: ((Via.PART, None, prop.fget),)),
    (staticmethod, lambda method: ((Via.PART, None, method.__func__),)),
    (classmethod, lambda method: ((Via.PART, None, method.__func__),)),
    (LRU_CACHE, _of_cache),
)
_READERS_OF_SUBCLASSES: tuple[tuple[type, Callable[[Any], Iterable[Held]]], ...] = (
    (BaseException, _of_exception),
    (type, _of_class),
    (functools.partial, _of_partial),
)
