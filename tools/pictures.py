"""The README's pictures, made of a run of `memguard demo`: `make pictures`. Needs a chromium for the Memory tab's.

`docs/pictures/demo.svg` is what the demo prints on a terminal; `docs/pictures/memory-tab.png` is what TensorBoard shows
of its recording, and `memory-tab.txt` the words on that picture. tests/test_examples.py compares them with a new run.
"""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

PICTURES = ROOT / "docs" / "pictures"
COLUMNS = 110

_SVG = """\
<svg viewBox="0 0 {terminal_width} {terminal_height}" xmlns="http://www.w3.org/2000/svg" font-size="{char_height}">
<style>
{styles}
.{unique_id}-matrix {{ font-family: Menlo, Consolas, 'DejaVu Sans Mono', monospace; white-space: pre }}
</style>
<defs>{lines}</defs>
<rect width="100%" height="100%" rx="8" fill="#0d1117"/>
<g transform="translate(14, 12)">{backgrounds}<g class="{unique_id}-matrix">{matrix}</g></g>
</svg>
"""
"""As rich fills it in: without a window's frame and without fonts from elsewhere."""


def demo(logdir: Path) -> str:
    """What the demo prints on a terminal of that width, with its escape sequences."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "COLUMNS": str(COLUMNS), "TERM": "xterm-256color", "PYTHONPATH": str(ROOT)}
    environment.pop("NO_COLOR", None)
    command = [sys.executable, "-m", "memguard", "demo", "--logdir", str(logdir)]
    running = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=theirs, env=environment, cwd=logdir.parent
    )
    os.close(theirs)
    printed = b""
    while True:
        try:
            piece = os.read(ours, 65536)
        except OSError:  # the other side is closed
            break
        if not piece:
            break
        printed += piece
    os.close(ours)
    if running.wait():
        raise SystemExit(f"the demo failed:\n{printed.decode()}")
    return printed.decode().replace("\r\n", "\n")


def excerpt(printed: str) -> str:
    """The first findings, the out-of-memory report, and the verdict; three dots where something is left out."""
    plain = re.compile(r"\x1b\[[\d;]*m")
    lines = printed.split("\n")
    bare = [plain.sub("", line) for line in lines]

    def first(start: str, after: int = 0) -> int:
        return next(number for number in range(after, len(bare)) if bare[number].startswith(start))

    begin = first("memguard warning")
    trace = first("Traceback", begin)
    report = first("memguard: out of memory", trace)
    verdict = first("memguard on", report)
    end = first("Peak", verdict) + 1
    parts = ["$ memguard demo", *lines[begin:trace], "...", *lines[report:end]]
    return "\n".join(line for line, before in zip(parts, ["x", *parts], strict=False) if line.strip() or before.strip())


def as_svg(text: str) -> str:
    """A terminal's text as a picture."""
    from rich.console import Console
    from rich.terminal_theme import TerminalTheme
    from rich.text import Text

    colours = ["0d1117", "ff7b72", "3fb950", "d29922", "58a6ff", "bc8cff", "39c5cf", "c9d1d9"]
    rgb = [(int(code[:2], 16), int(code[2:4], 16), int(code[4:], 16)) for code in colours]
    theme = TerminalTheme(rgb[0], rgb[-1], rgb, rgb)
    with open(os.devnull, "w", encoding="utf-8") as nowhere:
        console = Console(record=True, width=COLUMNS, file=nowhere, force_terminal=True, color_system="truecolor")
        console.print(Text.from_ansi(text), soft_wrap=False)
    drawn = console.export_svg(title="", theme=theme, code_format=_SVG, unique_id="demo")
    return re.sub(
        r'viewBox="0 0 ([\d.]+) ([\d.]+)"',
        lambda size: f'viewBox="0 0 {float(size[1]) + 30:.0f} {float(size[2]) + 30:.0f}"',
        drawn,
        count=1,
    )


def memory_tab(logdir: Path) -> tuple[bytes, str]:
    """A picture of the Memory tab over the recording, and the words on it."""
    from tests.browser.chromium import Visit, browser
    from tests.tensorboard_plugin.serving import serve

    with serve(logdir) as url, browser() as running:
        context = running.new_context(viewport={"width": 1280, "height": 900}, color_scheme="light")
        frame = Visit(context.new_page()).alone(url)
        frame.wait_for_timeout(1500)
        return frame.page.screenshot(), frame.inner_text("body")


def main() -> None:
    """Writes the pictures."""
    with tempfile.TemporaryDirectory() as folder:
        logdir = Path(folder) / "demo"
        printed = demo(logdir)
        (PICTURES / "demo.svg").write_text(as_svg(excerpt(printed).replace(f"{folder}/", "")))
        picture, words = memory_tab(logdir)
        (PICTURES / "memory-tab.png").write_bytes(picture)
        (PICTURES / "memory-tab.txt").write_text(
            "\n".join(line.strip() for line in words.splitlines() if line.strip()) + "\n"
        )


if __name__ == "__main__":
    main()
