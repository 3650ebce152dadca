"""Notices a storage that is resized by itself, as FSDP does: the one change that is no operator."""

from __future__ import annotations

from typing import Any, final

import torch

from memguard.allocator import OutOfMemory
from memguard.backends.storages import Storages

_PATCH = "_memguard_resizes"
"""On a wrapper: the object that put it there."""


@final
class StorageResizes:
    """A wrapper around ``torch.UntypedStorage.resize_`` between `install` and `remove`."""

    def __init__(self, storages: Storages) -> None:
        self._storages: Storages | None = None
        self._to_tell = storages
        self._before: Any = None

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

        vars(resize_)[_PATCH] = self
        torch.UntypedStorage.resize_ = resize_  # type: ignore[method-assign, assignment]

    def remove(self) -> None:
        """Takes the wrapper away; where somebody wrapped it in turn, it stays and does nothing."""
        self._storages = None
        # Devices may go in any order: the wrapper of one that went underneath another's goes with the last.
        while (top := _topmost()) is not None and top._storages is None:
            if top._before is None:
                del torch.UntypedStorage.resize_
            else:
                torch.UntypedStorage.resize_ = top._before  # type: ignore[method-assign]


def _topmost() -> StorageResizes | None:
    """Whose the wrapper in place is, if it is one of ours."""
    return getattr(torch.UntypedStorage.__dict__.get("resize_"), _PATCH, None)


def _resized(storages: Storages, storage: torch.UntypedStorage) -> str | None:
    try:
        storages.resized(storage)
    except OutOfMemory as error:  # as text, of which the caller makes torch's own error
        return str(error)
    return None
