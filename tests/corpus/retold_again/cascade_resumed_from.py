"""Text-to-image cascade trainer: first session writes a checkpoint, second session resumes from it."""

import os
import tempfile

import torch
from torch import nn
import torch.nn.functional as F


class Unet(nn.Module):
    def __init__(self, dim=1024, text_dim=256, image=3 * 16 * 16):
        super().__init__()
        self.text = nn.Linear(text_dim, dim)
        self.inp, self.mid, self.mid2, self.out = (
            nn.Linear(image, dim),
            nn.Linear(dim, dim),
            nn.Linear(dim, dim),
            nn.Linear(dim, image),
        )

    def forward(self, x, noise_level, text):
        h = F.silu(self.inp(x.flatten(1)) + self.text(text) + noise_level[:, None])
        h = h + F.silu(self.mid2(F.silu(self.mid(h))))
        return self.out(h).view_as(x)


class ImagenTrainer:
    def __init__(self, unet, lr=1e-4, ema_beta=0.99):
        self.unet, self.ema_beta = unet, ema_beta
        self.opt = torch.optim.Adam(unet.parameters(), lr=lr)
        self.steps = 0

    def save(self, path, ema):
        torch.save(
            {"unet": self.unet.state_dict(), "ema": ema, "opt": self.opt.state_dict(), "steps": self.steps}, path
        )

    def load(self, path):
        loaded_obj = torch.load(path)  # !MG312 ImagenTrainer.resumed_from
        self.unet.load_state_dict(loaded_obj["unet"])
        self.opt.load_state_dict(loaded_obj["opt"])
        self.steps = loaded_obj["steps"]
        self.resumed_from = loaded_obj
        return self

    def __call__(self, images, text):
        lvl = torch.rand(len(images))
        noise = torch.randn_like(images)
        s = lvl[:, None, None, None]
        pred = self.unet((1 - s) * images + s * noise, lvl, text)
        loss = F.mse_loss(pred, noise)
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        self.steps += 1
        return loss.item()


def session(folder, n_steps, resume):
    ckpt = os.path.join(folder, "checkpoint.pt")
    trainer = ImagenTrainer(Unet())
    if resume:
        trainer.load(ckpt)
        print("resumed at", trainer.resumed_from["steps"])
    g = torch.Generator().manual_seed(131 + resume)
    for i in range(n_steps):
        loss = trainer(torch.rand(16, 3, 16, 16, generator=g), torch.randn(16, 256, generator=g))
        if i % 10 == 0:
            print("step", trainer.steps, "loss", round(loss, 4))
    if not resume:
        trainer.save(ckpt, {k: v.clone() for k, v in trainer.unet.state_dict().items()})


if __name__ == "__main__":
    torch.manual_seed(131)
    with tempfile.TemporaryDirectory() as d:
        session(d, 30, resume=False)
        session(d, 34, resume=True)
