from dataclasses import dataclass

import lightning
import pytest
import torch

import memguard
from memguard.evidence.owners import Owners
from memguard.forecast.result import Share
from memguard.integrations.forecasting import missed_text
from memguard.recording.reader import Recording, find_recordings
from tests.forecast.test_lightning import Autoencoder

pytestmark = pytest.mark.filterwarnings("ignore")

PAIRS = {
    "automatic": ({}, {}),
    "manual": ({"manual": True}, {}),
    "mixed": ({}, {"precision": "bf16-mixed", "accumulate_grad_batches": 2, "gradient_clip_val": 1.0}),
}


def fit(tmp_path, guard, module, **options):
    trainer = lightning.Trainer(
        accelerator="cpu",
        max_epochs=4,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[guard] if guard is not None else [],
        default_root_dir=tmp_path,
        **options,
    )
    trainer.fit(module, torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(64, 64)), batch_size=32))
    return module


@pytest.mark.parametrize("name", PAIRS)
def test_the_truth_is_put_beside_the_forecast(tmp_path, capsys, name):
    """Before the first batch the forecast is printed and recorded, after three steps what was measured."""
    module, options = PAIRS[name]
    guard = memguard.MemGuard(forecast=True, device="virtual:1GiB", logdir=tmp_path, quiet=True)
    fit(tmp_path, guard, Autoencoder(**module), **options)
    said = capsys.readouterr().err
    assert said.index("memguard: forecast from the first batch") < said.index("forecast and truth after 3")
    recording = Recording.open(find_recordings(tmp_path)[0])
    (told,), (measured,) = recording.of_kind("forecast"), recording.of_kind("forecast_measured")
    assert told["verdict"] == "fits"
    assert measured["allocated_peak_bytes"] > 0 and told["allocated_peak_bytes"] > 0


@dataclass
class Forecasted:
    """What of a forecast is compared."""

    allocated_peak_bytes: int
    owners: tuple[Share, ...]


@pytest.mark.parametrize(
    ("peak", "told"),
    [
        (1004, []),
        (1300, ["what differs most is optimizer states, 200 bytes too much: 200 bytes measured"]),
        (700, ["what differs most is activations, gradients and temporaries, 500 bytes too little"]),
    ],
)
def test_a_miss_is_put_down_to_the_owner_that_differs_most(peak, told):
    """Of those that stay between batches, or of what comes and goes; nothing is said within a per cent."""
    held = Owners(parameters_bytes=100, gradients_bytes=0, optimizer_bytes=200, buffers_bytes=0, other_bytes=None)
    found = Forecasted(peak, (Share(name="parameters", bytes=100), Share(name="optimizer states", bytes=400)))
    assert missed_text(found, 1000, held) == told


def test_training_is_the_same_with_a_forecast(tmp_path):
    """The weights after training are equal to the bit."""
    weights = []
    for number, forecast in enumerate((False, True)):
        torch.manual_seed(1)
        guard = memguard.MemGuard(forecast=forecast, device="virtual:1GiB", logdir=tmp_path / str(number), quiet=True)
        weights.append(fit(tmp_path, guard, Autoencoder()).net[0].weight.detach().clone())
    assert torch.equal(*weights)


@torch.library.custom_op("memguard_tests::opaque", mutates_args=())
def opaque(x: torch.Tensor) -> torch.Tensor:
    return x.clone()


def test_a_step_that_cannot_be_forecast_is_trained(tmp_path, capsys):
    """An operator without a fake kernel is named in one line, and the training goes on."""

    class Stubborn(Autoencoder):
        def loss_of(self, batch):
            self.steps = getattr(self, "steps", 0) + 1
            return self.net(opaque(batch[0])).square().mean()

    guard = memguard.MemGuard(forecast=True, device="virtual:1GiB", logdir=tmp_path, quiet=True)
    module = fit(tmp_path, guard, Stubborn())
    assert "no forecast of this training step" in capsys.readouterr().err
    assert module.steps == 8


def test_a_plain_loop_is_told_what_to_call():
    """A plain loop does not tell its step before it runs: the error says what to call instead."""
    with pytest.raises(TypeError, match=r"call memguard.forecast\(step, model=model"), memguard.watch(forecast=True):
        pass
