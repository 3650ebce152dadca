"""Lightning with weight averaging, gradient accumulation and clipping, and a callback that keeps numbers."""

import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import Callback, StochasticWeightAveraging
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Autoencoder(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(24, 12), nn.ReLU(), nn.Linear(12, 3))
        self.decoder = nn.Sequential(nn.Linear(3, 12), nn.ReLU(), nn.Linear(12, 24))

    def training_step(self, batch, batch_idx):
        (x,) = batch
        loss = nn.functional.mse_loss(self.decoder(self.encoder(x)), x)
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, batch_idx):
        (x,) = batch
        self.log("val_loss", nn.functional.mse_loss(self.decoder(self.encoder(x)), x))

    def predict_step(self, batch, batch_idx):
        return self.encoder(batch[0])

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)


class History(Callback):
    def __init__(self):
        self.losses = []

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        self.losses.append(outputs["loss"])


data = DataLoader(TensorDataset(torch.randn(160, 24)), batch_size=8)
trainer = pl.Trainer(
    max_epochs=3,
    accelerator="cpu",
    accumulate_grad_batches=4,
    gradient_clip_val=1.0,
    callbacks=[History(), StochasticWeightAveraging(swa_lrs=1e-2, swa_epoch_start=1)],
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
)
model = Autoencoder()
trainer.fit(model, data, data)
codes = torch.cat(trainer.predict(model, data))
