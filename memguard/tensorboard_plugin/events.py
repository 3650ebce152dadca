"""Events of our own: they turn the tab on, and tell of a run where only TensorBoard's own files were copied."""

from __future__ import annotations

import json
import time
from typing import Any

from memguard.tensorboard_plugin.loader import NAME

TAG = "memguard/manifest"


def manifest_event(manifest: dict[str, Any], step: int, wall_time: float | None = None) -> Any:
    """An event that carries a JSON text for the Memory tab; no torch.

    Args:
        manifest: What to tell of the run; JSON values.
        step: Grows from event to event of a run, or TensorBoard drops what came before.
        wall_time: Seconds since 1970; now by default.

    Returns:
        A ``tensorboard.compat.proto.event_pb2.Event``, for any ``EventFileWriter.add_event``.
    """
    from tensorboard.compat.proto import event_pb2, summary_pb2
    from tensorboard.util import tensor_util

    metadata = summary_pb2.SummaryMetadata(data_class=summary_pb2.DATA_CLASS_TENSOR)
    metadata.plugin_data.plugin_name = NAME
    tensor = tensor_util.make_tensor_proto(json.dumps(manifest))
    summary = summary_pb2.Summary(value=[summary_pb2.Summary.Value(tag=TAG, metadata=metadata, tensor=tensor)])
    return event_pb2.Event(step=step, wall_time=time.time() if wall_time is None else wall_time, summary=summary)


def read_manifests(data_provider: Any, context: Any, experiment_id: str) -> dict[str, dict[str, Any]]:
    """The newest manifest of each run that has one in its events, by run.

    Args:
        data_provider: TensorBoard's.
        context: The request's ``RequestContext``.
        experiment_id: The request's.
    """
    found = data_provider.read_tensors(
        context, experiment_id=experiment_id, plugin_name=NAME, downsample=1, run_tag_filter=None
    )
    manifests: dict[str, dict[str, Any]] = {}
    for run, tags in found.items():
        for datum in tags.get(TAG, [])[-1:]:
            try:
                manifest = json.loads(datum.numpy.item())
            except (ValueError, TypeError):
                continue
            if isinstance(manifest, dict):
                manifests[run] = manifest
    return manifests
