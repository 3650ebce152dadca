"""learn2learn: LightningMAML turns gradients on for the adaptation in validation, and the loss of the query set is
then computed with a graph too, which ends in out of memory
(https://github.com/learnables/learn2learn/issues/432)."""

import torch
import torch.nn.functional as F
import lightning.pytorch as pl
from torch.utils.data import DataLoader, IterableDataset


class Sinusoids(IterableDataset):
    def __init__(self, tasks, support=64, query=512):
        self.tasks, self.support, self.query = tasks, support, query

    def __iter__(self):
        for _ in range(self.tasks):
            amp, phase = torch.rand(2) * 3
            x = torch.rand(self.support + self.query, 1) * 10 - 5
            y = amp * torch.sin(x + phase)
            yield x[: self.support], y[: self.support], x[self.support :], y[self.support :]


class LitMAML(pl.LightningModule):
    def __init__(self, width=64, inner_lr=0.01, inner_steps=2):
        super().__init__()
        sizes = [1, width, width, 1]
        self.w = torch.nn.ParameterList(
            [torch.nn.Parameter(torch.randn(o, i) * (2 / i) ** 0.5 * 0.5) for i, o in zip(sizes, sizes[1:])]
        )
        self.inner_lr, self.inner_steps = inner_lr, inner_steps

    def forward(self, x, weights):
        for w in weights[:-1]:
            x = torch.tanh(F.linear(x, w))
        return F.linear(x, weights[-1])

    def adapt(self, x, y, second_order):
        weights = list(self.w)
        for _ in range(self.inner_steps):
            loss = F.mse_loss(self(x, weights), y)
            grads = torch.autograd.grad(loss, weights, create_graph=second_order)
            weights = [w - self.inner_lr * g for w, g in zip(weights, grads)]
        return weights

    def training_step(self, task, batch_idx):
        xs, ys, xq, yq = task
        return F.mse_loss(self(xq, self.adapt(xs, ys, True)), yq)

    def validation_step(self, task, batch_idx):
        xs, ys, xq, yq = task
        with torch.enable_grad():
            weights = self.adapt(xs, ys, False)
            prediction = self(xq, weights)  # !MG201 LitMAML
            error = F.mse_loss(prediction, yq)
        self.log("val_error", error.item(), batch_size=1)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), 1e-3)


if __name__ == "__main__":
    torch.manual_seed(0)
    trainer = pl.Trainer(
        max_epochs=5,
        accelerator="auto",
        devices=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        inference_mode=False,
    )
    trainer.fit(
        LitMAML(), DataLoader(Sinusoids(16), batch_size=None), DataLoader(Sinusoids(6, query=120_000), batch_size=None)
    )
