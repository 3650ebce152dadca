"""The settings under which a snapshot was recorded."""

from __future__ import annotations

from typing import Any

from memguard.allocator.config import AllocatorConfig


def recorded_conf(settings: dict[str, Any]) -> str:
    """A snapshot's allocator settings as text for ``PYTORCH_CUDA_ALLOC_CONF``.

    The parsed settings count where they are told, since versions read the same text differently. The limit of the
    process is left out: where it was met, the trace shows it.
    """
    parts = []
    if settings.get("expandable_segments") is True:
        parts.append("expandable_segments:True")
    max_split = settings.get("max_split_size")
    if isinstance(max_split, int) and 20 << 20 <= max_split < 1 << 62:
        parts.append(f"max_split_size_mb:{max_split >> 20}")
    threshold = settings.get("garbage_collection_threshold")
    if isinstance(threshold, float) and 0.0 < threshold < 1.0:
        parts.append(f"garbage_collection_threshold:{threshold}")
    divisions = settings.get("roundup_power2_divisions")
    if isinstance(divisions, dict) and any(divisions.values()):
        parts.append("roundup_power2_divisions:[" + ",".join(f"{mib}:{d}" for mib, d in divisions.items()) + "]")
    text = settings.get("PYTORCH_CUDA_ALLOC_CONF")
    if isinstance(text, str):
        pairs = text.replace(" ", "").split(",")
        parts += [pair for pair in pairs if pair.startswith(("large_segment_size_mb:", "max_non_split_rounding_mb:"))]
    return checked_conf(",".join(parts))


def checked_conf(conf: str) -> str:
    """The text if it is valid, else an empty one: the settings of a damaged file."""
    try:
        AllocatorConfig.parse(conf)
    except ValueError:  # settings of another allocator or a newer one: the replay then tells how far it is off
        return ""
    return conf
