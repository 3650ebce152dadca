from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.browser.chromium import Visit, needs_chromium
from tests.tensorboard_plugin.serving import serve

AXE = Path(os.environ.get("MEMGUARD_AXE", Path(__file__).parent / "node_modules" / "axe-core" / "axe.min.js"))
pytestmark = [
    pytest.mark.browser,
    needs_chromium,
    pytest.mark.skipif(not AXE.exists(), reason="no axe-core; `make axe` gets it from npm"),
]


@pytest.mark.parametrize("width", [400, 1440])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_no_view_has_a_serious_finding_of_axe(chromium: Any, demo: Path, theme: str, width: int) -> None:
    """In both themes all views can be read by everybody, as far as axe-core tells, also on a narrow screen."""
    context = chromium.new_context(viewport={"width": width, "height": 900}, color_scheme=theme, bypass_csp=True)
    found: list[str] = []
    with serve(demo) as url:
        page = context.new_page()
        frame = Visit(page).alone(url)
        frame.select_option("#run", "leak")
        for view in ("overview", "timeline", "findings", "oom", "snapshot", "compare"):
            frame.click(f"[data-view={view}]")
            frame.wait_for_selector(f"body[data-ready={view}]")
            for example in frame.locator("summary").all():
                example.click()
            page.evaluate(AXE.read_text())
            for each in page.evaluate("axe.run(document, {resultTypes: ['violations']})")["violations"]:
                if each["impact"] in ("serious", "critical"):
                    found += [f"{view}: {each['id']}: {node['html'][:160]}" for node in each["nodes"]]
        page.goto("about:blank")
    context.close()
    assert found == []
