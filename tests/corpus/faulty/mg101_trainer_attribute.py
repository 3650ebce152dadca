import torch
from torch import nn
from torch.nn import functional as F


class Trainer:
    def __init__(self, model):
        self.model = model
        self.optimizer = torch.optim.AdamW(model.parameters())
        self.metrics = {"loss": [], "lr": []}

    def step(self, x, y):
        loss = F.mse_loss(self.model(x), y)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.metrics["loss"].append(loss)  # !MG101 Trainer.metrics
        self.metrics["lr"].append(self.optimizer.param_groups[0]["lr"])


def main():
    trainer = Trainer(nn.Linear(8, 8))
    for _ in range(30):
        trainer.step(torch.randn(4, 8), torch.randn(4, 8))


main()
