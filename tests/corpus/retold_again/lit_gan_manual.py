"""A GAN in Lightning with manual optimization, toggled optimizers and image sampling under inference_mode."""

import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class GAN(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.automatic_optimization = False
        self.g = nn.Sequential(nn.Linear(16, 128), nn.ReLU(), nn.Linear(128, 64))
        self.d = nn.Sequential(nn.Linear(64, 128), nn.LeakyReLU(0.2), nn.Linear(128, 1))
        self.z = torch.randn(8, 16)

    def training_step(self, batch, i):
        (x,) = batch
        og, od = self.optimizers()
        fake = self.g(torch.randn(len(x), 16))
        self.toggle_optimizer(og)
        gl = -self.d(fake).mean()
        og.zero_grad()
        self.manual_backward(gl)
        og.step()
        self.untoggle_optimizer(og)
        self.toggle_optimizer(od)
        dl = (1 - self.d(x)).relu().mean() + (1 + self.d(fake.detach())).relu().mean()
        od.zero_grad()
        self.manual_backward(dl)
        od.step()
        self.untoggle_optimizer(od)
        self.log_dict({"g": gl, "d": dl})

    @torch.inference_mode()
    def on_train_epoch_end(self):
        self.g(self.z).mean().item()

    def configure_optimizers(self):
        return torch.optim.Adam(self.g.parameters(), 1e-3), torch.optim.Adam(self.d.parameters(), 1e-3)


L.Trainer(
    max_epochs=3,
    accelerator="cpu",
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
).fit(GAN(), DataLoader(TensorDataset(torch.randn(640, 64)), 32))
