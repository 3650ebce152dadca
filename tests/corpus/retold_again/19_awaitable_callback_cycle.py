"""meta-pytorch/torchrec PR 1226 (https://github.com/meta-pytorch/torchrec/pull/1226): the callback of an awaitable
points back to the awaitable itself, and this cycle keeps many GPU tensors alive until the garbage collector happens to
run.  Here a small lookup result has a list of callbacks with its own bound method in it."""

import torch
from torch import nn

device = "cuda" if torch.cuda.is_available() else "cpu"


class EmbeddingsAwaitable:
    """holds the looked-up rows; what is to be done with them is a list of callbacks"""

    def __init__(self, rows, lengths):
        self.rows = rows
        self.lengths = lengths
        self.result = None
        self.callbacks = []
        self.callbacks.append(self._pool)  # !MG306 EmbeddingsAwaitable.callbacks

    def _pool(self):
        self.result = self.rows.sum(1) / self.lengths[:, None]

    def wait(self):
        for callback in self.callbacks:
            callback()
        return self.result


class Recommender(nn.Module):
    def __init__(self, n_items=2000, dim=64):
        super().__init__()
        self.items = nn.Embedding(n_items, dim)
        self.over = nn.Sequential(nn.Linear(dim, 128), nn.ReLU(), nn.Linear(128, 1))

    def forward(self, ids, lengths):
        pooled = EmbeddingsAwaitable(self.items(ids), lengths).wait()
        return self.over(pooled).squeeze(-1)


def main():
    torch.manual_seed(19)
    model = Recommender().to(device)
    opt = torch.optim.Adagrad(model.parameters(), lr=0.05)
    for batch in range(120):
        ids = torch.randint(0, 2000, (64, 24), device=device)
        clicks = torch.randint(0, 2, (64,), device=device).float()
        opt.zero_grad()
        loss = nn.functional.binary_cross_entropy_with_logits(
            model(ids, torch.full((64,), 24.0, device=device)), clicks
        )
        loss.backward()
        opt.step()
        if batch % 40 == 0:
            print("batch", batch, loss.item())


if __name__ == "__main__":
    main()
