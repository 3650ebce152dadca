"""The completion script, asked by a real bash."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from memguard.cli import main

pytest.importorskip("shtab")


def completed(script: str, *words: str, folder: Path) -> set[str]:
    """What bash offers for the last of these words."""
    listed = " ".join(f"'{word}'" for word in words)
    ask = (
        f"COMP_WORDS=({listed}); COMP_CWORD={len(words) - 1}; _shtab_memguard memguard '{words[-1]}' '{words[-2]}'; "
        'printf "%s\\n" "${COMPREPLY[@]}"'
    )
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("no bash")
    done = subprocess.run([bash, "-c", f"{script}\n{ask}"], capture_output=True, text=True, check=False, cwd=folder)
    return set(done.stdout.split())


def test_bash_completes_commands_options_values_rules_and_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each where it belongs."""
    assert main(["completion", "bash"]) == 0
    script = capsys.readouterr().out
    (tmp_path / "train.py").write_text("")
    assert {"report", "rules"} <= completed(script, "memguard", "r", folder=tmp_path)
    assert completed(script, "memguard", "run", "--custom", folder=tmp_path) == {"--custom-scalars"}
    assert completed(script, "memguard", "run", "--validation", "", folder=tmp_path) >= {"guard", "warn", "off"}
    assert "MG101" in completed(script, "memguard", "explain", "MG10", folder=tmp_path)
    assert completed(script, "memguard", "run", "tr", folder=tmp_path) == {"train.py"}


def test_without_shtab_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line, and exit code 2."""
    monkeypatch.setitem(sys.modules, "shtab", None)
    assert main(["completion", "zsh"]) == 2
    assert "torch-memguard[completion]" in capsys.readouterr().err


def test_a_shell_that_is_not_known_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """With those that are."""
    with pytest.raises(SystemExit):
        main(["completion", "fish"])
    assert "bash" in capsys.readouterr().err
