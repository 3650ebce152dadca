"""The files of an out-of-memory report, beside the recording."""

from __future__ import annotations

import json
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

from memguard.postmortem import PostMortem
from memguard.recording.format import FOLDER
from memguard.report.postmortem_html import render_html
from memguard.report.postmortem_text import render_markdown


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
