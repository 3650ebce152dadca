"""What an object holds, read without running the user's code: no getattr, no property, no `__eq__`, no `__iter__`."""

from __future__ import annotations

import collections
import enum
import functools
import gc
import itertools
import sys
import threading
import types
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, final

from memguard.probes.frames import is_user_frame, is_user_module, read_locals


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


FULL, SAMPLE = 64, 4
"""Containers of up to FULL elements are read whole, of longer ones SAMPLE from the front, the middle and the end."""

# fmt: off
MODULE_INTERNALS = frozenset({
    "_parameters", "_buffers", "_modules", "_non_persistent_buffers_set", "_backward_pre_hooks", "_backward_hooks",
    "_is_full_backward_hook", "_forward_hooks", "_forward_hooks_with_kwargs", "_forward_hooks_always_called",
    "_forward_pre_hooks", "_forward_pre_hooks_with_kwargs", "_state_dict_hooks", "_state_dict_pre_hooks",
    "_load_state_dict_pre_hooks", "_load_state_dict_post_hooks", "training",
})
# fmt: on
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")

_ATOMS: tuple[type, ...] = (
    *(int, float, complex, str, bytes, bytearray, memoryview, range, slice, type(None), type(...)),
    *(types.ModuleType, types.CodeType, types.BuiltinFunctionType, types.MethodDescriptorType, types.FrameType),
    *(types.WrapperDescriptorType, types.GetSetDescriptorType, types.MemberDescriptorType, types.MethodWrapperType),
    *(weakref.ReferenceType, weakref.ProxyType, weakref.CallableProxyType),
)
_CONTAINERS: tuple[type, ...] = (dict, list, tuple, set, frozenset, collections.deque)
_WRAPPERS: dict[type | None, str] = {collections.UserList: "list", collections.UserDict: "dict"}
_OPAQUE_MODULES = ("itertools", "builtins", "functools", "collections", "_collections", "_functools", "_queue")
_LRU_CACHE = type(functools.lru_cache(lambda: None))
_HEAP_TYPE = 1 << 9  # Py_TPFLAGS_HEAPTYPE: made by a class statement


def is_atom(kind: type) -> bool:
    """Whether objects of a type hold nothing that matters."""
    return issubclass(kind, _ATOMS)


def _is_one_of(kind: type, kinds: Iterable[type]) -> bool:
    """Whether a type is one of some; by identity, for `in` compares with `==`, which a metaclass may define."""
    return any(kind is other for other in kinds)


def container_of(kind: type) -> str | None:
    """The built-in container that a type is or extends, by its name; None for any other type."""
    for container in _CONTAINERS:
        if issubclass(kind, container):
            return container.__name__
    return _WRAPPERS.get(_wrapper_of(kind))


def mro_of(cls: type) -> tuple[type, ...]:
    """The classes a class inherits from, itself first, read past any metaclass."""
    found: tuple[type, ...] = type.__dict__["__mro__"].__get__(cls)
    return found


def namespace_of(cls: type) -> Mapping[str, Any]:
    """The attributes of a class itself, read past any metaclass."""
    found: Mapping[str, Any] = type.__dict__["__dict__"].__get__(cls)
    return found


def attributes_of(obj: object) -> dict[str, Any]:
    """The instance attributes of an object: its `__dict__`, or an empty dict; never one that a property made up."""
    if type(obj) is threading.local:  # keeps a dict for each thread and has no descriptor for it
        return dict(threading.local.__getattribute__(obj, "__dict__"))
    for base in mro_of(type(obj)):
        slot = namespace_of(base).get("__dict__")
        kind: type = type(slot)
        if kind is types.GetSetDescriptorType or kind is types.MemberDescriptorType:
            found = slot.__get__(obj)  # type: ignore[union-attr]
            return found if type(found) is dict else {}
    return {}


def length_of(obj: Any) -> int:
    """Number of elements of a built-in container or of a subclass of one."""
    obj = unwrapped(obj)
    for container in _CONTAINERS:
        if issubclass(type(obj), container):
            return int(container.__len__(obj))  # type: ignore[attr-defined]
    return 0


def _wrapper_of(kind: type) -> type | None:
    """``UserList`` or ``UserDict``, if a type is one: containers whose elements lie in an attribute."""
    for base in mro_of(kind):  # by identity: these have an abstract class's issubclass, which hashes the type
        if base is collections.UserList or base is collections.UserDict:
            return base
    return None


def unwrapped(obj: Any) -> Any:
    """The list or dict inside of a ``UserList`` or ``UserDict``; any other object itself."""
    if issubclass(type(obj), _CONTAINERS) or _wrapper_of(type(obj)) is None:
        return obj
    inner = attributes_of(obj).get("data")
    return inner if type(inner) in (list, dict) else ()


def sample_of(obj: Any) -> Iterator[tuple[str | int | None, Any]]:
    """The elements of a built-in container or of a subclass, with their keys; some of a long one."""
    obj = unwrapped(obj)
    kind = type(obj)
    if issubclass(kind, dict):
        items = dict.items(obj)
        for key, value in _ends(len(items), items, lambda: reversed(items)):
            yield (key if type(key) is str or type(key) is int else None), value
            if not is_atom(type(key)):
                yield None, key
    elif issubclass(kind, (list, tuple, collections.deque)):
        base: Any = list if issubclass(kind, list) else tuple if issubclass(kind, tuple) else collections.deque
        for index in _indices(base.__len__(obj)):
            try:
                yield None, base.__getitem__(obj, index)
            except IndexError:
                return
    else:
        base = set if issubclass(kind, set) else frozenset
        for element in _ends(base.__len__(obj), base.__iter__(obj), None):
            yield None, element


def _indices(length: int) -> Iterator[int]:
    if length <= FULL:
        return iter(range(length))
    middle = length // 2
    return itertools.chain(range(SAMPLE), range(middle, middle + SAMPLE), range(length - SAMPLE, length))


def _ends(length: int, forward: Iterable[Any], backward: Callable[[], Iterator[Any]] | None) -> list[Any]:
    """Elements from the front and the back; a container that another thread changes meanwhile counts as empty."""
    try:
        if length <= FULL:
            return list(forward)
        return [*itertools.islice(forward, 2 * SAMPLE), *(itertools.islice(backward(), SAMPLE) if backward else ())]
    except RuntimeError:
        return []


@final
class Contents:
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
        if is_atom(kind):
            return None
        if kind is Scope:
            return _of_scope
        if _is_ours(kind):
            return None
        if container_of(kind) is not None:
            return _of_container if _is_one_of(kind, _CONTAINERS) else _of_container_and_attributes
        if kind is types.FunctionType:
            return _of_function
        if kind is types.MethodType:
            return lambda method: ((Via.PART, None, method.__self__), (Via.PART, None, method.__func__))
        if kind is types.CellType:
            return _of_cell
        if _is_one_of(kind, _GENERATORS):
            return _of_generator
        if kind is types.TracebackType:
            running = self._running
            return lambda trace: _of_traceback(trace, running)
        if issubclass(kind, BaseException):
            return _of_exception
        if issubclass(kind, type):
            return _of_class
        if issubclass(kind, functools.partial):
            return _of_partial
        if kind is property:
            return lambda prop: ((Via.PART, None, prop.fget),)
        if _is_one_of(kind, (staticmethod, classmethod)):
            return lambda method: ((Via.PART, None, method.__func__),)
        heap = type.__dict__["__flags__"].__get__(kind) & _HEAP_TYPE
        if (
            type.__dict__["__module__"].__get__(kind) == "numpy"
            and type.__dict__["__name__"].__get__(kind) == "ndarray"
        ):
            return _of_array
        if kind is _LRU_CACHE or (not heap and type.__dict__["__module__"].__get__(kind) in _OPAQUE_MODULES):
            return lambda obj: [(Via.PART, None, part) for part in gc.get_referents(obj)[:SAMPLE]]
        slots = _slots_of(kind)
        return (lambda obj: _of_instance(obj, slots)) if slots else _of_instance


def _is_ours(kind: type) -> bool:
    """Whether a class is memguard's: its objects hold nothing of the user's, and are many."""
    module = type.__dict__["__module__"].__get__(kind)
    return type(module) is str and module.startswith("memguard.")


def _of_exception(error: BaseException) -> Iterator[Held]:
    for link in ("__traceback__", "__cause__", "__context__"):
        yield Via.PART, None, BaseException.__dict__[link].__get__(error)
    yield from _of_instance(error)


def _of_traceback(trace: types.TracebackType | None, running: frozenset[int]) -> Iterator[Held]:
    for _ in range(FULL):
        if trace is None:
            break
        if id(trace.tb_frame) not in running and is_user_frame(trace.tb_frame):
            scope = Scope.of_frame(trace.tb_frame)
            scope.line = trace.tb_lineno
            yield Via.PART, None, scope
        trace = trace.tb_next


def _of_scope(scope: Scope) -> Iterator[Held]:
    via = Via.GLOBAL if scope.function is None else Via.LOCAL
    for name, value in scope.variables.items():
        if not name.startswith("__"):
            yield via, name, value


def _of_container(obj: Any) -> Iterator[Held]:
    for key, value in sample_of(obj):
        yield Via.ITEM, key, value


def _of_container_and_attributes(obj: Any) -> Iterator[Held]:
    yield from _of_container(obj)
    yield from _of_instance(obj)


def _of_array(array: Any) -> Iterator[Held]:
    """The elements of an array of Python objects: a table of losses."""
    if array.dtype.hasobject:
        for index in _indices(array.size):
            yield Via.ITEM, None, array.item(index)


def _slots_of(kind: type) -> list[tuple[str, Any]]:
    return [
        (name, slot)
        for base in mro_of(kind)
        if type.__dict__["__flags__"].__get__(base) & _HEAP_TYPE
        for name, slot in list(namespace_of(base).items())
        if type(slot) is types.MemberDescriptorType and name not in ("__dict__", "__weakref__")
    ]


def _of_instance(obj: object, slots: Iterable[tuple[str, Any]] = ()) -> Iterator[Held]:
    attributes = attributes_of(obj)
    module = "_parameters" in attributes and "_modules" in attributes
    for name, value in list(attributes.items()):
        if not (module and name in MODULE_INTERNALS):
            yield Via.ATTRIBUTE, name, value
    if module:
        for part in ("_modules", "_buffers"):  # a state carried over batches is often a buffer
            for name, value in list((attributes.get(part) or {}).items()):
                yield Via.ATTRIBUTE, name, value
        for hooks in _HOOKS:
            for hook in list((attributes.get(hooks) or {}).values()):
                yield Via.PART, None, hook
    for name, slot in slots:
        try:
            yield Via.ATTRIBUTE, name, slot.__get__(obj)
        except AttributeError:
            continue


def _of_cell(cell: types.CellType) -> Iterator[Held]:
    try:
        yield Via.PART, None, cell.cell_contents
    except ValueError:
        return


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


def function_behind(obj: object) -> types.FunctionType | None:
    """The function itself of a function or of a ``functools.partial`` of a function or method; None of others."""
    if issubclass(type(obj), functools.partial):
        obj = functools.partial.__dict__["func"].__get__(obj)
        obj = obj.__func__ if type(obj) is types.MethodType else obj
    return obj if type(obj) is types.FunctionType else None


def _of_function(function: types.FunctionType) -> Iterator[Held]:
    code = function.__code__
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=False):
        try:
            yield Via.CLOSURE, name, cell.cell_contents
        except ValueError:
            continue
    defaults = function.__defaults__ or ()
    positional = code.co_varnames[: code.co_argcount]
    for name, value in zip(positional[len(positional) - len(defaults) :], defaults, strict=False):
        yield Via.DEFAULT, name, value
    for name, value in list((function.__kwdefaults__ or {}).items()):
        yield Via.DEFAULT, name, value
    for name, value in list(function.__dict__.items()):
        yield Via.ATTRIBUTE, name, value


_GENERATORS: dict[type, str] = {
    types.GeneratorType: "gi_frame",
    types.CoroutineType: "cr_frame",
    types.AsyncGeneratorType: "ag_frame",
}


def _of_generator(generator: Any) -> Iterator[Held]:
    frame = getattr(generator, _GENERATORS[type(generator)])  # a slot of an exact built-in type
    if frame is not None and not frame.f_back and is_user_frame(frame):  # one that runs is a root of its own
        yield Via.PART, None, Scope.of_frame(frame)


def is_user_class(cls: type) -> bool:
    """Whether a class was written by the user."""
    name = namespace_of(cls).get("__module__")
    module = sys.modules.get(name) if type(name) is str else None
    if module is None or not issubclass(type(module), types.ModuleType):
        return False
    filename = attributes_of(module).get("__file__")
    return is_user_module(str(name), filename if type(filename) is str else None)


def _of_class(cls: type) -> Iterator[Held]:
    if is_user_class(cls):
        for name, value in list(namespace_of(cls).items()):
            if not name.startswith("__"):
                yield Via.ATTRIBUTE, name, value
