"""The best model's state_dict was kept in GPU memory by deepcopy (and more than one of them); the fix was to keep it on disk
or on the CPU. Here a callback keeps the weights of every epoch to average the best of them at the end.
https://github.com/facebookresearch/pytext/pull/204
"""

import copy

import lightning.pytorch as pl
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Wide(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(256, 6144), nn.ReLU(), nn.Linear(6144, 768), nn.ReLU(), nn.Linear(768, 4))

    def training_step(self, batch, _):
        x, y = batch
        loss = nn.functional.cross_entropy(self.net(x), y)
        self.log("loss", loss, on_epoch=True, on_step=False)
        return loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.01)


class Soup(pl.Callback):
    def __init__(self, keep):
        self.keep, self.ranked = keep, []

    def on_train_epoch_end(self, trainer, pl_module):
        score = trainer.callback_metrics.get("loss", torch.tensor(0.0)).item()
        self.ranked.append((score, copy.deepcopy(pl_module.state_dict())))  # !MG308 Soup.ranked

    def on_train_end(self, trainer, pl_module):
        picked = [state for _, state in self.ranked[-self.keep :]]
        mean = {k: sum(s[k] for s in picked) / len(picked) for k in picked[0]}
        pl_module.load_state_dict(mean)


if __name__ == "__main__":
    ds = TensorDataset(torch.randn(64 * 8, 256), torch.randint(4, (64 * 8,)))
    pl.Trainer(
        max_epochs=10,
        accelerator="auto",
        devices=1,
        logger=False,
        enable_checkpointing=False,
        callbacks=[Soup(3)],
        enable_progress_bar=False,
        enable_model_summary=False,
    ).fit(Wide(), DataLoader(ds, batch_size=64))
