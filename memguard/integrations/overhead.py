"""What memguard took of the run's time, and what it reports about its own actions at the end."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from memguard.integrations.session import Session


@final
class Overhead:
    """Settles between a session's recorder and its probes, and adds the notes at the end to the summary."""

    def __init__(self, session: Session) -> None:
        self._recorder, self._probes = session.recorder, session.probes
        self._cache, self._watch = session.cache, session.watch
        self._charged = self._settled = 0.0

    def settle(self) -> None:
        """What the probes took joins the run's own time; what the recorder took is paid from their purse."""
        recorder, probes = self._recorder, self._probes
        probes.pace.spend(recorder.spent - self._settled)
        recorder.spent += probes.seconds - self._charged
        self._charged, self._settled = probes.seconds, recorder.spent

    def tell_so_far(self) -> None:
        """The summary of a run that goes on is brought up to date."""
        self.settle()
        summary, overhead = self._recorder.summary, self._recorder.overhead()
        summary.overhead_seconds, summary.overhead_share = overhead["seconds"], overhead["share"]
        summary.start_up_seconds, summary.is_running = self._recorder.start_up_seconds, True
        summary.findings = list(self._recorder.findings.values())
        self.of_threads()

    def of_cache(self) -> None:
        """How often the cache was emptied, and what that gave back."""
        self._note(self._cache.account())

    def of_pace(self) -> None:
        """How many batches were looked at, where these were fewer for their cost."""
        self.settle()
        self._note(self._probes.pace.account())

    def of_threads(self) -> None:
        """That training ran where nobody looked, once."""
        summary, trained = self._recorder.summary, self._watch.elsewhere.trained
        if trained is not None and not summary.misses_training:
            summary.misses_training = True
            self._note(trained)

    def _note(self, text: str | None) -> None:
        if text is not None:
            self._recorder.summary.notes.append(text)
