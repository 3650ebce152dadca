"""What one rank tells the rest of the fleet besides its recording: its place on the parallel axes, and exports."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from memguard.axes import declared
from memguard.clocks import monotonic
from memguard.integrations.parallel_axes import find_coordinates, search_objects
from memguard.integrations.session_parts import make_export

if TYPE_CHECKING:
    from memguard.integrations.session import Session

_SEARCHES = (2, 10, 60)
"""Visits at which the program's objects are searched, where several ranks have no place on any axis."""
_LOOKS_SECONDS = 120.0
"""So long after its beginning a run may still make a DeviceMesh; later only what is declared is news."""


@final
class Fleet:
    """Learns this rank's coordinates and exports, both in the slow lane's thread.

    Args:
        session: This process's session.
    """

    def __init__(self, session: Session) -> None:
        self._recorder, self._launch, self._watch = session.recorder, session.launch, session.watch
        self.coordinates: dict[str, int] = {}
        """This rank's place on each axis, as far as it is known."""
        self._declared: dict[str, int] | None = None
        self._visits = 0
        self._searched: dict[str, int] = {}
        self._until = monotonic() + _LOOKS_SECONDS
        self._sink = make_export(session.options, session.launch, session.logdir)
        if self._sink is not None:
            self._sink.phase_at = self._recorder.phases.name_at
            self._recorder.add_sink(self._sink)

    def visit(self) -> None:
        """Called in the slow lane's thread, every second or few."""
        if not self._recorder.is_off("parallel axes"):
            with self._recorder.part("parallel axes"):
                self.learn()
        if self._sink is not None and not self._recorder.is_off("export"):
            with self._recorder.part("export"):
                self._sink.deliver()

    def learn(self) -> None:
        """Looks for this rank's coordinates, and writes down what is new."""
        axes = declared()
        if monotonic() > self._until and axes == self._declared:
            return
        self._declared = axes
        self._visits += 1
        found = find_coordinates(self._watch.models, self._launch.rank, self._launch.world_size)
        if not found and self._launch.world_size > 1 and self._visits in _SEARCHES and not self._searched:
            self._searched = search_objects()
        found = {**self._searched, **found}
        if found == self.coordinates:
            return
        self.coordinates = found
        if self._sink is not None:
            self._sink.exporting.coordinates = found
        self._recorder.line("coordinates", {"coordinates": found})
