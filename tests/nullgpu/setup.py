"""Makes the null GPU's environment: ``python -m tests.nullgpu.setup``; a second call finds it ready.

A virtual environment with the CUDA build of torch but none of the CUDA packages it requires: one small library,
compiled here, stands in for all of them. Needs Linux on x86-64, pip, gcc and binutils.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

from tests.nullgpu import environment, libraries

NOT_INSTALLED = re.compile(r"Requires-Dist: (cuda-|nvidia-|triton|setuptools)")
CONSTRAINTS = environment.CHECKOUT / "constraints.txt"

# A script that ends right after backward() is now and then aborted by autograd's device thread; it needs a moment.
PAUSE_AT_EXIT = "import atexit, time; atexit.register(time.sleep, 0.05)\n"


def main() -> int:
    """Makes the environment, or the part of it that is missing; the exit status."""
    place = environment.folder()
    if platform.system() != "Linux" or platform.machine() != "x86_64":
        print("the null GPU needs Linux on x86-64", file=sys.stderr)
        return 2
    if missing := [tool for tool in ("gcc", "nm", "readelf") if shutil.which(tool) is None]:
        print(f"the null GPU needs {' and '.join(missing)} (gcc, binutils)", file=sys.stderr)
        return 2
    stamp = environment.stamp(place)
    packages, sources = _recipe()
    done = stamp.read_text().split() if stamp.exists() else ["", ""]
    if done == [packages, sources]:
        print(f"null GPU ready: {place}")
        return 0
    if done[0] != packages:
        _install(place)
    _build(place)
    looks = "import torch; print('torch', torch.__version__, 'sees', torch.cuda.get_device_name())"
    subprocess.run([environment.python(place), "-W", "ignore", "-c", looks], check=True)
    stamp.write_text(f"{packages}\n{sources}\n")
    print(f"null GPU ready: {place}")
    return 0


def _recipe() -> tuple[str, str]:
    """What decides whether to install anew, and whether to build anew."""
    packages = " ".join([environment.TORCH_VERSION, *environment.PACKAGES]) + CONSTRAINTS.read_text()
    files = [Path(__file__), Path(libraries.__file__), *sorted(libraries.SOURCES.iterdir())]
    digest = hashlib.sha256(b"".join(file.read_bytes() for file in files))
    return hashlib.sha256(packages.encode()).hexdigest(), digest.hexdigest()


def _install(place: Path) -> None:
    venv.create(place, symlinks=True)
    environment.libraries(place).mkdir(exist_ok=True)
    _pip(place, "--no-deps", f"torch=={environment.TORCH_VERSION}")
    _strike_cuda_requirements(place)
    with tempfile.TemporaryDirectory() as scratch:
        others = Path(scratch) / "constraints.txt"
        lines = CONSTRAINTS.read_text().splitlines()
        others.write_text("\n".join(line for line in lines if not line.startswith("torch==")))
        _pip(place, "-c", others, *environment.PACKAGES)
    subprocess.run(
        [environment.python(place), "-m", "compileall", "-qq", "-j", "0", environment.site_packages(place)], check=False
    )


def _pip(place: Path, *arguments: object) -> None:
    command = [sys.executable, "-m", "pip", "--python", environment.python(place), "install", "-q", "--no-compile"]
    # A constraint of this machine's own is for its other environments; all versions here are said.
    own = {**os.environ, "PIP_CONSTRAINT": os.devnull}
    subprocess.run([*map(str, command), *map(str, arguments)], check=True, env=own)


def _strike_cuda_requirements(place: Path) -> None:
    """Takes the CUDA packages (2 GB) from torch's metadata, so that no later pip call brings them; keeps their list."""
    metadata = next(environment.site_packages(place).glob("torch-*.dist-info")) / "METADATA"
    lines = metadata.read_text().splitlines()
    if struck := [line for line in lines if NOT_INSTALLED.match(line)]:
        _requirements(place).write_text("\n".join(struck))
        metadata.write_text("\n".join(line for line in lines if not NOT_INSTALLED.match(line)) + "\n")


def _requirements(place: Path) -> Path:
    return environment.libraries(place) / "requirements"


def _build(place: Path) -> None:
    site, into = environment.site_packages(place), environment.libraries(place)
    generated = libraries.build(site / "torch", _requirements(place).read_text(), into)
    print(f"null GPU: {generated} CUDA functions generated")
    searched = site / "nvidia" / "cu13" / "lib"  # on the search path compiled into torch
    searched.parent.mkdir(parents=True, exist_ok=True)
    if not searched.is_symlink():
        searched.symlink_to(os.path.relpath(into, searched.parent))
    (site / "nullgpu.pth").write_text(PAUSE_AT_EXIT)


if __name__ == "__main__":
    sys.exit(main())
