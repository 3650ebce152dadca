"""A stateful LSTM-like model held its whole history: output and hidden of each call are fed to the next without a
detach (https://github.com/pytorch/pytorch/issues/2198, https://github.com/pytorch/pytorch/issues/1887). Retold with a
Lightning module that has an external memory; it is detached where it is read, not where it is written."""

import torch
from torch import nn
import lightning.pytorch as pl
from torch.utils.data import DataLoader, TensorDataset


class MemoryNet(pl.LightningModule):
    def __init__(self, dim=32, slots=1024, width=256):
        super().__init__()
        self.embed = nn.Linear(dim, width)
        self.gate = nn.Linear(width, width)
        self.head = nn.Linear(2 * width, 4)
        self.register_buffer("start", torch.zeros(slots, width))
        self.memory = None

    def forward(self, x):
        memory = self.start if self.memory is None else self.memory
        h = torch.relu(self.embed(x))
        read = memory.detach().mean(0).expand(h.shape[0], -1)
        logits = self.head(torch.cat([h, read], 1))
        g = torch.sigmoid(self.gate(h))
        self.memory = memory * (1 - g) + g * h  # !MG102 MemoryNet.memory
        return logits

    def training_step(self, batch, batch_idx):
        x, y = batch
        return nn.functional.cross_entropy(self(x), y)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)


if __name__ == "__main__":
    pl.seed_everything(3)
    ds = TensorDataset(torch.randn(1024 * 12, 32), torch.randint(0, 4, (1024 * 12,)))
    trainer = pl.Trainer(
        max_epochs=4,
        accelerator="auto",
        devices=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(MemoryNet(), DataLoader(ds, batch_size=1024))
