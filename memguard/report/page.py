"""HTML from the templates beside this file, by Jinja: whatever comes from a run is escaped unless a filter says how."""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from memguard.records.summary import Summary
from memguard.report.text import cost_text, headline, peak_texts, phase_rows, sorted_findings, stage_rows, why_texts
from memguard.text.units import format_bytes

if TYPE_CHECKING:
    from jinja2 import Environment

_CODE: Final = re.compile(r"`([^`]+)`")
_NO_CLASS: Final = re.compile(r"[^\w-]+")


def render_template(template: str, **values: Any) -> str:
    """A template of this package, filled in.

    Args:
        template: Its name without ``.html``.
        **values: What it shows; text is escaped, `jinja2.filters.Markup` is not.
    """
    return _environment().get_template(f"{template}.html").render(**values)


@functools.lru_cache(maxsize=1)
def _environment() -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    loader = FileSystemLoader(Path(__file__).parent / "templates")
    made = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    made.filters.update(size=format_bytes, inline=_inline, css=css_class)
    return made


def _inline(text: str) -> str:
    """What stands between backquotes as code."""
    from markupsafe import Markup, escape

    return Markup(_CODE.sub(r"<code>\1</code>", str(escape(text))))


def css_class(name: str) -> str:
    """A name as a class of CSS."""
    return _NO_CLASS.sub("-", name)


def summary_html(summary: Summary) -> str:
    """The verdict, why, the table of stages, the findings, what it cost."""
    return render_template(
        "summary",
        verdict=headline(summary),
        lines=[*(f"{word}: {text}" for word, text in why_texts(summary)), *peak_texts(summary), cost_text(summary)],
        tables=[stage_rows(summary), phase_rows(summary)],
        findings=sorted_findings(summary),
    )
