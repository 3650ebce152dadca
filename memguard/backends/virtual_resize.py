"""Tells when a storage is resized by itself, as FSDP does: the one change of memory that is no operator."""

from __future__ import annotations

from typing import Any, final

import torch

from memguard.allocator import OutOfMemory
from memguard.backends.storages import Storages


@final
class StorageResizes:
    """A wrapper around ``torch.UntypedStorage.resize_`` between `install` and `remove`.

    Args:
        storages: Who wants to know.
    """

    def __init__(self, storages: Storages) -> None:
        self._storages: Storages | None = None
        self._to_tell = storages
        self._before: Any = None
        self._ours: Any = None

    def install(self) -> None:
        """Puts the wrapper in place."""
        self._storages = self._to_tell
        self._before = torch.UntypedStorage.__dict__.get("resize_")
        original = torch.UntypedStorage.resize_

        def resize_(storage: torch.UntypedStorage, *args: Any) -> Any:
            out = original(storage, *args)
            if self._storages is not None and (text := _resized(self._storages, storage)) is not None:
                raise torch.OutOfMemoryError(text)
            return out

        self._ours = resize_
        torch.UntypedStorage.resize_ = resize_  # type: ignore[method-assign, assignment]

    def remove(self) -> None:
        """Takes the wrapper away; where somebody wrapped it in turn, it stays and does nothing."""
        self._storages = None
        if torch.UntypedStorage.__dict__.get("resize_") is not self._ours:
            return
        if self._before is None:
            del torch.UntypedStorage.resize_
        else:
            torch.UntypedStorage.resize_ = self._before  # type: ignore[method-assign]


def _resized(storages: Storages, storage: torch.UntypedStorage) -> str | None:
    try:
        storages.resized(storage)
    except OutOfMemory as error:
        return str(error)
    return None
