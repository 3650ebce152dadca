"""Builds the package and tries it in fresh environments, as its users will: ``make check-package``.

One environment has the wheel alone, without what it depends on; one has its dependencies; then one for each extra,
which begins as a copy of that one, so that torch is unpacked once. Each is checked by pip, imports memguard, and guards
a small training. Last, twine reads what PyPI would show. Torch comes from the index that pip is set up for.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Sequence
from email.parser import Parser
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MOST_SECONDS = 0.05
"""``import memguard`` takes less of a processor's time, however busy the machine is; the shortest of several."""

IMPORT = """
import sys, time
began = time.process_time()
import memguard
print(time.process_time() - began)
assert "torch" not in sys.modules
"""

TRAINING = """
import sys
import torch, memguard
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters())
kept = []
with memguard.watch(model, optimizer, device="virtual:64MiB", logdir=sys.argv[1], quiet=True) as guard:
    for _ in guard.batches(range(40)):
        loss = model(torch.ones(64, 8)).sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        kept.append(loss)
assert guard.result().batches >= 40 and "MG101" in {finding.code for finding in guard.findings}, guard.summary()
"""

EXTRAS = {
    "lightning": "import lightning, memguard; lightning.Trainer(callbacks=[memguard.MemGuard()], logger=False, "
    "enable_checkpointing=False, accelerator='cpu')",
    "huggingface": "from memguard.integrations.huggingface import MemGuardCallback; MemGuardCallback()",
    "tensorboard": "from tensorboard.plugins.base_plugin import TBLoader; "
    "from memguard.tensorboard_plugin.loader import Loader; assert issubclass(Loader, TBLoader)",
    "nvidia": "import pynvml",
    "completion": "from memguard.cli import main; assert main(['completion', 'bash']) == 0",
    "otel": "from memguard.options import Options; Options(export='otlp'), Options(export='prometheus')",
    "mcp": "from memguard.assistants.server import make_server; make_server('.')",
    "ray": "import ray.train",
    "s3": "import fsspec; fsspec.get_filesystem_class('s3')",
    "gcs": "import fsspec; fsspec.get_filesystem_class('gs')",
    "azure": "import fsspec; fsspec.get_filesystem_class('abfs')",
}
"""What an extra is for, beside what works without it; of the others it is enough that they install."""


def main() -> int:
    """Checks all of it; 0 where it is sound."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--extras", help="only these, with commas (default: all that the wheel has, without dev)")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="memguard-package-") as name:
        folder = Path(name)
        run(sys.executable, "-m", "build", "--outdir", str(folder / "dist"), str(ROOT))
        (wheel,) = (folder / "dist").glob("*.whl")
        alone = Environment(folder / "alone")
        alone.pip("install", "--no-deps", str(wheel))
        alone.imports_fast()
        for command in (["--version"], ["rules"], ["explain", "MG101"]):
            alone.python("-m", "memguard", *command)
        say("alone, without dependencies: sound")
        plain = Environment(folder / "plain")
        try_extra(plain, wheel, "")
        for extra in given.extras.split(",") if given.extras else extras_of(wheel):
            with tempfile.TemporaryDirectory(prefix="extra-", dir=folder) as place:
                try_extra(Environment(Path(place), like=plain), wheel, extra)
        twine = Environment(folder / "twine")
        twine.pip("install", "twine")
        say(twine.python("-m", "twine", "check", "--strict", *map(str, (folder / "dist").iterdir())).strip())
    return 0


def try_extra(environment: Environment, wheel: Path, extra: str) -> None:
    """The wheel with one extra, in an environment that has nothing else."""
    began = time.monotonic()
    constraints = ["-c", str(ROOT / "constraints.txt")] if sys.version_info >= (3, 11) else []
    environment.pip("install", *constraints, f"{wheel}[{extra}]" if extra else str(wheel))
    environment.pip("check")
    seconds = environment.imports_fast()
    environment.python("-W", "ignore", "-c", TRAINING, str(environment.folder / "runs"))
    report = environment.python("-m", "memguard", "report", str(environment.folder / "runs"))
    assert "MG101" in report, report
    environment.python("-m", "memguard", "doctor")
    if extra in EXTRAS:
        environment.python("-W", "ignore", "-c", EXTRAS[extra])
    took = time.monotonic() - began
    name = f"[{extra}]" if extra else "without an extra"
    say(f"{name}: installs, pip check is silent, import {1000 * seconds:.1f} ms, guards a training ({took:.0f} s)")


class Environment:
    """A virtual environment of its own: a fresh one, or another's copy, which shares its files until they change."""

    def __init__(self, folder: Path, *, like: Environment | None = None) -> None:
        self.folder = folder
        if like is None:
            run(sys.executable, "-m", "venv", str(folder / "venv"))
        else:
            shutil.copytree(like.folder / "venv", folder / "venv", symlinks=True, copy_function=os.link)
        self._python = str(folder / "venv" / "bin" / "python")

    def pip(self, *words: str) -> None:
        """Runs its pip; what is imported is compiled then, and torch has a thousand files that are not."""
        compiles = ["--no-compile"] if words[0] == "install" else []
        run(self._python, "-m", "pip", "-q", "--disable-pip-version-check", *words, *compiles, cwd=self.folder)

    def python(self, *words: str) -> str:
        """What its Python prints."""
        return run(self._python, *words, cwd=self.folder)

    def imports_fast(self) -> float:
        """Seconds of processor time of ``import memguard``."""
        seconds = min(float(self.python("-c", IMPORT)) for _ in range(5))
        assert seconds < MOST_SECONDS, f"import memguard takes {seconds:.3f} s"
        return seconds


def extras_of(wheel: Path) -> Sequence[str]:
    """The extras that the wheel has, but for development's own."""
    with zipfile.ZipFile(wheel) as package:
        (name,) = (name for name in package.namelist() if name.endswith(".dist-info/METADATA"))
        data = Parser().parsestr(package.read(name).decode())
    return [extra for extra in data.get_all("Provides-Extra") or [] if not extra.startswith("dev")]


def run(*words: str, cwd: Path = ROOT) -> str:
    """A command's output; its own words where it fails."""
    done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=cwd)
    if done.returncode:
        raise SystemExit(f"{' '.join(words)} failed:\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
    return done.stdout


def say(text: str) -> None:
    """A line as it comes."""
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main())
