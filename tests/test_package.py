"""The package as it is published."""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import zipfile
from email.message import Message
from email.parser import Parser
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel and the source distribution."""
    pytest.importorskip("hatchling")
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-W", "ignore", "-m", "hatchling", "build", "-d", str(folder)]
    subprocess.run(command, check=True, cwd=ROOT, capture_output=True)
    return folder


def metadata(built: Path) -> Message:
    """What PyPI shows of the wheel."""
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as package:
        assert "memguard/py.typed" in package.namelist()
        (name,) = (name for name in package.namelist() if name.endswith(".dist-info/METADATA"))
        return Parser().parsestr(package.read(name).decode())


def test_the_wheel_needs_torch_and_little_else(built: Path) -> None:
    """TensorBoard, NVML's bindings and frameworks are extras; `all` has every one of them."""
    data = metadata(built)
    needs = data.get_all("Requires-Dist") or []
    plain = {need.split(">")[0] for need in needs if "extra ==" not in need}
    assert plain == {"torch", "numpy", "psutil", "jinja2", "tomli"}  # tomli on Python 3.10 alone
    assert set(data.get_all("Provides-Extra") or []) == {
        "all",
        "completion",
        "azure",
        "dev",
        "gcs",
        "huggingface",
        "lightning",
        "mcp",
        "nvidia",
        "otel",
        "ray",
        "s3",
        "tensorboard",
    }


def test_the_classifiers_name_what_is_tested(built: Path) -> None:
    """Systems and versions of Python that docs/compatibility.md has as tried, and no others."""
    data = metadata(built)
    named = [line.rpartition(" :: ") for line in data.get_all("Classifier") or []]
    rows = re.findall(r"^\| ([^|]+) \| ([^|]+) \|$", (ROOT / "docs" / "compatibility.md").read_text(), re.MULTILINE)
    tried = {one for names, how in rows if not how.startswith("not ") for one in names.split(", ")}
    systems = {last for first, _, last in named if first.startswith("Operating System")}
    pythons = {last for first, _, last in named if first == "Programming Language :: Python" and "." in last}
    assert systems == {"Linux"} and systems <= tried
    assert pythons == {one for one in tried if re.fullmatch(r"3\.\d+", one)}


def test_the_long_description_leads_somewhere_from_anywhere(built: Path) -> None:
    """PyPI shows it without the repository: every link and picture is absolute."""
    data = metadata(built)
    assert data["Description-Content-Type"] == "text/markdown"
    text = re.sub(r"```.*?```", "", str(data.get_payload()), flags=re.DOTALL)
    targets = re.findall(r"\]\(([^)]+)\)", text) + re.findall(r"(?:src|srcset|href)=\"([^\"]+)\"", text)
    assert len(targets) > 8 and [target for target in targets if not re.match(r"https://|#", target)] == []
    assert any("raw.githubusercontent.com" in target and target.endswith((".png", ".svg")) for target in targets)
    urls = [line.partition(", ")[0] for line in data.get_all("Project-URL") or []]
    assert urls == ["Homepage", "Documentation", "Changelog", "Issues", "Source"]


def test_the_source_distribution_leaves_the_corpus_out(built: Path) -> None:
    """It has the tests, which a packager runs, with all that they import, and without the two thousand programs."""
    (archive,) = built.glob("*.tar.gz")
    with tarfile.open(archive) as package:
        files = {name.partition("/")[2]: package.extractfile(name) for name in package.getnames()}
        code = {name: file.read().decode() for name, file in files.items() if file and name.endswith(".py")}
    assert {"SECURITY.md", "CITATION.cff", "memory-baseline.json", "tools/check_release.py"} <= files.keys()
    assert not [name for name in files if re.match(r"tests/corpus/\w+/", name)]
    wanted = {
        (name, f"{module.replace('.', '/')}")
        for name, text in code.items()
        for module in re.findall(r"^\s*(?:from|import) (tests(?:\.\w+)+)", text, re.MULTILINE)
    }
    assert len(wanted) > 100
    assert [each for each in wanted if not {f"{each[1]}.py", f"{each[1]}/__init__.py"} & code.keys()] == []
