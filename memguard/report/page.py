"""The look of pages that stand alone: colours for light and dark, panels, tables; nothing is loaded from elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from html import escape
from typing import Final

STYLE: Final = """
:root{--background:#f6f7f9;--panel:#fff;--line:#e3e6ea;--text:#1c2128;--muted:#66707c;--code:#eef1f5;--critical:#c9352b;
--critical-soft:#fdf0ee;--good:#1a7f4b;--good-soft:#edf8f1;--warning:#a86400;--warning-soft:#fdf5e6}
@media(prefers-color-scheme:dark){:root{--background:#191c21;--panel:#22262d;--line:#343a43;--text:#e8ebef;
--muted:#9aa4b1;--code:#2c323b;--critical:#ff7b6e;--critical-soft:#35211f;--good:#58c98a;--good-soft:#1b2e24;
--warning:#e5ab4f;--warning-soft:#33291a}}
*{box-sizing:border-box}
body{margin:0;background:var(--background);color:var(--text);
font:14px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif}
main{max-width:960px;margin:0 auto;padding:24px 16px 48px;display:grid;gap:14px}
h1{font-size:20px;margin:0;overflow-wrap:anywhere}h2{font-size:15px;margin:0 0 6px}p{margin:4px 0}
section{background:var(--panel);border:1px solid var(--line);border-radius:8px;padding:14px 18px;overflow-x:auto}
section.headline{background:var(--critical-soft);border-left:4px solid var(--critical)}
section.good{background:var(--good-soft);border-left-color:var(--good)}
section.warning{background:var(--warning-soft);border-left-color:var(--warning)}
code,pre{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;font-size:.92em}
code{background:var(--code);border-radius:4px;padding:0 3px;overflow-wrap:anywhere}
pre{background:var(--code);border-radius:6px;padding:10px 12px;margin:0;white-space:pre-wrap;overflow-wrap:anywhere}
ol,ul{margin:0;padding-left:22px}li{margin:4px 0}.muted{color:var(--muted)}
table{border-collapse:collapse;width:100%}th{text-align:left;color:var(--muted);font-weight:550}
th,td{padding:3px 10px 3px 0;border-bottom:1px solid var(--line);vertical-align:top}
.number{text-align:right;white-space:nowrap;font-variant-numeric:tabular-nums}
.bar{display:flex;height:22px;border-radius:5px;overflow:hidden;margin:4px 0 10px}
.bar i{min-width:1px}.key{display:inline-block;width:.8em;height:.8em;border-radius:2px;margin-right:.5em}
"""


def page(title: str, sections: Iterable[str], colours: Mapping[str, tuple[str, str]], style: str = "") -> str:
    """A whole page.

    Args:
        title: Plain text.
        sections: HTML, each a ``section``.
        colours: Background of each class, on light and on dark.
        style: More CSS.
    """
    light = "".join(f".{name}{{background:{shade};fill:{shade}}}" for name, (shade, _) in colours.items())
    dark = "".join(f".{name}{{background:{shade};fill:{shade}}}" for name, (_, shade) in colours.items())
    whole = f"{STYLE}{style}{light}@media(prefers-color-scheme:dark){{{dark}}}"
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        '<meta name="viewport" content="width=device-width">'
        f"<style>{whole}</style></head>\n<body><main>\n{chr(10).join(sections)}\n</main></body></html>\n"
    )
