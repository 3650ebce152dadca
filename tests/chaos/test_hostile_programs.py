"""Programs that do to a guarded model what programs do: each behaves as it would without memguard."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import memguard
from tests.chaos.left_behind import on_objects
from tests.chaos.programs import PROGRAMS
from tests.chaos.programs.hostile_objects import hostile_variables_beside_a_leak
from tests.chaos.programs.sizes import a_million_parameters
from tests.chaos.training import Guarding, Numbers, assert_same, first_lines, random_state, unguarded, watched


def looked_after(guarding: Guarding, *, finds: set[str] | None = None) -> Guarding:
    """The same, and when it ends nothing of ours stands on the models and the optimizer any more.

    Args:
        guarding: What guards.
        finds: Takes the codes of what was found.
    """

    @contextlib.contextmanager
    def looks(models: Any, *others: Any) -> Iterator[Any]:
        with guarding(models, *others) as guard:
            yield guard
        if finds is not None:
            finds.update(finding.code for finding in guard.findings)
        assert on_objects(*(models if isinstance(models, list) else [models]), *others) == []

    return looks


def failures(records: list[logging.LogRecord]) -> list[str]:
    """What memguard logged, but for what a program does itself."""
    return [line for line in first_lines(records) if "was trained on another thread" not in line]


@pytest.mark.parametrize("run", PROGRAMS, ids=lambda run: run.__name__)
@pytest.mark.parametrize("device", ["cpu", "virtual:1GiB"])
def test_a_program_behaves_as_without_memguard(
    run: Callable[[Guarding], Numbers], device: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Numbers equal, nothing raised, nothing failed inside."""
    truth = [*run(unguarded), *random_state()]
    numbers = [*run(looked_after(watched(tmp_path, device=device))), *random_state()]
    assert_same(numbers, truth)
    assert failures(caplog.records) == []


@pytest.mark.parametrize("run", PROGRAMS, ids=lambda run: run.__name__)
def test_a_program_behaves_under_two_guards(
    run: Callable[[Guarding], Numbers], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A guard inside a guard on the same model; they close in the order in which they opened."""

    class Two:
        def __init__(self, *args: Any) -> None:
            self.guards = [
                memguard.watch(*args, logdir=tmp_path / name, quiet=True, device="cpu") for name in ("a", "b")
            ]

        def __enter__(self) -> Any:
            return [guard.__enter__() for guard in self.guards][1]

        def __exit__(self, *error: Any) -> None:
            for guard in self.guards:
                guard.__exit__(*error)

    assert_same(run(looked_after(Two)), run(unguarded))
    assert failures(caplog.records) == []


def test_a_leak_among_hostile_variables_is_found_all_the_same(tmp_path: Path) -> None:
    """The walk passes over what raises, and goes on."""
    finds: set[str] = set()
    hostile_variables_beside_a_leak(looked_after(watched(tmp_path, device="cpu"), finds=finds))
    assert "MG101" in finds


@pytest.mark.slow
@pytest.mark.parametrize("device", ["cpu", "virtual:1GiB"])
def test_a_model_of_a_million_parameters(device: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The same numbers; what is left out is told in a line for each part."""
    truth = a_million_parameters(unguarded)
    assert_same(a_million_parameters(looked_after(watched(tmp_path, device=device))), truth)
    lines = first_lines(caplog.records)
    assert len(lines) == len(set(lines)), lines
