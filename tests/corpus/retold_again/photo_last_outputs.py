"""GPU memory is twice what the model needs: the reference to the outputs of the previous iteration is overwritten
only after the next iteration has completed, so two sets of buffers are alive during the forward pass; `del` helps.
Told in Lightning, where the outputs are left on the module for an image logger that looks at them now and then.
https://discuss.pytorch.org/t/calling-loss-backward-reduce-memory-usage/2735
"""

import lightning.pytorch as pl
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Patches(Dataset):
    def __len__(self):
        return 120

    def __getitem__(self, i):
        hr = torch.rand(3, 256, 256, generator=torch.Generator().manual_seed(i))
        return F.avg_pool2d(hr, 4), hr


class ImageLogger(pl.Callback):
    def __init__(self, every=5):
        self.every = every
        self.logged = 0

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        if batch_idx % self.every == 0:
            grid = pl_module.last["sr"][0].cpu()
            self.logged += int(grid.dim() == 3)


class SuperResolution(pl.LightningModule):
    def __init__(self, ch=8):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, ch, 3, padding=1), nn.ReLU(), nn.Conv2d(ch, ch, 3, padding=1), nn.ReLU())
        self.to_rgb = nn.Sequential(nn.Conv2d(ch, 48, 3, padding=1), nn.PixelShuffle(4))
        self.last = None

    def forward(self, x):
        up = F.interpolate(x, scale_factor=4, mode="bilinear", align_corners=False)
        return self.to_rgb(self.stem(x)), up

    def training_step(self, batch, batch_idx):
        lr, hr = batch
        residual, up = self(lr)
        sr = residual + up
        loss = F.mse_loss(sr, hr)
        self.last = {  # !MG303 SuperResolution.last
            "bicubic": up,
            "sr": sr.detach(),
            "error": (sr.detach() - hr),
            "hr": hr,
        }
        return loss

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)


if __name__ == "__main__":
    pl.seed_everything(0)
    cb = ImageLogger()
    trainer = pl.Trainer(
        max_epochs=3,
        accelerator="auto",
        devices=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[cb],
    )
    trainer.fit(SuperResolution(), DataLoader(Patches(), batch_size=12))
    print("logged", cb.logged)
