# U-Net-ish segmentation, trainer with callbacks (want to look at predictions at any time from the callback)
import torch
import torch.nn as nn
import torch.nn.functional as F


def conv(cin, cout):
    return nn.Sequential(nn.Conv2d(cin, cout, 3, padding=1), nn.ReLU(inplace=True))


class UNetMini(nn.Module):
    def __init__(self, classes=21):
        super().__init__()
        self.d1, self.d2 = conv(3, 12), conv(12, 24)
        self.up = conv(36, 12)
        self.head = nn.Conv2d(12, classes, 1)

    def forward(self, x):
        a = self.d1(x)
        b = self.d2(F.max_pool2d(a, 2))
        b = F.interpolate(b, scale_factor=2)
        return self.head(self.up(torch.cat([a, b], 1)))


class Callback:
    def on_step_end(self, trainer):
        pass


class PrintMiou(Callback):
    def __init__(self, every):
        self.every = every

    def on_step_end(self, trainer):
        if trainer.global_step % self.every:
            return
        pred = trainer.last_outputs["logits"].argmax(1)
        inter = (pred == trainer.last_outputs["mask"]).float().mean()
        print(f"step {trainer.global_step}: loss {trainer.last_outputs['loss']:.3f} pix-acc {inter:.3f}")


class Trainer:
    def __init__(self, model, opt, callbacks):
        self.model, self.opt, self.callbacks = model, opt, callbacks
        self.global_step = 0
        self.last_outputs = None

    def training_step(self, batch):
        img, mask = batch
        logits = self.model(img)
        loss = F.cross_entropy(logits, mask, ignore_index=255)
        return {"loss": loss, "logits": logits, "mask": mask}

    def fit(self, loader):
        for batch in loader:
            self.opt.zero_grad()
            outputs = self.training_step(batch)
            outputs["loss"].backward()
            self.opt.step()
            self.global_step += 1
            self.last_outputs = {k: v.detach() for k, v in outputs.items()}  # !MG303 Trainer.last_outputs
            del outputs
            for cb in self.callbacks:
                cb.on_step_end(self)


def shapes(n, bs=10, size=72):
    for _ in range(n):
        img = torch.randn(bs, 3, size, size)
        mask = torch.zeros(bs, size, size, dtype=torch.long)
        mask[:, 20:40, 20:60] = 5
        img[:, 0][mask == 5] += 2
        yield img, mask


if __name__ == "__main__":
    torch.manual_seed(0)
    net = UNetMini()
    Trainer(net, torch.optim.Adam(net.parameters(), 2e-3), [PrintMiou(10)]).fit(shapes(36))
