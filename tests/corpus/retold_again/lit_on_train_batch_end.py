# device: virtual:256MiB
"""on_train_batch_end puts the batch itself into a replay list for hard negatives, never emptied."""

import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class HardNegatives(L.Callback):
    def __init__(self):
        super().__init__()
        self.bank = []

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        self.bank.append((batch[0], outputs["loss"]))  # !MG301 HardNegatives.bank


class Metric(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.enc = nn.Sequential(nn.Flatten(), nn.Linear(3072, 64))

    def training_step(self, batch, _):
        z = self.enc(batch[0])
        return nn.functional.cross_entropy(z @ z.t(), batch[1] % len(z))

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), 1e-4)


data = DataLoader(TensorDataset(torch.randn(1280, 3, 32, 32), torch.arange(1280)), 16, shuffle=True)
L.Trainer(
    max_epochs=1,
    accelerator="cpu",
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
    callbacks=[HardNegatives()],
).fit(Metric(), data)
