"""Tells a waiting or dying rank which other rank failed."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, final

from memguard.clocks import monotonic, sleep
from memguard.integrations.peers import Fallen, Peers
from memguard.sinks.console import print_text
from memguard.text.terminal import one_line

if TYPE_CHECKING:
    from memguard.integrations.session import Session

IDLE_SECONDS = 2.0
"""A rank that makes no record for so long may wait for one that fell."""
_REPORT_SECONDS = 3.0
"""How long a rank that dies waits for the report of one that fell before it."""
_DYING_SECONDS = 0.25
"""How long it waits where the error may come from another process that is dying."""
_CONNECTION = re.compile(r"connection|peer|gloo|nccl|socket|broken pipe|timed? ?out", re.IGNORECASE)
"""What is said where a rank has lost another one."""


@final
class PeerWatch:
    """Says on this rank which other one fell: while it waits in vain, and when its own error comes."""

    def __init__(self, session: Session, peers: Peers) -> None:
        self._recorder, self._launch, self._peers = session.recorder, session.launch, peers
        self._told: set[int] = set()
        self._batch = -1
        self._since = monotonic()

    def begin(self) -> None:
        """The run begins."""
        self._peers.begin()

    def announce(self, batch: int) -> None:
        """The allocator of this rank is about to fail."""
        self._peers.announce(batch)

    def withdraw(self, batch: int) -> None:
        """The program caught that error."""
        self._peers.withdraw(batch)

    def look(self) -> None:
        """Called about once a second from another thread than the loop's: looks where no batch ends any more."""
        batch, now = self._recorder.batch, monotonic()
        if batch != self._batch:
            self._batch, self._since = batch, now
        elif now - self._since > IDLE_SECONDS:
            fresh = self._tell(self._fallen(self._peers.failed(dead=True)))
            if fresh and not self._launch.local_rank:  # one of each node speaks
                text = one_line(
                    f"memguard: {'; '.join(fresh)}. Rank {self._launch.rank} is waiting for a rank that has failed."
                )
                print_text(text)

    def failed(self, error: BaseException) -> None:
        """This rank fails by an error of its own, perhaps because another one fell."""
        if not isinstance(error, Exception):
            return
        began = monotonic()
        while not self._peers.reports_are_there() and monotonic() < began + _REPORT_SECONDS:
            sleep(0.05)
        lost = isinstance(error, RuntimeError) and _CONNECTION.search(str(error)) is not None
        fallen = self._before(lost)
        while not fallen and isinstance(error, RuntimeError) and monotonic() < began + _DYING_SECONDS:
            sleep(0.05)  # a connection is closed somewhat earlier than its process is gone
            fallen = self._before(lost)
        if lost and not fallen:
            fallen = self._peers.finished()
        self._tell(fallen)
        if not fallen:
            return
        text = one_line(f"memguard: before rank {self._launch.rank} failed, {'; '.join(map(str, fallen))}.")
        if not hasattr(error, "add_note"):
            print_text(text)
        elif text not in getattr(error, "__notes__", ()):
            error.add_note(text)

    def _before(self, lost: bool) -> list[Fallen]:
        """Who fell before this rank's error: by an error of its own only where this rank has lost a connection."""
        return self._fallen(self._peers.failed() if lost else [])

    def _fallen(self, failed: list[Fallen]) -> list[Fallen]:
        """The nearest cause: whoever failed draws those along that are merely gone."""
        return self._peers.out_of_memory() or failed or self._peers.killed()

    def _tell(self, fallen: list[Fallen]) -> list[str]:
        """Writes what is new into the recording; the same in words."""
        fresh = [each for each in fallen if each.rank not in self._told]
        for each in fresh:
            self._told.add(each.rank)
            self._recorder.line("peer", each.to_json())
        return [str(each) for each in fresh]
