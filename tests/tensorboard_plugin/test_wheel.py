from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def test_the_wheel_carries_the_page_its_licence_and_the_entry_point(tmp_path: Path) -> None:
    """Everything the tab serves is package data; TensorBoard finds it by the entry point."""
    pytest.importorskip("hatchling")
    command = [sys.executable, "-W", "ignore", "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, check=True, cwd=ROOT, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as package:
        names = package.namelist()
        (points,) = (name for name in names if name.endswith("entry_points.txt"))
        text = package.read(points).decode()
    static = {path.name for path in (ROOT / "memguard" / "tensorboard_plugin" / "static").glob("*.*")}
    folder = "memguard/tensorboard_plugin/static"
    assert {f"{folder}/{name}" for name in static} <= set(names)
    assert {f"{folder}/vendor/{name}" for name in ("uPlot.esm.min.js", "uPlot.min.css", "LICENSE")} <= set(names)
    assert any("licenses" in name and "vendor" in name for name in names)
    assert "[tensorboard_plugins]\nmemguard = memguard.tensorboard_plugin.loader:Loader" in text
