# device: virtual:256MiB
"""Lightning with torchmetrics, outputs kept for one short epoch and cleared, sampling under no_grad."""

import lightning as L
import torch
import torchmetrics
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Lit(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(32, 256), nn.ReLU(), nn.Linear(256, 4))
        self.acc = torchmetrics.classification.MulticlassAccuracy(4)
        self.outs = []

    def training_step(self, b, i):
        loss = nn.functional.cross_entropy(self.net(b[0]), b[1])
        self.log("loss", loss, on_epoch=True)
        return {"loss": loss, "n": len(b[0])}

    def validation_step(self, b, i):
        out = self.net(b[0])
        self.acc.update(out, b[1])
        self.outs.append(out)

    def on_validation_epoch_end(self):
        self.log("acc", self.acc.compute())
        self.acc.reset()
        torch.cat(self.outs).argmax(1).bincount()
        self.outs.clear()

    @torch.no_grad()
    def on_train_epoch_end(self):
        self.net(torch.randn(64, 32))

    def configure_optimizers(self):
        opt = torch.optim.AdamW(self.parameters(), 1e-3)
        return [opt], [torch.optim.lr_scheduler.StepLR(opt, 1)]


ds = TensorDataset(torch.randn(640, 32), torch.randint(0, 4, (640,)))
t = L.Trainer(
    max_epochs=4,
    accelerator="cpu",
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
    accumulate_grad_batches=2,
    gradient_clip_val=1.0,
)
t.fit(Lit(), DataLoader(ds, 32, shuffle=True), DataLoader(ds, 64))
