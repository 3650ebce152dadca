"""The README's pictures of the Memory tab, light and dark: ``python -m tests.browser.pictures``."""

from __future__ import annotations

import tempfile
from pathlib import Path

from tests.browser.chromium import Visit, browser
from tests.tensorboard_plugin.make_logdir import make_leak
from tests.tensorboard_plugin.serving import serve

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "pictures"


def main() -> None:
    """Writes both pictures."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        make_leak(Path(folder) / "leak").close()
        with serve(Path(folder)) as url, browser() as running:
            for theme in ("light", "dark"):
                page = running.new_page(viewport={"width": 1280, "height": 1072})
                frame = Visit(page).tab(url)
                if theme == "dark":
                    page.evaluate("document.body.classList.add('dark-mode')")
                    frame.wait_for_selector("html[data-theme=dark]")
                frame.wait_for_selector("body[data-ready=timeline]")
                frame.wait_for_selector("#peak-bytes")
                page.wait_for_timeout(500)
                path = FOLDER / f"memory-tab-{theme}.png"
                page.screenshot(path=path)
                print(f"{path.name}: {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
