from __future__ import annotations

from pathlib import Path

import pytest

from memguard.errors import MemGuardError
from memguard.integrations import lightning_class


def test_a_lightning_that_is_missing_is_to_be_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where neither package is there, the message says how to get it."""
    monkeypatch.setattr(lightning_class, "_PACKAGES", ("no_lightning.pytorch", "no_pytorch_lightning"))
    with pytest.raises(MemGuardError, match="pip install 'torch-memguard\\[lightning\\]'"):
        lightning_class.memguard_class()


@pytest.mark.parametrize("fault", ["from math import nothing", "import no_such_metrics"])
def test_a_lightning_that_is_broken_is_not_called_missing(
    fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is installed and fails to import is told with its own error, which is the cause."""
    (tmp_path / "broken_lightning.py").write_text(fault + "\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(lightning_class, "_PACKAGES", ("no_lightning.pytorch", "broken_lightning"))
    with pytest.raises(MemGuardError, match=r"cannot be imported: .*(nothing|no_such_metrics)") as told:
        lightning_class.memguard_class()
    assert isinstance(told.value.__cause__, ImportError)
