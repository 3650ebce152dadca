import torch
from torch import nn

# recommender with lazily computed sequence embeddings
device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(5)


class SequenceEmbeddingsAwaitable:
    """Result of a lookup; the split by feature is done when somebody waits for it."""

    def __init__(self, values, lengths, dim):
        self.values = values
        self.lengths = lengths
        self.dim = dim
        self.callbacks = [self._split]  # !MG306 SequenceEmbeddingsAwaitable.callbacks

    def _split(self, values):
        return list(torch.split(values, self.lengths))

    def wait(self):
        out = self.values
        for fn in self.callbacks:
            out = fn(out)
        return out


class EmbeddingCollection(nn.Module):
    def __init__(self, n_items, dim):
        super().__init__()
        self.table = nn.Embedding(n_items, dim)
        self.dim = dim

    def forward(self, ids, lengths):
        return SequenceEmbeddingsAwaitable(self.table(ids), lengths, self.dim)


class Ranker(nn.Module):
    def __init__(self, n_items=4000, dim=64):
        super().__init__()
        self.ec = EmbeddingCollection(n_items, dim)
        self.over = nn.Sequential(nn.Linear(dim * 2, 64), nn.ReLU(), nn.Linear(64, 1))

    def forward(self, ids, lengths):
        history, target = self.ec(ids, lengths).wait()
        history = history.view(target.shape[0], -1, history.shape[-1]).mean(1)
        return self.over(torch.cat([history, target], 1)).squeeze(1)


B, H = 128, 40
model = Ranker().to(device)
dense = torch.optim.Adagrad(model.parameters(), lr=0.05)
criterion = nn.BCEWithLogitsLoss()


def train_one(step):
    ids = torch.randint(0, 4000, (B * H + B,), device=device)
    clicked = (torch.rand(B, device=device) < 0.3).float()
    dense.zero_grad()
    loss = criterion(model(ids, [B * H, B]), clicked)
    loss.backward()
    dense.step()
    return loss.item()


avg = 0.0
for step in range(60):
    avg = 0.95 * avg + 0.05 * train_one(step)
    if step % 20 == 19:
        print(f"step {step + 1} ema loss {avg:.4f}")
