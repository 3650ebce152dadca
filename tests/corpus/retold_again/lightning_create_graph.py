"""Lightning with manual optimisation: gradients of gradients by create_graph in manual_backward."""

import lightning.pytorch as pl
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Smooth(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.automatic_optimization = False
        self.f = nn.Sequential(nn.Linear(6, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))

    def training_step(self, batch, batch_idx):
        opt = self.optimizers()
        x, y = batch
        loss = (self.f(x) - y).pow(2).mean()
        opt.zero_grad()
        self.manual_backward(loss, create_graph=True)  # !MG104 -
        norm = sum(p.grad.detach().pow(2).sum() for p in self.f.parameters())
        self.log("grad_norm", norm.sqrt())
        opt.step()

    def configure_optimizers(self):
        return torch.optim.SGD(self.f.parameters(), lr=0.01)


x = torch.randn(480, 6)
pl.Trainer(
    max_epochs=1,
    accelerator="cpu",
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
).fit(Smooth(), DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=16))
