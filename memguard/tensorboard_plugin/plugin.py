"""The Memory tab's server side: the page's files, and the recordings in windows. No torch on its path."""

from __future__ import annotations

import contextlib
import gzip
import json
import logging
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, final

from tensorboard.backend import http_util
from tensorboard.plugins import base_plugin
from werkzeug import wrappers

from memguard.errors import MemGuardError
from memguard.recording.json_lines import plain
from memguard.records.summary import Summary
from memguard.report.compare import compare
from memguard.report.heat_map import heat_map
from memguard.report.html_details import chart_head
from memguard.report.html_index import RowIndex
from memguard.report.html_ranks import explain_worst, over_ranks
from memguard.report.html_rows import Rows, pack
from memguard.report.html_snapshot import find_snapshot, snapshot_map
from memguard.report.runs import load_run
from memguard.sinks.tensorboard_events import MANIFEST
from memguard.tensorboard_plugin.loader import NAME
from memguard.tensorboard_plugin.store import Process, Run, Store
from memguard.text.urls import is_url

STATIC = Path(__file__).parent / "static"
_TYPES = {".js": "text/javascript", ".css": "text/css", ".txt": "text/plain"}
_LARGEST_SNAPSHOT = 256 << 20
_PATIENCE = 0.4
_CURVES = 8
_HEAT = 500
"""Stretches of each rank that the map is made of."""
_BINARY = "application/octet-stream"


@final
class MemoryPlugin(base_plugin.TBPlugin):  # type: ignore[misc]  # TensorBoard has no types
    """The Memory tab."""

    plugin_name = NAME

    def __init__(self, context: Any) -> None:
        flags = getattr(context, "flags", None)
        self._provider = getattr(context, "data_provider", None)
        self._summaries: dict[str, tuple[Any, Summary]] = {}
        self._explained: tuple[Any, dict[str, Any] | None] = ((), None)
        self._store = Store(context.logdir or "", str(getattr(flags, "logdir_spec", "") or ""))

    def get_plugin_apps(self) -> dict[str, Callable[..., Any]]:
        """The routes below /data/plugin/memguard."""
        return {
            "/runs": self._app(self._runs),
            "/details": self._app(self._details),
            "/series": self._app(self._series),
            "/ranks": self._app(self._ranks),
            "/worst": self._app(self._worst),
            "/heat": self._app(self._heat),
            "/owners": self._app(self._owners),
            "/compare": self._app(self._compare),
            "/snapshot": self._app(self._snapshot),
            "/download": self._app(self._download),
            "/static/*": self._app(self._static),
        }

    def warm(self) -> None:
        """Reads all recordings once, while the browser is still on its way."""
        try:
            for run in list(self._store.runs().values()):
                for processes in run.processes.values():
                    processes[0].refresh()
        except Exception as error:  # a request will tell it again, where somebody sees it
            logging.getLogger(__name__).debug("memguard: %s", error)

    def is_active(self) -> bool:
        """Whether any run has a recording."""
        return bool(self._store.runs())

    def frontend_metadata(self) -> Any:
        """The page's module and the tab's name."""
        return base_plugin.FrontendMetadata(es_module_path="/static/index.js", tab_name="Memory")

    def data_plugin_names(self) -> tuple[str, ...]:
        """Whose events turn the tab on."""
        return (NAME,)

    def _app(self, answer: Callable[[wrappers.Request], Any]) -> Callable[..., Any]:
        """A WSGI application that answers, and says 400 with one line where it cannot."""

        @wrappers.Request.application
        def application(request: wrappers.Request) -> Any:
            try:
                return answer(request)
            except MemGuardError as error:
                return http_util.Respond(request, {"error": str(error)[:2000]}, "application/json", 400)

        return application

    def _runs(self, request: wrappers.Request) -> Any:
        """All runs with what the overview shows; those that could not be read in time are pending."""
        until = time.monotonic() + _PATIENCE
        listed: list[dict[str, Any]] = []
        pending = 0
        runs = self._store.runs()
        wanted = request.args.get("first")
        for name in sorted(runs, key=lambda name: (name != wanted, name)):
            ranks: list[dict[str, Any]] = []
            for rank, processes in sorted(runs[name].processes.items()):
                newest = processes[0]
                if newest.ready or time.monotonic() < until:
                    newest.refresh()
                    devices = _devices(runs[name], rank)
                    starts = [each.name for each in processes]
                    ranks.append({"rank": rank, "starts": starts, "devices": devices, **newest.summary()})
                else:
                    pending += 1
                    ranks.append({"rank": rank, "starts": [each.name for each in processes], "pending": True})
            listed.append({"name": name, "ranks": _slim(ranks)})
        listed += self._events_only(request, {run["name"] for run in listed})
        listed.sort(key=lambda run: run["name"])
        return self._json(request, {"runs": listed, "pending": pending, "time": time.time()})

    def _events_only(self, request: wrappers.Request, known: set[str]) -> list[dict[str, Any]]:
        """The runs of which only TensorBoard's own files are here, as their manifests tell of them."""
        if self._provider is None:
            return []
        environ = request.environ
        try:
            from tensorboard import plugin_util  # slow, and there already in TensorBoard

            manifests = read_manifests(self._provider, plugin_util.context(environ), plugin_util.experiment_id(environ))
        except Exception as error:  # a data provider of any kind
            logging.getLogger(__name__).debug("memguard: %s", error)
            return []
        problem = "only TensorBoard's events of this run are here; its folder memguard was not copied"
        return [
            {"name": run, "ranks": [{**plain(manifest), "rank": 0, "starts": [], "problem": problem}]}
            for run, manifest in manifests.items()
            if run not in known
        ]

    def _details(self, request: wrappers.Request) -> Any:
        process = self._process(request)
        version = f"{process.name}:{process.version}"
        if request.args.get("version") == version:
            return self._json(request, {"version": version, "same": True})
        return self._json(request, {"version": version, **process.details()})

    def _series(self, request: wrappers.Request) -> Any:
        process = self._process(request)
        first, last, buckets = window(request)
        with process.lock:
            index = _index(process)
            rows, total = index.window(first, last, buckets)
            data = pack(rows, chart_head(index, first, last, buckets, total))
        return self._binary(request, data)

    def _ranks(self, request: wrappers.Request) -> Any:
        """The band of the ranks' peaks in a window."""
        first, last, buckets = window(request)
        windows: dict[int, Rows] = {}
        for rank, process in self._processes(request).items():
            with process.lock:
                process.refresh()
                if process.index is not None:
                    windows[rank] = process.index.window(first, last, buckets)[0]
        return self._json(request, over_ranks(windows, buckets))

    def _heat(self, request: wrappers.Request) -> Any:
        """The ranks' peaks over the whole run as a map, with their places on the parallel axes."""
        windows, sessions = {}, {}
        for rank, process in self._processes(request).items():
            with process.lock:
                process.refresh()
                if process.index is not None:
                    windows[rank] = process.index.window(None, None, _HEAT)[0]
                    sessions[rank] = process.lines.session
        return self._json(request, heat_map(windows, sessions))

    def _worst(self, request: wrappers.Request) -> Any:
        """The rank with the highest peak, and why; worked out again when a recording grew."""
        processes = self._processes(request)
        for process in processes.values():
            process.refresh()
        key = tuple((process.folder, process.name, process.version) for process in processes.values())
        if self._explained[0] != key:
            readable = {rank: process for rank, process in processes.items() if process.index is not None}
            with contextlib.ExitStack() as locked:
                for process in readable.values():
                    locked.enter_context(process.lock)
                indexes = {rank: _index(process) for rank, process in readable.items()}
                lines = {rank: process.lines for rank, process in readable.items()}
                self._explained = (key, explain_worst(indexes, lines))
        return self._json(request, {"worst": self._explained[1]})

    def _processes(self, request: wrappers.Request) -> dict[int, Process]:
        """The processes of a run's start, by rank."""
        run = self._store.runs().get(request.args.get("run", ""))
        if run is None:
            raise BadRequest("there is no such run below the logdir")
        start = whole(request, "start", 0)
        found = ((rank, run.process(rank, start)) for rank in sorted(run.processes))
        return {rank: process for rank, process in found if process is not None}

    def _owners(self, request: wrappers.Request) -> Any:
        process = self._process(request)
        with process.lock:
            batch = whole(request, "batch", 0)
            owners, contents = process.lines.owners_at(batch), process.lines.contents_at(batch)
            return self._json(request, {"owners": owners, "contents": contents})

    def _compare(self, request: wrappers.Request) -> Any:
        """How a run differs from another one, as ``memguard report --compare`` tells it."""
        after, before = (self._summary(request.args.get(name, "")) for name in ("run", "other"))
        return self._json(request, compare(before, after))

    def _summary(self, name: str) -> Summary:
        """What a run comes to; worked out again when a recording of it grew."""
        run = self._store.runs().get(name)
        if run is None:
            raise BadRequest("there is no such run below the logdir")
        if is_url(run.folder):
            raise BadRequest("runs behind a URL are compared by: memguard report URL --compare OTHER")
        for process in run.everything():
            process.refresh()
        version = tuple((process.name, process.version) for process in run.everything())
        known = self._summaries.get(name)
        if known is None or known[0] != version:
            known = self._summaries[name] = (version, load_run([run.folder]).summary)
        return known[1]

    def _snapshot(self, request: wrappers.Request) -> Any:
        """A snapshot as a map, at its end or after an event: one that was dropped, or a post-mortem's own."""
        event = whole(request, "event", 0) if "event" in request.args else None
        if request.method == "POST":
            length = request.content_length
            if length is None or length > _LARGEST_SNAPSHOT:
                raise BadRequest(
                    f"a snapshot of at most {_LARGEST_SNAPSHOT >> 20} MiB can be shown here; "
                    "for a larger one run: memguard snapshot FILE"
                )
            return self._json(request, snapshot_map(request.get_data(cache=False), event))
        path = self._snapshot_path(request)
        if path.stat().st_size > _LARGEST_SNAPSHOT:
            raise BadRequest(f"{path.name} is too large to be shown here; run: memguard snapshot FILE")
        return self._json(request, snapshot_map(path.read_bytes(), event))

    def _download(self, request: wrappers.Request) -> Any:
        path = self._snapshot_path(request)
        name = "".join(char if char.isalnum() or char in "-_." else "_" for char in path.name)
        attachment = [("Content-Disposition", f'attachment; filename="{name}"')]
        return http_util.Respond(request, path.read_bytes(), _BINARY, headers=attachment)

    def _snapshot_path(self, request: wrappers.Request) -> Path:
        process = self._process(request)
        wanted = request.args.get("id", "")
        for oom in process.lines.ooms:
            if oom.get("id") == wanted and not is_url(process.folder):
                path = find_snapshot(Path(process.folder), oom)
                if path is not None:
                    return path
        raise BadRequest("there is no such snapshot beside the recording")

    def _static(self, request: wrappers.Request) -> Any:
        name = request.path.partition("/static/")[2]
        path = (STATIC / name).resolve()
        kind = _TYPES.get(path.suffix)
        if kind is None or "\0" in name or STATIC.resolve() not in path.parents or not path.is_file():
            return http_util.Respond(request, "not found", "text/plain", 404)
        return http_util.Respond(request, path.read_bytes(), kind)

    def _process(self, request: wrappers.Request) -> Process:
        run = request.args.get("run", "")
        numbers = (whole(request, name, 0) for name in ("rank", "start", "device"))
        process = self._store.process(run, *numbers)
        if process is None:
            raise BadRequest("there is no such run, rank and start below the logdir")
        return process

    def _json(self, request: wrappers.Request, value: dict[str, Any]) -> Any:
        return http_util.Respond(request, value, "application/json")

    def _binary(self, request: wrappers.Request, data: bytes) -> Any:
        if "gzip" not in request.headers.get("Accept-Encoding", ""):
            return http_util.Respond(request, data, _BINARY)
        return http_util.Respond(request, gzip.compress(data, 1, mtime=0), _BINARY, content_encoding="gzip")


def _devices(run: Run, rank: int) -> list[dict[str, Any]]:
    """The further devices of a rank's process, with what the list of runs shows of each."""
    found = []
    for (of, device), processes in sorted(run.further.items()):
        if of == rank:
            processes[0].refresh()
            told = processes[0].summary()
            names = ("device", "device_total_bytes", "peak", "problem")
            found.append({"number": device, **{name: told.get(name) for name in names}})
    return found


def _slim(ranks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The ranks of a run; of many, only the highest one's curve is of use to the list of runs."""
    if len(ranks) <= _CURVES:
        return ranks
    highest = max(ranks, key=lambda rank: (rank.get("peak") or {}).get("allocated_peak_bytes") or -1)
    return [rank if rank is highest else {**rank, "sparkline": []} for rank in ranks]


def _index(process: Process) -> RowIndex:
    if process.index is None:
        raise BadRequest(process.problem)
    return process.index


# Reads our own events: what they tell of a run where only TensorBoard's own files were copied.


def read_manifests(data_provider: Any, context: Any, experiment_id: str) -> dict[str, dict[str, Any]]:
    """The newest manifest of each run that has one in its events, by run."""
    found = data_provider.read_tensors(
        context, experiment_id=experiment_id, plugin_name=NAME, downsample=1, run_tag_filter=None
    )
    manifests: dict[str, dict[str, Any]] = {}
    for run, tags in found.items():
        for datum in tags.get(MANIFEST, [])[-1:]:
            try:
                manifest = json.loads(datum.numpy.item())
            except (ValueError, TypeError):  # damaged, or not ours: as if it were not there
                continue
            if isinstance(manifest, dict):
                manifests[run] = manifest
    return manifests


# What a request asks for, checked: a wrong number is the client's fault and must not become a server error.


class BadRequest(MemGuardError):
    """A request that the page would never send; answered with 400 and this text."""


def whole(request: wrappers.Request, name: str, default: int) -> int:
    """A whole number from 0 on; the default where the request does not name it."""
    text = request.args.get(name, str(default))
    try:
        value = int(text)
    except ValueError:
        raise BadRequest(f"{name} must be a whole number, got {text[:40]!r}") from None
    if not 0 <= value < 2**53:
        raise BadRequest(f"{name} must be from 0 to 2**53, got {text[:40]}")
    return value


def window(request: wrappers.Request) -> tuple[float | None, float | None, int]:
    """The window of batches that is asked for, and the chart's width in pixels."""
    ends: list[float | None] = []
    for name in ("x0", "x1"):
        text = request.args.get(name)
        try:
            value = None if text is None else float(text)
        except ValueError:
            value = math.nan
        if value is not None and not abs(value) <= 2**53:
            raise BadRequest(f"{name} must be a batch number, got {str(text)[:40]!r}")
        ends.append(value)
    if ends[0] is not None and ends[1] is not None and ends[0] > ends[1]:
        raise BadRequest(f"x0 must not be above x1, got {ends[0]:g} and {ends[1]:g}")
    return ends[0], ends[1], min(50_000, max(50, whole(request, "px", 1000)))
