"""pykeen: GPU memory fills up during the trials of a hyperparameter search; each trial's result object holds its trained model, and the list of
results holds them all until trial 3 or 4 goes out of memory. https://github.com/pykeen/pykeen/issues/151
"""

import random
import torch
from torch import nn
import torch.nn.functional as F

device = "cuda" if torch.cuda.is_available() else "cpu"


class DistMult(nn.Module):
    def __init__(self, entities, relations, dim):
        super().__init__()
        self.ent = nn.Embedding(entities, dim)
        self.rel = nn.Embedding(relations, dim)

    def forward(self, h, r, t):
        return (self.ent(h) * self.rel(r) * self.ent(t)).sum(-1)


def triples(n, entities):
    return torch.randint(0, entities, (n,)), torch.randint(0, 20, (n,)), torch.randint(0, entities, (n,))


def run_trial(params, steps=10):
    model = DistMult(30000, 20, params["dim"]).to(device)
    opt = torch.optim.Adagrad(model.parameters(), lr=params["lr"])
    for _ in range(steps):
        h, r, t = (v.to(device) for v in triples(512, 30000))
        neg = torch.randint(0, 30000, (512,), device=device)
        loss = F.softplus(model(h, r, neg) - model(h, r, t)).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    return {"params": params, "model": model.eval(), "loss": loss.item()}


def main():
    random.seed(0)
    torch.manual_seed(0)
    results = []
    for trial in range(12):
        params = {"dim": random.choice([96, 128, 160]), "lr": random.choice([0.1, 0.01])}
        results.append(run_trial(params))  # !MG308 results
        print("trial", trial, params, results[-1]["loss"])
    order = [r["params"] for r in results]
    print("tried", len(order))


if __name__ == "__main__":
    main()
