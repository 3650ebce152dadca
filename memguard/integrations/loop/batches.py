"""A loader's batches with their exact boundaries: what `Guard.batches` gives."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sized
from typing import TYPE_CHECKING, Generic, TypeVar, final

from memguard.errors import MemGuardError
from memguard.integrations.progress import BatchLine
from memguard.integrations.session import UNOPENED

if TYPE_CHECKING:
    from memguard.integrations.loop.plain_loop import PlainLoop

BatchT = TypeVar("BatchT")


@final
class Batches(Generic[BatchT]):
    """What `Guard.batches` gives: iterate over it once or many times. It holds no batch."""

    def __init__(self, loader: Iterable[BatchT], loop: PlainLoop | None, epoch: int | None) -> None:
        self._loader, self._loop, self._epoch = loader, loop, epoch

    def __len__(self) -> int:
        return len(self._loader)  # type: ignore[arg-type]

    def __iter__(self) -> Iterator[BatchT]:
        if self._loop is None:
            return iter(self._loader)
        if not self._loop.was_entered:
            raise MemGuardError(UNOPENED)
        return _BatchIterator(self._loader, self._loop, self._epoch)


@final
class _BatchIterator(Generic[BatchT]):
    """A class rather than a generator: the caller's frame stays the one above, and nothing keeps the last batch."""

    def __init__(self, loader: Iterable[BatchT], loop: PlainLoop, epoch: int | None) -> None:
        self._loop: PlainLoop | None = None
        self._index = 0
        self._line = BatchLine(loop.session, length_of(loader))
        self._batches = iter(loader)
        loop.start_batches(epoch)
        self._loop = loop

    def __iter__(self) -> _BatchIterator[BatchT]:
        return self

    def __next__(self) -> BatchT:
        loop = self._loop
        if loop is None:
            raise StopIteration
        try:
            batch = next(self._batches)
        except BaseException as error:
            self._end(ran_out=type(error) is StopIteration)
            raise
        loop.next_batch(self._index, batch)
        loop.show(self._line, self._index)
        self._index += 1
        return batch

    def __del__(self) -> None:
        self._end()

    def _end(self, *, ran_out: bool = False) -> None:
        loop, self._loop = self._loop, None
        if loop is not None:
            loop.end_batches(ran_out=ran_out)
            loop.show(self._line, None)


def length_of(loader: object) -> int | None:
    """The batches of a loader; None where it does not tell."""
    try:
        return len(loader) if isinstance(loader, Sized) else None
    except Exception:  # a DataLoader over an iterable dataset has __len__, but no length
        return None
