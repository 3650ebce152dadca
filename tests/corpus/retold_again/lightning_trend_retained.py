"""A running trend inside a Lightning model that is not detached, and the retain_graph=True that hides it."""

import warnings
import torch
import torch.nn as nn
import torch.nn.functional as F
import lightning as L
from torch.utils.data import DataLoader, TensorDataset

warnings.filterwarnings("ignore")


class SessionModel(L.LightningModule):
    """clicks arrive in time order; a slow summary of the traffic goes into the score"""

    def __init__(self, n_feat=512, n_items=300, dim=64, decay=0.9):
        super().__init__()
        self.automatic_optimization = False
        self.decay = decay
        self.encoder = nn.Linear(n_feat, dim)
        self.mixer = nn.Sequential(nn.Linear(2 * dim, 128), nn.ReLU(), nn.Linear(128, dim))
        self.items = nn.Embedding(n_items, dim)
        self.trend = None

    def forward(self, clicks):
        h = self.encoder(clicks)
        if self.trend is None:
            self.trend = torch.zeros_like(h)
        self.trend = self.decay * self.trend + (1 - self.decay) * h  # !MG102 SessionModel.trend
        user = self.mixer(torch.cat([torch.tanh(h), self.trend], 1))
        return user @ self.items.weight.t()

    def training_step(self, batch, batch_idx):
        clicks, target = batch
        opt = self.optimizers()
        loss = F.cross_entropy(self(clicks), target)
        opt.zero_grad()
        self.manual_backward(loss, retain_graph=True)
        opt.step()
        self.log("loss", loss, on_epoch=True, on_step=False)

    def on_train_epoch_start(self):
        self.trend = None

    def on_train_epoch_end(self):
        print("epoch", self.current_epoch, "loss", round(self.trainer.callback_metrics["loss"].item(), 4))

    def configure_optimizers(self):
        return torch.optim.Adagrad(self.parameters(), lr=0.05)


if __name__ == "__main__":
    L.seed_everything(21)
    ds = TensorDataset(torch.rand(64 * 60, 512).gt(0.97).float(), torch.randint(0, 300, (64 * 60,)))
    trainer = L.Trainer(
        max_epochs=1,
        accelerator="cpu",
        devices=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(SessionModel(), DataLoader(ds, batch_size=64, shuffle=False))
