"""Device "auto": the accelerator that the user's program turns out to use, and the host until then."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast, final

from memguard.backends.host import HostBackend
from memguard.backends.interface import Backend
from memguard.records.stats import MemoryStats, SlowStats


@final
class AutoBackend(Backend):
    """The host, until the program has initialised an accelerator; from then on that one.

    Whether a program that could use a GPU will do so cannot be known before it does, and asking would touch the GPU.

    Args:
        find: Returns the backend of an accelerator in use, or None as long as there is none.
    """

    def __init__(self, find: Callable[[], Backend | None]) -> None:
        self._find: Callable[[], Backend | None] | None = find
        self._backend: Backend = HostBackend()
        self._installed = False

    def follow(self, backend: Backend) -> None:
        """Ends the search: someone who knows the model's device says what to guard."""
        self._find = None
        if self._installed:
            self._backend.remove()
            backend.install()
        self._backend = backend

    def settle(self) -> None:
        """Ends the search with what is in use now: the program shows no sign of using an accelerator."""
        self._current()
        self._find = None

    @property
    def current(self) -> Backend:
        """The backend of the device in use."""
        return self._current()

    @property
    def searches(self) -> bool:
        """Whether another device may still be found."""
        return self._find is not None

    @property
    def device(self) -> str:
        """The device in use; ``"cpu"`` until there is another."""
        return self._current().device

    @property
    def name(self) -> str | None:
        """The product name of the device in use."""
        return self._current().name

    @property
    def total_bytes(self) -> int | None:
        """Capacity of the device in use; unknown until it is clear which one it is."""
        backend = self._current()
        return backend.total_bytes if self._find is None else None

    @property
    def limit_bytes(self) -> int | None:
        """What this process may take of it."""
        backend = self._current()
        return backend.limit_bytes if self._find is None else None

    @property
    def measures_peaks(self) -> bool:
        """As the device in use does."""
        return self._current().measures_peaks

    def read(self) -> MemoryStats:
        """One look at the device in use."""
        return self._current().read()

    def boundary(self) -> MemoryStats:
        """One look and a new stretch."""
        return self._current().boundary()

    def cut(self) -> MemoryStats:
        """The same, at which no batch ends."""
        return self._current().cut()

    def mark(self) -> object:
        """A boundary on the device in use."""
        backend = self._backend if self._find is None else self._current()
        return backend, backend.mark()

    def stats(self, mark: object) -> MemoryStats:
        """What the device that was in use told at a mark."""
        if isinstance(mark, MemoryStats):
            return mark
        backend, theirs = cast("tuple[Backend, object]", mark)
        return backend.stats(theirs)

    def settled(self) -> Backend:
        """The device in use, once the search is over."""
        return self._backend.settled() if self._find is None else self

    def read_slow(self) -> SlowStats:
        """The slow statistics; never changes the device, since it runs in another thread."""
        return self._backend.read_slow()

    def install(self) -> None:
        """Puts in place what the device in use needs, and later what the one found needs."""
        self._installed = True
        self._current().install()

    def remove(self) -> None:
        """Takes it away."""
        self._installed = False
        self._backend.remove()

    def empty_cache(self) -> int | None:
        """Gives cached memory of the device in use back."""
        return self._current().empty_cache()

    def _current(self) -> Backend:
        if self._find is not None and (found := self._find()) is not None:
            self.follow(found)
        return self._backend
