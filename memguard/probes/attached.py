"""What is put into a node of an autograd graph to learn when the graph dies."""

from __future__ import annotations

from typing import final


@final
class Attached:
    """Sits in the ``metadata`` of a node and dies with it: a weak reference to it tells when.

    Copied or pickled with the node it becomes None, so that no copy of the user's knows memguard.
    """

    __slots__ = ("__weakref__",)

    def __deepcopy__(self, memo: object) -> None:
        return None

    def __reduce__(self) -> tuple[type[None], tuple[()]]:
        return (type(None), ())
