import contextlib
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

import memguard
from tests.integrations.programs import PROGRAMS, Guarding, Results


@contextlib.contextmanager
def no_guard(*args: object) -> Iterator[None]:
    yield


def run(program: Callable[[Guarding], Results], guarding: Guarding) -> tuple[Results, object]:
    torch.manual_seed(0)
    random.seed(0)
    results = program(guarding)
    return results, (torch.get_rng_state().tolist(), random.random())


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
@pytest.mark.parametrize("device", ["cpu", "virtual:1GiB"])
def test_every_number_is_the_same_bit_for_bit(
    program: Callable[[Guarding], Results], device: str, tmp_path: Path
) -> None:
    """Losses, gradients, outputs and the random state equal those of the run without memguard."""
    if device != "cpu":
        pytest.importorskip("memguard.backends.virtual")
    expected, random_state = run(program, no_guard)
    results, random_state_guarded = run(
        program, lambda *args: memguard.watch(*args, logdir=tmp_path, quiet=True, device=device)
    )
    assert len(results) == len(expected) > 0
    assert all(torch.equal(result, truth) for result, truth in zip(results, expected, strict=True))
    assert random_state_guarded == random_state
