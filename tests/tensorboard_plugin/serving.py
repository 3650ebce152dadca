"""A real TensorBoard in this process."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from pathlib import Path


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
