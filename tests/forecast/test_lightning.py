import lightning
import pytest
import torch
from torch import nn

from memguard.errors import MemGuardError
from memguard.forecast import forecast, forecast_of
from memguard.forecast.child import in_child
from memguard.forecast.lightning import lightning_made
from memguard.forecast.session import trace
from memguard.forecast.setting import Setting
from memguard.forecast.trace import Kind

WEIGHTS = 4 * (64 * 256 + 256 + 256 * 64 + 64)
SCORER = 4 * (64 + 1)


class Autoencoder(lightning.LightningModule):
    def __init__(self, *, manual=False, signature="batch_idx"):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 64))
        self.scorer = nn.Linear(64, 1)
        self.automatic_optimization = not manual
        if signature == "batch":
            self.training_step = self.only_batch

    def only_batch(self, batch):
        return {"loss": self.loss_of(batch)}

    def loss_of(self, batch):
        return nn.functional.mse_loss(self.net(batch[0]), batch[0])

    def training_step(self, batch, batch_idx):
        loss = self.loss_of(batch)
        self.log("loss", loss)
        if self.automatic_optimization:
            return loss
        for number, optimizer in enumerate(self.optimizers()):
            self.toggle_optimizer(optimizer)
            loss = self.scorer(self.net(batch[0])).mean() * (1 if number else -1)
            optimizer.zero_grad()
            self.manual_backward(loss)
            self.clip_gradients(optimizer, gradient_clip_val=0.5, gradient_clip_algorithm="norm")
            optimizer.step()
            self.untoggle_optimizer(optimizer)
        if (scheduler := self.lr_schedulers()) is not None:
            scheduler.step()
        return None

    def configure_optimizers(self):
        if self.automatic_optimization:
            optimizer = torch.optim.AdamW(self.net.parameters())
            return {"optimizer": optimizer, "lr_scheduler": torch.optim.lr_scheduler.StepLR(optimizer, 10)}
        return [torch.optim.Adam(self.net.parameters()), torch.optim.Adam(self.scorer.parameters())]

    def train_dataloader(self):
        data = torch.utils.data.TensorDataset(torch.randn(64, 64))
        return torch.utils.data.DataLoader(data, batch_size=32, num_workers=2)


class Sum(lightning.LightningModule):
    """Nearly all of its memory is the batch."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))

    def training_step(self, batch, batch_idx):
        return batch[0].sum() * self.weight.sum()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)


def owners(found):
    return {share.name: share.bytes for share in found.owners}


@pytest.mark.parametrize("signature", ["batch_idx", "batch"])
def test_a_module_is_forecast_from_its_own_dataloader(signature):
    """One batch of train_dataloader() (its workers are not started) and configure_optimizers() make the step."""
    found = forecast(model=Autoencoder(signature=signature), device="1GiB")
    assert found.verdict == "fits"
    assert owners(found)["inputs"] + owners(found).get("activations", 0) >= 32 * 64 * 4
    assert owners(found)["gradients"] == WEIGHTS
    assert owners(found)["optimizer states"] == 2 * WEIGHTS


def test_a_batch_is_on_the_gpu_once():
    """It comes from the CPU, as the module does, and takes the GPU's memory one time."""
    data = torch.zeros(4096, 64)
    found = forecast_of(lambda _: lightning_made(Sum(), batch=[data]), device="1GiB")
    assert data.nbytes <= found.allocated_peak_bytes < 1.1 * data.nbytes


def test_a_batch_gets_another_size():
    """The search for the largest batch needs no parameter named batch in a module."""

    def made():
        return lightning_made(Sum(), batch=[torch.zeros(32, 64)])

    found = in_child(lambda: trace(made, Setting(steps=1, batch=32, traced_batch=4096)))
    assert max(event.nbytes for event in found.events if event.kind == Kind.ALLOC) == 4096 * 64 * 4


def test_manual_optimization_steps_every_optimizer():
    """With two optimizers, both have their states at the end, and toggled parameters get no gradients."""
    found = forecast(model=Autoencoder(manual=True), device="1GiB")
    assert owners(found)["optimizer states"] == 2 * (WEIGHTS + SCORER)
    assert owners(found)["gradients"] == WEIGHTS + SCORER


@pytest.mark.parametrize(
    ("options", "smaller"),
    [({"precision": "bf16-true"}, True), ({"accumulate_grad_batches": 3, "gradient_clip_val": 1.0}, False)],
)
def test_options_of_the_trainer_are_heeded(options, smaller):
    """Half precision halves the weights; accumulation and clipping do not make the step smaller."""
    plain, changed = (
        forecast_of(lambda _, given=given: lightning_made(Autoencoder(), **given), device="1GiB")
        for given in ({}, options)
    )
    assert (owners(changed)["parameters"] == owners(plain)["parameters"] / 2) is smaller
    assert (changed.operators > plain.operators * 1.5) is ("accumulate_grad_batches" in options)


@pytest.mark.parametrize("precision", ["bf16-mixed", "16-mixed"])
def test_mixed_precision_casts_in_the_step(precision):
    """The weights stay in float32, and there are more operators: the casts (and the scaler's)."""
    plain, mixed = (
        forecast_of(lambda _, given=given: lightning_made(Autoencoder(), precision=given), device="1GiB")
        for given in ("32-true", precision)
    )
    assert owners(mixed)["parameters"] == owners(plain)["parameters"]
    assert mixed.operators > plain.operators


def test_an_unknown_precision_is_named():
    """The error names the precision and those that are known."""
    with pytest.raises(MemGuardError, match="no precision 'transformer-engine'; it knows 32-true"):
        forecast_of(lambda _: lightning_made(Autoencoder(), precision="transformer-engine"), device="1GiB")


def test_a_module_without_data_is_told():
    """Where there is no training dataloader the error says so."""

    class Empty(Autoencoder):
        def train_dataloader(self):
            return []

    with pytest.raises(MemGuardError, match=r"Empty.train_dataloader\(\) is empty"):
        forecast(model=Empty(), device="1GiB")
