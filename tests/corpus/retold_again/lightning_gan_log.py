"""A GAN with manual optimisation that logs with self.log_dict."""

import lightning as L
import torch
from torch import nn
from torch.nn.functional import softplus
from torch.utils.data import DataLoader, TensorDataset


class GAN(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.automatic_optimization = False
        self.g = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 10))
        self.d = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 1))

    def training_step(self, batch, batch_idx):
        og, od = self.optimizers()
        (x,) = batch
        fake = self.g(torch.randn(len(x), 8))
        ld = softplus(-self.d(x)).mean() + softplus(self.d(fake.detach())).mean()
        od.zero_grad()
        self.manual_backward(ld)
        od.step()
        lg = softplus(-self.d(fake)).mean()
        og.zero_grad()
        self.manual_backward(lg)
        og.step()
        self.log_dict({"g": lg, "d": ld})

    def validation_step(self, batch, batch_idx):
        self.log("val_d", softplus(-self.d(batch[0])).mean())

    def configure_optimizers(self):
        return torch.optim.Adam(self.g.parameters()), torch.optim.Adam(self.d.parameters())


data = DataLoader(TensorDataset(torch.randn(160, 10)), batch_size=16)
L.Trainer(
    max_epochs=2,
    accelerator="cpu",
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
).fit(GAN(), data, data)
