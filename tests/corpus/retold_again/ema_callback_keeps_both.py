"""Lightning feature request for EMA: users share callbacks which copy the module's state dictionary at the start of
validation to put it back later; some run out of memory with it
(https://github.com/Lightning-AI/pytorch-lightning/issues/10914). The copy is kept after it was put back."""

from copy import deepcopy

import torch
import torch.nn as nn
import torch.nn.functional as F
import lightning.pytorch as pl
from torch.utils.data import DataLoader, IterableDataset


class Records(IterableDataset):
    def __init__(self, batches):
        self.batches = batches

    def __iter__(self):
        for _ in range(self.batches):
            yield torch.randn(24, 256), torch.randint(0, 50, (24,))


class EMACallback(pl.Callback):
    def __init__(self, decay=0.99):
        self.decay = decay
        self.ema_state_dict = None
        self.original_state_dict = None

    def on_fit_start(self, trainer, pl_module):
        self.ema_state_dict = deepcopy(pl_module.state_dict())

    @torch.no_grad()
    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        for name, value in pl_module.state_dict().items():
            self.ema_state_dict[name].mul_(self.decay).add_(value, alpha=1 - self.decay)

    def on_validation_start(self, trainer, pl_module):
        if self.ema_state_dict is None:
            return
        self.original_state_dict = deepcopy(pl_module.state_dict())  # !MG308 EMACallback.original_state_dict
        pl_module.load_state_dict(self.ema_state_dict)

    def on_validation_end(self, trainer, pl_module):
        if self.original_state_dict is not None:
            pl_module.load_state_dict(self.original_state_dict)


class LitTabular(pl.LightningModule):
    def __init__(self, width=2048):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(256, width),
            nn.ReLU(),
            nn.Linear(width, width),
            nn.ReLU(),
            nn.Linear(width, width),
            nn.ReLU(),
            nn.Linear(width, 50),
        )

    def training_step(self, batch, batch_idx):
        x, y = batch
        return F.cross_entropy(self.net(x), y)

    def validation_step(self, batch, batch_idx):
        x, y = batch
        self.log("val_loss", F.cross_entropy(self.net(x), y))

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.05)


if __name__ == "__main__":
    pl.seed_everything(0)
    trainer = pl.Trainer(
        max_epochs=4,
        accelerator="auto",
        devices=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[EMACallback()],
        num_sanity_val_steps=0,
    )
    trainer.fit(LitTabular(), DataLoader(Records(14), batch_size=None), DataLoader(Records(4), batch_size=None))
