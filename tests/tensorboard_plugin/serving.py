"""The plugin's routes by themselves, and a real TensorBoard in this process."""

from __future__ import annotations

import contextlib
import json
import warnings
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from werkzeug.test import Client

from memguard.tensorboard_plugin.plugin import MemoryPlugin


@contextlib.contextmanager
def serve(logdir: Path, *, prefix: str = "") -> Iterator[str]:
    """Its address, while it runs."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of TensorBoard and protobuf
        from tensorboard import default, program

        server = program.TensorBoard(default.get_plugins())
        argv = ["tensorboard", "--logdir", str(logdir), "--host", "127.0.0.1", "--port", "0", "--load_fast", "false"]
        server.configure(argv=[*argv, *(["--path_prefix", prefix] if prefix else [])])
        made = server._make_server()
    import threading

    thread = threading.Thread(target=made.serve_forever, daemon=True)
    thread.start()
    try:
        yield made.get_url().rstrip("/")
    finally:
        made.shutdown()
        made.server_close()
        thread.join()


class Server:
    """The plugin's routes without TensorBoard around them."""

    def __init__(self, logdir: Path | str, spec: str = "") -> None:
        self.plugin = MemoryPlugin(Namespace(logdir=str(logdir), flags=Namespace(logdir_spec=spec)))
        self.apps = self.plugin.get_plugin_apps()

    def get(self, route: str, **query: Any) -> Any:
        return Client(self.apps[route]).get(route, query_string=query)

    def json(self, route: str, **query: Any) -> dict[str, Any]:
        answer = self.get(route, **query)
        assert answer.status_code == 200, answer.data
        return json.loads(answer.data, parse_constant=_no_constant)


def _no_constant(name: str) -> None:
    raise AssertionError(f"{name} is no JSON")
