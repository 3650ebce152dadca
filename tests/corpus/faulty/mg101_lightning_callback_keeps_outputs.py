import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import Callback
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Regressor(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 1)
        self.last = None

    def training_step(self, batch, batch_idx):
        x, y = batch
        prediction = self.layer(x)
        self.last = nn.functional.mse_loss(prediction, y)
        return self.last

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.01)


class LossCurve(Callback):
    def __init__(self):
        self.curve = []

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        self.curve.append(pl_module.last)  # !MG101 LossCurve.curve


data = TensorDataset(torch.randn(160, 8), torch.randn(160, 1))
pl.Trainer(
    max_epochs=1,
    accelerator="cpu",
    callbacks=[LossCurve()],
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
).fit(Regressor(), DataLoader(data, batch_size=4))
