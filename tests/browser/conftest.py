from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.browser.chromium import Visit, browser
from tests.tensorboard_plugin.make_logdir import main
from tests.tensorboard_plugin.serving import serve


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """One browser for the tests of a file; it keeps an event loop running, in which others could start none."""
    with browser() as running:
        yield running


@pytest.fixture(scope="session")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo's logdir."""
    folder = tmp_path_factory.mktemp("demo")
    main(folder)
    return folder


@pytest.fixture(scope="session")
def url(demo: Path) -> Iterator[str]:
    """A TensorBoard over the demo."""
    with serve(demo) as address:
        yield address


@pytest.fixture
def visit(chromium: Any) -> Iterator[Visit]:
    """A fresh visitor; at the end of a test the page must not have complained about anything."""
    context = chromium.new_context(viewport={"width": 1440, "height": 1000})
    context.set_default_timeout(120_000)
    made = Visit(context.new_page())
    yield made
    context.close()
    assert made.complaints == []
