"""Explains an out-of-memory error wherever it is raised: one report for each failure.

The allocator's observer sees the failing moment, when everything is still alive; a scene is drawn there as plain data.
Whether the program catches the error shows only later: the first sign that it went on makes it a caught one, and the
exception flying out of the loop, the thread or the program makes it the end.

What draws and explains a scene is loaded when memory runs out: most runs never need it.
"""

from __future__ import annotations

import json
import logging
import pickle
import sys
import threading
import weakref
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from memguard.backends.auto import AutoBackend
from memguard.backends.oom_view import OomView, view_of
from memguard.evidence.oom.errors import no_engine_in, oom_in
from memguard.integrations.loop.forward_count import ForwardCount
from memguard.integrations.oom.last_exits import KEPT, LastExits
from memguard.integrations.trace_window import TraceWindow
from memguard.postmortem import PostMortem
from memguard.recording.format import FOLDER
from memguard.records.stats import BatchRecord
from memguard.report.postmortem_html import render_html
from memguard.report.postmortem_text import render_markdown
from memguard.torch_objects.storages import unheard

if TYPE_CHECKING:
    from memguard.integrations.oom.scene import Seen
    from memguard.integrations.session import Session
    from memguard.postmortem import PostMortem

logger = logging.getLogger("memguard")

MOST_CAUGHT = 3
"""Caught errors of a run that are examined; a program that lives on them must not be slowed down."""
_TOLD = "_memguard_told"
"""Marks an exception that was told: most cannot be referenced weakly, and none may be kept."""
_MOST_MODELS = 1024


@final
class OomWatch:
    """Watches one session for out-of-memory errors.

    Args:
        session: The session; its records, findings and device are the evidence.
        enabled: The option ``on_oom``.
        history: The option of that name; "always" records the allocation history.
        logdir: Where the reports go, beside the recording; None writes none.
    """

    def __init__(self, session: Session, *, enabled: bool, history: str, logdir: Path | None) -> None:
        self._session: weakref.ref[Session] = weakref.ref(session)
        self._enabled, self._history, self._logdir = enabled, history, logdir
        self._view: OomView | None = None
        self._listens = self._searches = self._installed = False
        self._pending: Seen | None = None
        self._busy = threading.local()
        self._caught = 0
        self._forwards = ForwardCount()
        self._window = TraceWindow()
        self._called: dict[int, int] = {}
        self._exits = LastExits(self.failed)

    # Put in place and taken away

    def install(self) -> None:
        """Listens to the allocator as soon as there is one, and to what ends the program or a thread."""
        if not self._enabled or self._installed:
            return
        self._installed = self._searches = True
        self._exits.install()
        self._listen()

    def remove(self) -> None:
        """Takes all of it away; a failure that was still open turns out to have been caught."""
        if not self._installed:
            return
        try:
            self._goes_on()
        finally:
            self._unhook()
            self._installed = False

    def _unhook(self) -> None:
        self._exits.remove()
        session = self._session()
        if session is not None and self._after_records in session.recorder.listeners:
            session.recorder.listeners.remove(self._after_records)
        if self._view is not None:
            self._view.ignore()
            self._view.stop_history()

    # What happens in the loop

    @property
    def attentive(self) -> bool:
        """Whether `alive` has something to do."""
        return self._searches or self._pending is not None

    def alive(self) -> None:
        """The program goes on: a batch begins, or a root model is called."""
        if not self._installed:
            return
        if self._searches:
            self._listen()
        if self._pending is not None:
            self._goes_on()

    def called(self, model: int, batch: int, *, training: bool, alive: bool = False) -> None:
        """The root model with this identity is called in this batch.

        Args:
            model: Its identity.
            batch: The batch.
            training: Whether it is in training mode.
            alive: Whether it is just called, so that the program goes on.
        """
        if alive and (self._searches or self._pending is not None):
            self.alive()
        if alive and self._view is not None:
            self._view.forward()
        if len(self._called) > _MOST_MODELS:
            self._called.clear()
        self._called[model] = batch  # of what is gone and has left its number to another, no batch is recent
        self._forwards.forward(batch, training)

    def _after_records(self, records: Sequence[BatchRecord]) -> None:
        """Switches the history on and off as the device fills up in pieces."""
        session, view = self._session(), self._view
        if session is None or view is None:
            return
        limit = session.backend.limit_bytes
        for record in () if self._window.passes(records, limit) else records:
            was = self._window.since is not None
            if self._window.wants_history(record, limit):
                view.record_history(stacks=False)
            elif was:
                view.stop_history()

    def passing(self) -> None:
        """A forward failed, and the error is on its way up: the earliest look where no allocator tells."""
        if self._installed and self._pending is None and not self._listens:
            error = sys.exc_info()[1]
            failing = oom_in(error) if error is not None else None
            if failing is not None and not _was_told(failing) and self._caught < MOST_CAUGHT:
                self._look(failing)
            del error, failing

    def failed(self, error: BaseException, *, shown: bool = False) -> None:
        """An error ends the loop: if memory ran out, this is told; a second call with the same error does nothing.

        Args:
            error: What was raised; not kept.
            shown: Whether its traceback is on the screen already, so that a note on the error would not be seen.
        """
        if not self._installed or getattr(self._busy, "now", False):
            return
        failing = oom_in(error)
        if failing is None and self._pending is not None:
            failing = no_engine_in(error)
        if failing is None:
            self._blame(error)
        if failing is None or _was_told(failing):
            return
        vars(failing)[_TOLD] = True
        try:
            self._report(failing, error, shown=shown)
        except Exception as problem:
            logger.error("memguard: the out-of-memory report failed: %r", problem)
        finally:
            del failing, error

    def _blame(self, error: BaseException) -> None:
        """An error of another kind: a rank that ran out of memory may be behind it, or the validation guard."""
        session = self._session()
        if session is not None:
            with session.recorder.part("validation guard"):
                session.validation.explain(error)
        if session is not None and session.peers is not None:
            with session.recorder.part("other ranks"):
                session.peers.failed(error)

    # The failing moment

    def _listen(self) -> None:
        session = self._session()
        if session is None:
            return
        with session.recorder.part("out-of-memory observer"):
            view = view_of(session.backend)
            if type(view) is OomView:  # nothing to listen to, now at least: "auto" may find a device yet
                self._searches = isinstance(session.backend, AutoBackend) and session.backend.searches
                return
            self._listens = view.listen(self._heard)
            self._searches = not self._listens
            if self._listens:
                self._view = view
                if self._history == "always":
                    view.record_history()
                elif self._history == "auto" and self._after_records not in session.recorder.listeners:
                    session.recorder.listeners.append(self._after_records)

    def _heard(self, requested: int | None, free: int | None) -> None:
        """The allocator is about to raise; here everything is still alive. Never raises."""
        if not self._installed or getattr(self._busy, "now", False):
            return
        if self._pending is not None:
            self._goes_on()
        if self._caught < MOST_CAUGHT:
            self._look(None, requested, free)

    def _look(self, error: BaseException | None, requested: int | None = None, free: int | None = None) -> None:
        self._busy.now = True
        try:
            session = self._session()
            if session is None:
                return
            from memguard.integrations.oom.scene import draw

            session.disturb()
            batch = session.recorder.batch
            with unheard():
                self._pending = draw(
                    session,
                    self._view if self._view is not None else view_of(session.backend),
                    error,
                    requested_bytes=requested,
                    free_bytes=free,
                    is_recent=lambda model: batch - self._called.get(id(model), -2) <= 1,
                    forwards=self._forwards,
                    traced_since=self._window.since,
                )
            if session.peers is not None:
                session.peers.announce(self._pending.scene.batch)
        except Exception as problem:
            logger.error("memguard: explaining an out-of-memory error failed: %r", problem)
        finally:
            self._busy.now = False
            del error

    # How it ends

    def _goes_on(self) -> None:
        """The program caught the error."""
        pending, self._pending = self._pending, None
        session = self._session()
        if pending is None or session is None:
            return
        from memguard.report.postmortem_text import render_markdown

        self._caught += 1
        if session.peers is not None:
            session.peers.withdraw(pending.scene.batch)
        told = replace(self._conclude(pending, session), caught=True)
        with session.recorder.part("out-of-memory report"):
            session.recorder.learn([*session.probes.take(), told.fact()])  # what came before it says where
            session.recorder.out_of_memory({**told.to_json(), "text": render_markdown(told)})
            session.recorder.summary.notes.append(
                f"the program caught an out-of-memory error in batch {told.scene.batch}: {told.verdict.text}"
            )

    def _report(self, failing: BaseException, error: BaseException, *, shown: bool) -> None:
        pending, self._pending = self._pending, None
        message = str(failing)
        if pending is not None and not _is_of(pending, message):
            self._pending = pending
            self._goes_on()
            pending = None
        if pending is None:
            self._look(failing)
            pending, self._pending = self._pending, None
        session = self._session()
        if pending is None or session is None:
            return
        from memguard.evidence.oom.errors import requested_bytes
        from memguard.integrations.oom.scene import Seen
        from memguard.integrations.oom.watch import write_report
        from memguard.report.postmortem_text import render_markdown, render_short

        scene, request = pending.scene, pending.scene.request
        if request.requested_bytes is None:
            request = replace(request, requested_bytes=requested_bytes(message))
        pending = Seen(replace(scene, message=message, request=request), pending.snapshot, pending.seconds)
        told = self._conclude(pending, session)
        folder, problem = write_report(self._logdir, told, pending.snapshot)
        if folder is not None and pending.snapshot is not None:
            told = replace(told, snapshot="snapshot.pickle")
        whole = render_markdown(told)
        if problem is not None:
            print(f"memguard: the report could not be written ({problem}); here it is.\n{whole}", file=sys.stderr)
        short = render_short(told, f"{folder / 'report.md'} (or .html)" if folder is not None else None)
        if hasattr(error, "add_note"):
            error.add_note(short)
        if shown:
            print(f"{short}\n{KEPT}", file=sys.stderr)
        elif not hasattr(error, "add_note"):
            print(short, file=sys.stderr)
        session.recorder.learn([*session.probes.take(), told.fact()])  # what came before it says where
        session.recorder.out_of_memory({**told.to_json(), "text": whole})

    def _conclude(self, pending: Seen, session: Session) -> PostMortem:
        from memguard.postmortem import conclude

        scene = replace(pending.scene, findings=tuple(session.recorder.findings.values()))
        return conclude(scene, seconds=pending.seconds)


def _was_told(error: BaseException) -> bool:
    return _TOLD in vars(error)


def _is_of(pending: Seen, message: str) -> bool:
    """Whether a failure that was seen is the one that an error tells of."""
    from memguard.evidence.oom.errors import requested_bytes

    seen, told = pending.scene.request.requested_bytes, requested_bytes(message)
    return seen is None or told is None or abs(seen - told) <= 0.01 * max(seen, told)


# The files of an out-of-memory report, beside the recording.


def write_report(
    logdir: Path | None, told: PostMortem, snapshot: dict[str, Any] | None
) -> tuple[Path | None, str | None]:
    """Writes the report as JSON, Markdown and HTML, and the snapshot.

    Returns:
        The folder, or why there is none.
    """
    if logdir is None:
        return None, None
    folder = logdir / FOLDER / told.id
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if snapshot is not None:
            (folder / "snapshot.pickle").write_bytes(pickle.dumps(snapshot))
            told = replace(told, snapshot="snapshot.pickle")
        (folder / "report.json").write_text(json.dumps(told.to_json(), indent=2, default=str) + "\n")
        (folder / "report.md").write_text(render_markdown(told), encoding="utf-8")
        (folder / "report.html").write_text(render_html(told), encoding="utf-8")
    except Exception as error:  # told by the caller, who prints the report instead
        return None, str(getattr(error, "strerror", None) or error)
    return folder, None
