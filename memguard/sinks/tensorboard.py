"""A few well-named curves and texts in TensorBoard, through the user's own writer where there is one.

A point carries the maximum over its window, so a spike of one batch is never lost between two points. The x axis is
the record's number, which only grows: TensorBoard's fast loader drops what steps backward.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Sequence
from typing import Any, final

from memguard.clocks import now
from memguard.records.findings import Finding
from memguard.records.phases import INSIDE
from memguard.records.stats import Run, Series, Stage
from memguard.sinks.findings_table import as_markdown
from memguard.sinks.interface import Sink
from memguard.sinks.tensorboard_events import EventFile, layout_event, manifest_event, scalars_event, text_event
from memguard.sinks.window import Window
from memguard.text.units import GIB

logger = logging.getLogger("memguard")

WAITING, WAIT_SECONDS = 8, 1.0
"""Points that are written to memguard's own file together, where they come faster than that one by one."""


@final
class TensorBoardSink(Sink):
    """Windowed maxima as scalars, findings as text.

    Args:
        log_every: Batches of a stage per point.
        writer: Gives the user's writer (torch's SummaryWriter or anything with its add_scalar and add_text), or None;
            asked once, at the first point.
        logdir: Where a writer of memguard's own goes when the user has none; None writes nothing then.
        layout: Whether to arrange our curves in the Custom Scalars tab; it replaces a layout of the user's own.
    """

    def __init__(
        self,
        *,
        log_every: int,
        writer: Callable[[], Any] | None = None,
        logdir: str | os.PathLike[str] | None = None,
        layout: bool = False,
    ) -> None:
        self._log_every, self._find_writer, self._logdir, self._layout = log_every, writer, logdir, layout
        self._run: Run | None = None
        self._peak_bytes: int | None = None
        self._windows: dict[Stage, Window] = {}
        self._writer: _Writer | None = None
        self._asked = False
        self._findings: list[Finding] = []
        self._batch = 0

    def records(self, records: Series, run: Run) -> None:
        """Takes the records into their stage's window; a full window becomes a point."""
        self._run, stage, left = run, records[0].stage, records
        window = self._windows.get(stage)
        if window is None:
            window = self._windows[stage] = Window()
        while left:
            room = self._log_every - window.count
            window.take(left[:room])
            left = left[room:]
            self._batch = window.batch
            if window.count >= self._log_every:
                self._write(stage, window)

    def finding(self, finding: Finding) -> None:
        """Adds the finding to the text shown in the run, newest state last."""
        causes = [known.cause for known in self._findings]
        if finding.cause in causes:
            self._findings[causes.index(finding.cause)] = finding
        else:
            self._findings.append(finding)
        if writer := self._get_writer():
            writer.text("memory/findings", as_markdown(self._findings), max(finding.batch, self._batch))

    def phase(self, name: str, allocated_peak_bytes: int, batch: int) -> None:
        """A point of the phase's own curve."""
        if writer := self._get_writer():
            tag = re.sub(r"[^\w./-]+", "_", name.replace(INSIDE, "/"))
            writer.scalars({f"memory/phase/{tag}/allocated_peak_gib": allocated_peak_bytes / GIB}, batch)

    def conclude(self, findings: Sequence[Finding]) -> None:
        """Shows the findings as they are at the end."""
        if not (findings or self._findings):
            return
        self._findings = list(findings)
        if writer := self._get_writer():
            writer.text("memory/findings", as_markdown(self._findings), self._batch)

    def out_of_memory(self, report: str, batch: int) -> None:
        """Adds the report as text of the run."""
        if writer := self._get_writer():
            writer.text("memory/out_of_memory", report, max(batch, self._batch))

    def close(self) -> None:
        """Writes the unfinished windows and flushes; closes only a writer of memguard's own."""
        for stage, window in self._windows.items():
            if window.count:
                self._write(stage, window)
        if self._writer is not None:
            self._tell_of_run()
            self._writer.close()
            self._writer = None

    def _write(self, stage: Stage, window: Window) -> None:
        writer = self._get_writer()
        if writer is not None:
            writer.scalars(window.scalars(stage), window.batch)
            self._peak_bytes = max(filter(None, (self._peak_bytes, window.maxima[0])), default=None)
        window.clear()

    def _tell_of_run(self) -> None:
        """Our own event: it turns the Memory tab on where only TensorBoard's files were copied."""
        if self._writer is None or self._run is None:
            return
        manifest = {
            "count": self._batch + 1,
            "device": self._run.device,
            "device_total_bytes": self._run.device_total_bytes,
            "peak": {"allocated_peak_bytes": self._peak_bytes},
        }
        self._writer.event(manifest_event(manifest, self._batch))

    def _arrange(self) -> None:
        if self._writer is not None and self._layout:
            names = ("allocated_peak_gib", "allocated_end_gib", "reserved_gib", "device_used_gib")
            charts = {
                "training GiB": [f"memory/{name}" for name in names],
                "validation GiB": [f"memory/validation/{name}" for name in names],
            }
            self._writer.event(layout_event(charts, self._batch))

    def _get_writer(self) -> _Writer | None:
        if not self._asked:
            self._asked = True
            theirs = self._find_writer() if self._find_writer is not None else None
            if theirs is not None:
                self._writer = _Writer(theirs, owned=False)
            elif self._logdir is not None:
                self._writer = _own_writer(os.fspath(self._logdir))
            self._tell_of_run()
            self._arrange()
        return self._writer


def _own_writer(logdir: str) -> _Writer | None:
    """One that writes there; None, which is said, where its name has letters that this process cannot write."""
    try:
        return _Writer(EventFile(logdir), owned=True)
    except UnicodeError:
        reason = "its name has letters that this process's locale does not know; PYTHONUTF8=1 helps"
        logger.warning("memguard: no curves for TensorBoard in %s: %s", ascii(logdir), reason)
        return None


@final
class _Writer:
    """One face for torch's SummaryWriter, tensorboardX's, and memguard's own file.

    Only torch's writer is given protocol buffers: one of another family kills tensorboardX's writer thread.
    """

    def __init__(self, writer: Any, *, owned: bool) -> None:
        self._writer, self._owned = writer, owned
        self._waiting: list[bytes] = []
        self._handed_over = 0.0
        self._add_event: Callable[[Any], None] | None = None
        file_writer = getattr(writer, "_get_file_writer", None)  # torch.utils.tensorboard, checked in torch 2.13
        if type(writer).__module__.startswith("torch.") and file_writer is not None:
            self._add_event = file_writer().event_writer.add_event

    def scalars(self, values: dict[str, float], step: int) -> None:
        """One point of several curves, as one event where the writer allows it."""
        if not (self._owned or self._add_event):
            for tag, value in values.items():
                self._writer.add_scalar(tag, value, step)
            return
        time = now()
        self._waiting.append(scalars_event(values, step, time))
        if not self._owned or len(self._waiting) >= WAITING or time - self._handed_over >= WAIT_SECONDS:
            self._handed_over = time
            self._hand_over()

    def event(self, event: bytes) -> None:
        """An event of our own making, where the writer can take one."""
        if self._owned or self._add_event:
            self._waiting.append(event)
            self._hand_over()

    def text(self, tag: str, markdown: str, step: int) -> None:
        """A text, which TensorBoard shows as markdown."""
        if self._owned or self._add_event:
            self.event(text_event(tag, markdown, step))
        else:
            self._writer.add_text(tag, markdown, step)

    def close(self) -> None:
        """Flushes; closes the writer if it is memguard's own."""
        self._hand_over()
        if self._owned:
            self._writer.close()
        else:
            self._writer.flush()

    def _hand_over(self) -> None:
        waiting, self._waiting = self._waiting, []
        if self._owned and waiting:
            self._writer.write(waiting)
        elif self._add_event is not None:
            from tensorboard.compat.proto.event_pb2 import Event  # the user's writer has loaded it

            for event in waiting:
                self._add_event(Event.FromString(event))
