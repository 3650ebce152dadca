from __future__ import annotations

import json
import time
import urllib.request
from argparse import Namespace
from pathlib import Path

import pytest
from werkzeug.test import Client

from memguard.sinks.tensorboard_events import EventFile, manifest_event
from memguard.tensorboard_plugin.plugin import MemoryPlugin
from memguard.text.units import GIB
from tests.tensorboard_plugin.serving import serve

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of what TensorBoard itself imports


def test_a_run_of_which_only_events_were_copied_is_listed(tmp_path: Path) -> None:
    """The newest manifest in TensorBoard's own file tells of the run, and turns the tab on."""
    writer = EventFile(tmp_path / "copied")
    for step in range(30):
        manifest = {"count": step, "device_total_bytes": 24 * GIB, "peak": {"allocated_peak_bytes": GIB + step}}
        writer.write([manifest_event(manifest, step)])
    writer.close()
    with serve(tmp_path) as url:
        until = time.monotonic() + 60
        runs: list[dict[str, object]] = []
        while not runs and time.monotonic() < until:
            with urllib.request.urlopen(f"{url}/data/plugin/memguard/runs") as answer:
                runs = json.load(answer)["runs"]
        (rank,) = runs[0]["ranks"]
        assert runs[0]["name"] == "copied"
        assert rank["count"] == 29
        assert rank["peak"]["allocated_peak_bytes"] == GIB + 29
        assert "was not copied" in rank["problem"]
        with urllib.request.urlopen(f"{url}/data/plugins_listing") as answer:
            assert json.load(answer)["memguard"]["enabled"]


def test_a_broken_data_provider_hides_no_recording(tmp_path: Path) -> None:
    """Whatever TensorBoard's provider raises, the recordings are listed."""

    class Broken:
        def read_tensors(self, *args: object, **kwargs: object) -> None:
            raise RuntimeError("no such experiment")

    plugin = MemoryPlugin(Namespace(logdir=str(tmp_path), flags=None, data_provider=Broken()))
    assert Client(plugin.get_plugin_apps()["/runs"]).get("/runs").json["runs"] == []
