"""Where the null GPU's environment stands and what is in it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

TORCH_VERSION = "2.15.0"
"""The only place that says which torch the null GPU runs; its layouts are those of CUDA 13."""

PACKAGES = (
    "pip",
    "numpy",
    "lightning",
    "pytorch-lightning",
    "tensorboard",
    "nvidia-ml-py",
    "psutil",
    "jinja2",
    "pytest",
    "hypothesis",
)
"""What the tests need beside torch."""

CHECKOUT = Path(__file__).resolve().parents[2]


def folder() -> Path:
    """The environment's folder: MEMGUARD_NULLGPU_VENV, else ``.nullgpu`` in the checkout."""
    return Path(os.environ.get("MEMGUARD_NULLGPU_VENV") or CHECKOUT / ".nullgpu").expanduser().absolute()


def python(environment: Path) -> Path:
    """The environment's interpreter."""
    return environment / "bin" / "python"


def site_packages(environment: Path) -> Path:
    """Where the environment's packages lie."""
    major, minor = sys.version_info[:2]
    return environment / "lib" / f"python{major}.{minor}" / "site-packages"


def libraries(environment: Path) -> Path:
    """Where the stand-ins for the CUDA libraries lie."""
    return environment / "nullgpu"


def stamp(environment: Path) -> Path:
    """The file that is written when everything is in place; it names what was built."""
    return libraries(environment) / "ready"
