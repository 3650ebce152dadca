"""Lightning issue 18166: with the "build your own trainer" example for Fabric memory doubles during training.  The
example keeps the return value of the last step in `self._current_train_return`; in this lab's copy for land-cover
segmentation the detaching and shrinking were dropped, so logits and probabilities of the previous batch are still
there during the whole next step.
https://github.com/Lightning-AI/pytorch-lightning/issues/18166
"""

import torch
import torch.nn as nn
import torch.nn.functional as F
import lightning as L
from lightning.fabric import Fabric
from torch.utils.data import DataLoader, TensorDataset


class LandCover(L.LightningModule):
    def __init__(self, bands=4, n_classes=24, width=6):
        super().__init__()
        self.stem = nn.Conv2d(bands, width, 3, padding=1)
        self.classify = nn.Conv2d(width, n_classes, 1)

    def forward(self, x):
        return self.classify(F.relu(self.stem(x)))

    def training_step(self, batch, batch_idx):
        image, label = batch
        logits = self(image)
        loss = F.cross_entropy(logits, label)
        return {"loss": loss, "logits": logits.detach(), "probs": logits.detach().softmax(1)}

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.05)


class MyTrainer:
    def __init__(self, max_epochs=2, log_every=10):
        self.fabric = Fabric(accelerator="auto", devices=1)
        self.max_epochs = max_epochs
        self.log_every = log_every
        self.global_step = 0
        self._current_train_return = {}

    def fit(self, model, loader):
        self.fabric.launch()
        optimizer = model.configure_optimizers()
        model, optimizer = self.fabric.setup(model, optimizer)
        model.mark_forward_method("training_step")
        loader = self.fabric.setup_dataloaders(loader)
        for epoch in range(self.max_epochs):
            self.train_loop(model, optimizer, loader)

    def train_loop(self, model, optimizer, loader):
        for batch_idx, batch in enumerate(loader):
            optimizer.zero_grad()
            self.training_step(model, batch, batch_idx)
            optimizer.step()
            self.global_step += 1
            if self.global_step % self.log_every == 0:
                self.fabric.print(f"step {self.global_step}: {self.describe()}")

    def training_step(self, model, batch, batch_idx):
        outputs = model.training_step(batch, batch_idx)
        self.fabric.backward(outputs["loss"])
        self._current_train_return = outputs  # !MG303 MyTrainer._current_train_return

    def describe(self):
        out = self._current_train_return
        return f"loss {out['loss'].item():.3f}, confidence {out['probs'].amax(1).mean().item():.3f}"


def main():
    L.seed_everything(14)
    data = TensorDataset(torch.rand(8 * 20, 4, 160, 160), torch.randint(0, 24, (8 * 20, 160, 160)))
    MyTrainer().fit(LandCover(), DataLoader(data, batch_size=8))


if __name__ == "__main__":
    main()
