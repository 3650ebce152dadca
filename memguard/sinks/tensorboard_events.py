"""Events that are more than a scalar or a text: the Memory tab's portable manifest, and a layout for Custom Scalars."""

from __future__ import annotations

import json
import re
from typing import Any

from memguard.clocks import now

PLUGIN = "memguard"
MANIFEST = "memguard/manifest"


def manifest_event(manifest: dict[str, Any], step: int, wall_time: float | None = None) -> Any:
    """An event that carries a JSON text for the Memory tab; no torch.

    It turns the tab on, and tells of a run where only TensorBoard's own files were copied.

    Args:
        manifest: What to tell of the run; JSON values.
        step: Grows from event to event of a run, or TensorBoard drops what came before.
        wall_time: Seconds since 1970; now by default.

    Returns:
        A ``tensorboard.compat.proto.event_pb2.Event``, for any ``EventFileWriter.add_event``.
    """
    from tensorboard.compat.proto import summary_pb2
    from tensorboard.util import tensor_util

    metadata = summary_pb2.SummaryMetadata(data_class=summary_pb2.DATA_CLASS_TENSOR)
    metadata.plugin_data.plugin_name = PLUGIN
    return _event(MANIFEST, metadata, tensor_util.make_tensor_proto(json.dumps(manifest)), step, wall_time)


def layout_event(tags: dict[str, list[str]], step: int, wall_time: float | None = None) -> Any:
    """An event that arranges our curves in TensorBoard's Custom Scalars tab.

    A run has one layout: the last one written counts, so this replaces one of the user's own.

    Args:
        tags: The tags of each chart, by its title.
        step: See `manifest_event`.
        wall_time: Seconds since 1970; now by default.
    """
    from tensorboard.plugins.custom_scalar import layout_pb2, metadata
    from tensorboard.util import tensor_util

    charts = [
        layout_pb2.Chart(
            title=title, multiline=layout_pb2.MultilineChartContent(tag=[re.escape(tag) + "$" for tag in names])
        )
        for title, names in tags.items()
    ]
    layout = layout_pb2.Layout(category=[layout_pb2.Category(title="Memory (memguard)", chart=charts)])
    tensor = tensor_util.make_tensor_proto(layout.SerializeToString())
    return _event(metadata.CONFIG_SUMMARY_TAG, metadata.create_summary_metadata(), tensor, step, wall_time)


def _event(tag: str, metadata: Any, tensor: Any, step: int, wall_time: float | None) -> Any:
    from tensorboard.compat.proto import event_pb2, summary_pb2

    summary = summary_pb2.Summary(value=[summary_pb2.Summary.Value(tag=tag, metadata=metadata, tensor=tensor)])
    return event_pb2.Event(step=step, wall_time=now() if wall_time is None else wall_time, summary=summary)
