import gc
import importlib.util
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import memguard
from memguard.records.stats import Stage
from tests.hooks import hooks_on
from tests.integrations.framework_loops import accelerate_loop, fabric_loop, unguarded

pytestmark = pytest.mark.filterwarnings("ignore")

Loop = Callable[..., tuple[list[float], list[Any]]]
HERE = Path(__file__).with_name("framework_loops.py")


@pytest.fixture(params=[fabric_loop, accelerate_loop], ids=["fabric", "accelerate"])
def loop(request: pytest.FixtureRequest) -> Loop:
    if request.param is accelerate_loop and importlib.util.find_spec("accelerate") is None:
        pytest.skip("accelerate is not installed")
    return request.param


class Guarding:
    """Guards what a loop gives it, and keeps the handle."""

    def __init__(self, folder: Path, device: str = "virtual:1GiB", **options: Any) -> None:
        self.options = {"logdir": folder, "device": device, "quiet": True, **options}

    def __call__(self, *given: Any) -> memguard.Guard:
        gc.collect()  # what the loop before left in circles would be freed between two batches, at any time
        self.guard = memguard.watch(*given, **self.options)
        return self.guard

    @property
    def stages(self) -> dict[Stage, int]:
        return dict(Counter(record.stage for record in self.guard.records))


@pytest.mark.parametrize("device", ["cpu", "virtual:1GiB"])
@pytest.mark.parametrize("inner", [False, True], ids=["wrapped", "inner"])
def test_losses_are_the_same_bit_for_bit_over_40_steps(loop: Loop, device: str, inner: bool, tmp_path: Path) -> None:
    """Dropout and clipping; whether the model and optimizer of the framework are guarded, or those it was given."""
    expected = loop(unguarded, epochs=4)
    guarding = Guarding(tmp_path, device)
    assert loop(guarding, epochs=4, inner=inner) == expected
    assert len(expected[0]) == 52
    assert guarding.stages == {Stage.TRAIN: 40, Stage.VALIDATION: 12}
    assert guarding.guard.findings == []
    assert not any("failed" in note for note in guarding.guard.result().notes)


def test_micro_batches_are_records_and_steps_are_counted_once(loop: Loop, tmp_path: Path) -> None:
    """Accumulation over five; a wrapped optimizer that only pretends to step counts nothing."""
    expected, _ = loop(unguarded, accumulate=5)
    guarding = Guarding(tmp_path)
    assert loop(guarding, accumulate=5)[0] == expected
    assert guarding.stages == {Stage.TRAIN: 20, Stage.VALIDATION: 6}
    assert guarding.guard.records[-1].optimizer_steps == 4


def test_mixed_precision_is_the_same_bit_for_bit(loop: Loop, tmp_path: Path) -> None:
    """bfloat16 through the framework's own forward wrapper."""
    settings = {"precision": "bf16-mixed"} if loop is fabric_loop else {"mixed_precision": "bf16"}
    if loop is accelerate_loop:
        from accelerate.state import AcceleratorState

        AcceleratorState._reset_state(True)
    try:
        expected, _ = loop(unguarded, **settings)
        guarding = Guarding(tmp_path)
        assert loop(guarding, **settings)[0] == expected
        assert guarding.stages[Stage.TRAIN] == 20
    finally:
        if loop is accelerate_loop:
            AcceleratorState._reset_state(True)


def test_a_kept_loss_is_named_by_its_line(loop: Loop, tmp_path: Path) -> None:
    """The user's line, not one of the framework's backward."""
    guarding = Guarding(tmp_path)
    loop(guarding, kept=[])
    (finding,) = guarding.guard.findings
    assert finding.code == "MG101" and finding.file == str(HERE)
    assert HERE.read_text().splitlines()[finding.line - 1].strip() == "kept.append(loss)"


def test_a_validation_that_forgot_no_grad_is_guarded(loop: Loop, tmp_path: Path) -> None:
    """The framework's wrapper is the root that is called; no loss changes."""
    expected, _ = loop(unguarded, forgets=True)
    guarding = Guarding(tmp_path)
    assert loop(guarding, forgets=True)[0] == expected
    codes = {finding.code: finding for finding in guarding.guard.findings}
    assert set(codes) == {"MG201"} and codes["MG201"].file == str(HERE)


def test_wrap_before_the_framework_and_unwrap_after_it(loop: Loop, tmp_path: Path) -> None:
    """The model that `wrap` gave back is set up or prepared like any other."""
    wrapped: list[torch.nn.Module] = []

    class Wrapping(Guarding):
        def __call__(self, model: torch.nn.Module, optimizer: Any) -> Any:
            wrapped.append(memguard.wrap(model, **self.options))
            return unguarded()

    expected, _ = loop(unguarded)
    assert loop(Wrapping(tmp_path), inner=True)[0] == expected
    memguard.unwrap(wrapped[0])
    assert not hooks_on(wrapped[0])


def test_optimizer_states_are_counted_once(loop: Loop, tmp_path: Path) -> None:
    """The framework's optimizer and the one inside it share them."""
    from memguard.evidence.owners import count_owners

    counted = []
    for inner in (False, True):
        guarding = Guarding(tmp_path)

        def counts(*given: Any, guarding: Guarding = guarding) -> memguard.Guard:
            guard = guarding(*given)
            guard.session.on_batch = None

            def count(records: Any) -> None:
                watch = guard.session.watch
                owners = count_owners(watch.models, watch.optimizers, allocated_bytes=10**9).to_json()
                counted.extend(owners for _ in records)

            guard.session.recorder.listeners.append(count)
            return guard

        loop(counts, epochs=1, inner=inner)
        counted[:] = [*counted[: -len(guarding.guard.records)], counted[-1]]
    assert counted[0] == counted[1] and counted[0]["optimizer_bytes"] > 0
