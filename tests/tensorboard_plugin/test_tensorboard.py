from __future__ import annotations

import json
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tensorboard_plugin.make_logdir import main
from tests.tensorboard_plugin.serving import serve

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@pytest.fixture(scope="module", params=["", "/some/prefix"])
def url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A real TensorBoard over the demo, also behind a path prefix."""
    folder = tmp_path_factory.mktemp("demo")
    main(folder)
    with serve(folder, prefix=request.param) as address:
        yield address


def get(url: str) -> tuple[bytes, dict[str, str]]:
    with urllib.request.urlopen(url) as answer:
        return answer.read(), dict(answer.headers)


def test_the_tab_is_listed_and_active(url: str) -> None:
    """TensorBoard finds the entry point and enables the tab for recordings alone, without events."""
    listing = json.loads(get(f"{url}/data/plugins_listing")[0])
    assert listing["memguard"]["enabled"]
    assert listing["memguard"]["tab_name"] == "Memory"
    assert listing["memguard"]["loading_mechanism"]["module_path"].endswith("/static/index.js")


def test_routes_answer_with_safe_headers(url: str) -> None:
    """Data and files come from TensorBoard with its type and nosniff headers; nothing is cached."""
    data, headers = get(f"{url}/data/plugin/memguard/runs")
    assert len(json.loads(data)["runs"]) == 3
    assert headers["X-Content-Type-Options"] == "nosniff"
    script, headers = get(f"{url}/data/plugin/memguard/static/index.js")
    assert b"export async function render" in script
    assert headers["Content-Type"].startswith("text/javascript")


def test_bad_requests_are_400(url: str) -> None:
    """A bad number is the client's fault, not a server error."""
    with pytest.raises(urllib.error.HTTPError) as caught:
        get(f"{url}/data/plugin/memguard/series?run=leak&x0=abc")
    assert caught.value.code == 400
    caught.value.close()


def test_the_entry_point_works_in_a_process_without_torch(tmp_path: Path) -> None:
    """TensorBoard's own discovery loads the tab where importing torch fails."""
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from tensorboard import default\n"
        "from argparse import Namespace\n"
        "found = [p for p in default.get_dynamic_plugins() if p.__module__.startswith('memguard')]\n"
        "plugin = found[0]().load(Namespace(logdir=sys.argv[1], flags=Namespace(logdir_spec='')))\n"
        "assert plugin.plugin_name == 'memguard' and not plugin.is_active()"
    )
    subprocess.run([sys.executable, "-W", "ignore", "-c", code, str(tmp_path)], check=True)
