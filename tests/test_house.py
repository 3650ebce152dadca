"""The rules of the house that a machine can check."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
import subprocess
import sys
import textwrap
from collections import Counter
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest

import memguard

ROOT = Path(__file__).parents[1]
SOURCES = sorted((ROOT / "memguard").rglob("*.py"))
TORCH_ROOMS = (
    *("backends", "heap", "autograd", "evidence", "guards", "integrations", "forecast"),
    "torch_objects",
)
MOST_IN_A_FOLDER = 40


def loads(code: str, *forbidden: str) -> list[str]:
    """Which of some modules a fresh interpreter has loaded after running code."""
    check = f"{code}\nimport sys\nprint([name for name in {forbidden!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True, cwd=ROOT)
    return list(ast.literal_eval(done.stdout.strip().splitlines()[-1]))


def test_the_check_of_imports_can_fail() -> None:
    """The check itself sees a module that was loaded."""
    assert loads("import json", "json", "torch") == ["json"]


def test_importing_memguard_loads_nothing_heavy() -> None:
    """``import memguard`` costs no torch, no lightning, no tensorboard, no numpy."""
    heavy = (
        "torch",
        "lightning",
        "pytorch_lightning",
        "transformers",
        "accelerate",
        "tensorboard",
        "numpy",
        "rich",
        "jinja2",
        "psutil",
        "pynvml",
    )
    assert loads("import memguard", *heavy) == []


def test_readers_load_no_torch() -> None:
    """Reports, snapshots, the allocator and the command line work where torch is not installed."""
    code = (
        "import memguard.cli, memguard.recording.reader, memguard.recorder, memguard.report.runs, memguard.allocator\n"
        "import memguard.rules\n"
        "from memguard.commands import report\n"
    )
    assert loads(code, "torch", "lightning") == []


def test_the_layers_hold() -> None:
    """import-linter: upper layers import lower ones, never the other way round."""
    command = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run([command], capture_output=True, text=True, check=False, cwd=ROOT)
    if done.returncode == 127:
        pytest.fail("import-linter is not installed")
    assert done.returncode == 0, done.stdout[-3000:]


def test_torch_is_imported_only_in_its_rooms() -> None:
    """Backends, evidence, guards, integrations and forecast may, and what they share; the rest sees plain data."""
    strays = [
        str(path.relative_to(ROOT))
        for path in SOURCES
        if path.relative_to(ROOT).parts[1] not in TORCH_ROOMS
        and re.search(r"^\s*(import|from) (torch|lightning|pytorch_lightning)\b", path.read_text(), re.MULTILINE)
    ]
    assert strays == []


def test_every_module_says_why_it_exists() -> None:
    """A docstring on every file."""
    assert [str(path) for path in SOURCES if not ast.get_docstring(ast.parse(path.read_text()))] == []


def test_every_test_says_what_holds() -> None:
    """A test's docstring states behaviour in a sentence."""
    silent = [
        f"{path.relative_to(ROOT)}:{node.name}"
        for path in sorted((ROOT / "tests").rglob("test_*.py"))
        if "corpus" not in path.parts
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_") and not ast.get_docstring(node)
    ]
    assert silent == []


def test_no_file_is_without_a_subject() -> None:
    """No utils, common, core, manager, helpers."""
    assert [
        str(path) for path in SOURCES if re.fullmatch(r"(utils?|common|core|helpers?|misc|manager)", path.stem)
    ] == []


def test_a_newcomer_finds_a_thing_from_ls() -> None:
    """No folder has more modules than one screen shows."""
    assert max(Counter(path.parent for path in SOURCES).values()) <= MOST_IN_A_FOLDER


def test_no_file_names_a_machine() -> None:
    """Nothing committed names a path of somebody's machine."""
    listed = subprocess.run(["git", "ls-files"], capture_output=True, text=True, check=False, cwd=ROOT).stdout.split()
    pattern = re.compile(r"/root/|/work/(main|shared|\.)")
    named = [
        name
        for name in listed
        if name != "tests/test_house.py"
        and Path(name).suffix in (".py", ".md", ".toml", ".txt", ".c", ".js", ".css", ".sh", "")
        and (ROOT / name).is_file()
        and pattern.search((ROOT / name).read_text(errors="replace"))
    ]
    assert named == []


def test_every_test_that_a_target_names_is_there() -> None:
    """One that was renamed would end `make test-oldest` before its first test."""
    named = re.findall(r"\btests/[\w./]+", (ROOT / "Makefile").read_text())
    assert len(named) > 15
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_the_public_names_are_these() -> None:
    """Adding or losing a public name is a decision, made here."""
    assert sorted(memguard.__all__) == sorted(
        [
            "BatchRecord", "Finding", "Forecast", "Guard", "MemGuard", "MemGuardError", "Options", "Recording",
            "Severity", "Stage", "Summary", "__version__", "allow", "coordinates", "current", "find_batch_size",
            "forecast", "is_oom", "max_memory_allocated", "max_memory_reserved", "memory_allocated", "memory_reserved",
            "phase", "retry_on_oom", "unwrap", "watch", "wrap",
        ]
    )  # fmt: skip
    offered = [name for name in dir(memguard) if not name.startswith("__")]
    assert sorted([*offered, "__version__"]) == sorted(memguard.__all__)


@pytest.mark.parametrize("name", ["BatchRecord", "Finding", "Summary", "Forecast"])
def test_every_field_of_a_result_has_its_meaning(name: str) -> None:
    """In the place where editors and the API reference read it: a text below the field; those inside have it too."""
    for kind in parts_of(getattr(memguard, name), set()):
        (tree,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
        assert isinstance(tree, ast.ClassDef)
        fields = [number for number, node in enumerate(tree.body) if isinstance(node, ast.AnnAssign)]
        assert len(fields) == len(dataclasses.fields(kind))
        silent = [ast.unparse(tree.body[number]) for number in fields if not says_something(tree.body[number + 1 :])]
        assert silent == [], kind


def parts_of(kind: Any, seen: set[Any]) -> set[Any]:
    """A dataclass of ours, and those that its fields are made of."""
    if kind not in seen and dataclasses.is_dataclass(kind):
        seen.add(kind)
        for hint in get_type_hints(kind).values():
            for part in (hint, *get_args(hint)):
                parts_of(part, seen)
    return {each for each in seen if each.__module__.startswith("memguard.") and each.__name__ not in ("KeptFloor",)}


def says_something(after: list[ast.stmt]) -> bool:
    """Whether a text comes next."""
    return bool(after) and isinstance(after[0], ast.Expr) and isinstance(getattr(after[0].value, "value", None), str)


def test_every_public_name_is_there_and_documented() -> None:
    """Each lazy name resolves, and says in a sentence what it is."""
    for name in memguard.__all__:
        thing = getattr(memguard, name)
        assert name == "__version__" or (thing.__doc__ or "").strip()


def test_an_unknown_name_is_an_attribute_error() -> None:
    """As with any module."""
    with pytest.raises(AttributeError, match="wrapp"):
        _ = memguard.wrapp  # type: ignore[attr-defined]
