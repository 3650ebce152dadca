"""``memguard doctor``: what this environment is, what can be measured in it, and the traps known to lie in it."""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import sys
from collections.abc import Iterator
from typing import Any

import memguard
from memguard.commands.output import tell, tell_data
from memguard.commands.parsers import add_parser
from memguard.text.units import format_bytes

_PACKAGES = (
    "torch-memguard", "torch", "lightning", "pytorch-lightning", "tensorboard", "setuptools", "protobuf",
    "nvidia-ml-py", "psutil", "numpy", "jinja2", "torch-tb-profiler",
)  # fmt: skip


def add(subparsers: argparse._SubParsersAction[Any]) -> None:
    """Adds the parser."""
    parser = add_parser(
        subparsers,
        "doctor",
        "what can be measured here, and known traps",
        "Lists what memguard can measure in this environment, and its known traps.",
    )
    parser.add_argument("--json", action="store_true", help="the same as JSON on stdout")
    parser.set_defaults(run=run)


def run(given: argparse.Namespace) -> int:
    """Prints the diagnosis; returns 0, traps or not."""
    from memguard.backends import diagnosis

    versions = {name: version for name in _PACKAGES if (version := _version(name)) is not None}
    if given.json:
        system = {"system": platform.system(), "release": platform.release(), "machine": platform.machine()}
        measured = [*diagnosis.devices(), *_host()]
        data = {
            "version": 1,
            "memguard": memguard.__version__,
            "python": platform.python_version(),
            **system,
            "packages": versions,
            "measured": measured,
            "hints": [*_hints(versions)],
        }
        tell_data(json.dumps(data, indent=2))
        return 0
    tell(f"Python {platform.python_version()} on {platform.system()} {platform.release()}, {platform.machine()}")
    tell("Packages: " + ", ".join(f"{name} {version}" for name, version in versions.items()))
    tell()
    tell("What can be measured here:")
    for line in (*diagnosis.devices(), *_host()):
        tell(f"  {line}")
    hints = [*_hints(versions)]
    tell()
    tell("Traps:" if hints else "No known trap here.")
    for hint in hints:
        tell(f"  - {hint}")
    return 0


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:  # not installed, which is an answer
        return None


def _host() -> Iterator[str]:
    from memguard.backends.host import HostMemory

    host = HostMemory()
    slow = host.read_slow()
    yield (
        f"RAM of this process ({format_bytes(host.rss_bytes())} now); the limit is "
        f"{format_bytes(slow.host_limit_bytes)}, {format_bytes(slow.host_used_bytes)} of it in use"
    )
    if slow.shm_total_bytes is not None:
        free = format_bytes(slow.shm_free_bytes)
        yield f"shared memory for DataLoader workers: {free} free of {format_bytes(slow.shm_total_bytes)}"


def _hints(versions: dict[str, str]) -> Iterator[str]:
    tensorboard, setuptools = _numbers(versions.get("tensorboard")), _numbers(versions.get("setuptools"))
    if tensorboard and setuptools and tensorboard < (2, 21) and setuptools >= (82,):
        yield (
            f"tensorboard {versions['tensorboard']} does not start with setuptools {versions['setuptools']} (it needs "
            "pkg_resources): pip install -U 'tensorboard>=2.21', or 'setuptools<82'. Writing curves works all the same."
        )
    if "torch-tb-profiler" in versions:
        yield "torch-tb-profiler is unmaintained and slows TensorBoard's start: pip uninstall torch-tb-profiler"
    conf = os.environ.get("PYTORCH_CUDA_ALLOC_CONF") or os.environ.get("PYTORCH_ALLOC_CONF") or ""
    if "cudaMallocAsync" in conf:
        yield "PYTORCH_CUDA_ALLOC_CONF selects cudaMallocAsync: peaks, retries and snapshots are not available with it"
    if os.environ.get("PYTORCH_NO_CUDA_MEMORY_CACHING"):
        yield "PYTORCH_NO_CUDA_MEMORY_CACHING is set: every tensor is a cudaMalloc, slow and unlike training elsewhere"
    if os.environ.get("MEMGUARD_DISABLE", "").lower() in ("1", "true"):
        yield "MEMGUARD_DISABLE is set: memguard does nothing at all"
    from memguard.backends import diagnosis

    yield from diagnosis.hints()
    if sys.version_info >= (3, 14):
        yield f"Python {platform.python_version()} is newer than those memguard was tested with (3.10 to 3.13)"


def _numbers(version: str | None) -> tuple[int, ...]:
    if version is None:
        return ()
    return tuple(int(part) for part in version.split("+")[0].split(".")[:2] if part.isdigit())
