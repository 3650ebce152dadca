import sys

import pytest

from memguard.cli import main
from memguard.commands import doctor


def test_the_doctor_tells_versions_devices_and_traps(capsys: pytest.CaptureFixture[str]) -> None:
    """It always ends well, and always offers the virtual GPU."""
    assert main(["doctor"]) == 0
    text = capsys.readouterr().out
    assert "torch 2" in text and "virtual:SIZE" in text and "RAM of this process" in text


@pytest.mark.parametrize(
    ("versions", "word"),
    [
        ({"tensorboard": "2.20.0", "setuptools": "84.2.1"}, "pkg_resources"),
        ({"torch-tb-profiler": "0.4.3"}, "unmaintained"),
    ],
)
def test_known_traps_are_named(versions: dict[str, str], word: str) -> None:
    """With the way out."""
    assert any(word in hint and "pip" in hint for hint in doctor._hints(versions))


def test_a_healthy_combination_has_no_trap(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new TensorBoard with a new setuptools is fine."""
    monkeypatch.delenv("PYTORCH_CUDA_ALLOC_CONF", raising=False)
    assert not any("pkg_resources" in hint for hint in doctor._hints({"tensorboard": "2.21.0", "setuptools": "84.2.1"}))


def test_an_allocator_without_statistics_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cudaMallocAsync backend leaves most numbers unknown."""
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "backend:cudaMallocAsync")
    assert any("cudaMallocAsync" in hint for hint in doctor._hints({}))


@pytest.mark.parametrize(("version", "told"), [((3, 13, 9), False), ((3, 14, 0), True)])
def test_a_python_that_nobody_tried_is_named(
    version: tuple[int, int, int], told: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first one is 3.14."""
    monkeypatch.setattr(sys, "version_info", version)
    assert any("newer than those" in hint for hint in doctor._hints({})) is told
