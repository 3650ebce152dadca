"""Reads our own events: what they tell of a run where only TensorBoard's own files were copied."""

from __future__ import annotations

import json
from typing import Any

from memguard.sinks.tensorboard_events import MANIFEST
from memguard.tensorboard_plugin.loader import NAME


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
