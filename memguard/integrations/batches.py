"""A loader's batches with their exact boundaries: what `Guard.batches` gives."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sized
from typing import TYPE_CHECKING, Generic, TypeVar, final

from memguard.integrations.progress import BatchLine

if TYPE_CHECKING:
    from memguard.integrations.guard import Guard

BatchT = TypeVar("BatchT")


@final
class Batches(Generic[BatchT]):
    """What `Guard.batches` gives: iterate over it once or many times. It holds no batch."""

    def __init__(self, loader: Iterable[BatchT], guard: Guard | None, epoch: int | None) -> None:
        self._loader, self._guard, self._epoch = loader, guard, epoch

    def __len__(self) -> int:
        return len(self._loader)  # type: ignore[arg-type]

    def __iter__(self) -> Iterator[BatchT]:
        return iter(self._loader) if self._guard is None else _BatchIterator(self._loader, self._guard, self._epoch)


@final
class _BatchIterator(Generic[BatchT]):
    """A class rather than a generator: the caller's frame stays the one above, and nothing keeps the last batch."""

    def __init__(self, loader: Iterable[BatchT], guard: Guard, epoch: int | None) -> None:
        self._guard: Guard | None = None
        self._index = 0
        self._line = BatchLine(guard.session, length_of(loader))
        self._batches = iter(loader)
        guard.start_batches(epoch)
        self._guard = guard

    def __iter__(self) -> _BatchIterator[BatchT]:
        return self

    def __next__(self) -> BatchT:
        guard = self._guard
        if guard is None:
            raise StopIteration
        try:
            batch = next(self._batches)
        except BaseException:
            self._end()
            raise
        guard.next_batch(self._index, batch)
        guard.show(self._line, self._index)
        self._index += 1
        return batch

    def __del__(self) -> None:
        self._end()

    def _end(self) -> None:
        guard, self._guard = self._guard, None
        if guard is not None:
            guard.end_batches()
            guard.show(self._line, None)


def length_of(loader: object) -> int | None:
    """The batches of a loader; None where it does not tell."""
    try:
        return len(loader) if isinstance(loader, Sized) else None
    except Exception:  # a DataLoader over an iterable dataset has __len__, but no length
        return None
