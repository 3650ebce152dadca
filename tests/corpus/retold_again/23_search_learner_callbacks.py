"""A fastai-like Learner hands itself to its callbacks. When one trial of a search is over the Learner goes out of
scope, but Learner and callbacks refer to each other and the model with its optimizer state waits on the GPU for
Python's garbage collector. The fix made the callbacks' references weak.
https://github.com/fastai/fastai/pull/1375
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

device = "cuda" if torch.cuda.is_available() else "cpu"


class Callback:
    def on_batch_end(self, loss): ...


class Recorder(Callback):
    def __init__(self, learner):
        self.learner = learner
        self.losses = []

    def on_batch_end(self, loss):
        self.losses.append(loss)


class WarmRestart(Callback):
    def __init__(self, learner, every):
        self.learner, self.every, self.n = learner, every, 0

    def on_batch_end(self, loss):
        self.n += 1
        for group in self.learner.opt.param_groups:
            group["lr"] = self.learner.lr * (1 - (self.n % self.every) / self.every)


class Learner:
    def __init__(self, model, lr):
        self.model, self.lr = model.to(device), lr
        self.opt = torch.optim.Adam(self.model.parameters(), lr=lr)
        self.callbacks = [Recorder(self), WarmRestart(self, every=4)]  # !MG306 Learner.callbacks

    def fit(self, batches):
        for x, y in batches:
            self.opt.zero_grad()
            loss = F.mse_loss(self.model(x.to(device)), y.to(device))
            loss.backward()
            self.opt.step()
            for cb in self.callbacks:
                cb.on_batch_end(loss.item())
        self.opt.zero_grad()
        return sum(self.callbacks[0].losses[-3:]) / 3


def data(n, seed):
    g = torch.Generator().manual_seed(seed)
    for _ in range(n):
        x = torch.randn(128, 200, generator=g)
        yield x, x[:, :10].sum(1, keepdim=True)


def trial(width, lr, seed):
    model = nn.Sequential(nn.Linear(200, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1))
    return Learner(model, lr).fit(data(8, seed))


torch.manual_seed(0)
scores = {}
for i, lr in enumerate([1e-2, 3e-3, 1e-3, 3e-4, 1e-4]):
    for width in (1100, 1200, 1300):
        scores[lr, width] = trial(width, lr, i)
        print(f"lr {lr} width {width} score {scores[lr, width]:.4f}")
print("best of", len(scores))
