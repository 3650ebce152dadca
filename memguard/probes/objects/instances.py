"""What instances, containers, arrays and classes hold."""

from __future__ import annotations

import types
from collections.abc import Iterable, Iterator
from typing import Any

from memguard.probes.objects.attributes import attributes_of, is_user_class, mro_of, namespace_of
from memguard.probes.objects.elements import indices_of, sample_of
from memguard.probes.objects.held import Held, Via

# fmt: off
MODULE_INTERNALS = frozenset({
    "_parameters", "_buffers", "_modules", "_non_persistent_buffers_set", "_backward_pre_hooks", "_backward_hooks",
    "_is_full_backward_hook", "_forward_hooks", "_forward_hooks_with_kwargs", "_forward_hooks_always_called",
    "_forward_pre_hooks", "_forward_pre_hooks_with_kwargs", "_state_dict_hooks", "_state_dict_pre_hooks",
    "_load_state_dict_pre_hooks", "_load_state_dict_post_hooks", "training",
})
# fmt: on
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
HEAP_TYPE = 1 << 9  # Py_TPFLAGS_HEAPTYPE: made by a class statement


def slots_of(kind: type) -> list[tuple[str, Any]]:
    """The ``__slots__`` of a type and of the classes it extends, by name."""
    return [
        (name, slot)
        for base in mro_of(kind)
        if type.__dict__["__flags__"].__get__(base) & HEAP_TYPE
        for name, slot in list(namespace_of(base).items())
        if type(slot) is types.MemberDescriptorType and name not in ("__dict__", "__weakref__")
    ]


def of_instance(obj: object, slots: Iterable[tuple[str, Any]] = ()) -> Iterator[Held]:
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
        for hooks in _HOOKS:
            for hook in list((attributes.get(hooks) or {}).values()):
                yield Via.PART, None, hook
    for name, slot in slots:
        try:
            yield Via.ATTRIBUTE, name, slot.__get__(obj)
        except AttributeError:  # a slot that nothing was put into
            continue


def of_container(obj: Any) -> Iterator[Held]:
    """The elements."""
    for key, value in sample_of(obj):
        yield Via.ITEM, key, value


def of_container_and_attributes(obj: Any) -> Iterator[Held]:
    """The elements, and what a subclass added to them."""
    yield from of_container(obj)
    yield from of_instance(obj)


def of_array(array: Any) -> Iterator[Held]:
    """The elements of an array of Python objects: a table of losses."""
    if array.dtype.hasobject:
        for index in indices_of(array.size):
            yield Via.ITEM, None, array.item(index)


def of_class(cls: type) -> Iterator[Held]:
    """What the user wrote into a class."""
    if is_user_class(cls):
        for name, value in list(namespace_of(cls).items()):
            if not name.startswith("__"):
                yield Via.ATTRIBUTE, name, value
