# device: virtual:256MiB
"""Manual optimization in Lightning: two losses, both with retain_graph=True, and the outputs kept on self."""

import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class TwoHeads(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.automatic_optimization = False
        self.trunk = nn.Sequential(nn.Linear(128, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU())
        self.cls, self.reg = nn.Linear(1024, 10), nn.Linear(1024, 1)

    def training_step(self, batch, batch_idx):
        x, y, t = batch
        opt = self.optimizers()
        h = self.trunk(x)
        self.last_loss = nn.functional.cross_entropy(self.cls(h), y)
        self.last_reg = nn.functional.mse_loss(self.reg(h), t)
        opt.zero_grad()
        self.manual_backward(self.last_loss, retain_graph=True)
        self.manual_backward(self.last_reg, retain_graph=True)  # !MG103 TwoHeads.last_loss
        opt.step()

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), 1e-4)


data = TensorDataset(torch.randn(8192, 128), torch.randint(0, 10, (8192,)), torch.randn(8192, 1))
trainer = L.Trainer(
    max_epochs=2,
    accelerator="cpu",
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
)
trainer.fit(TwoHeads(), DataLoader(data, batch_size=1024))
