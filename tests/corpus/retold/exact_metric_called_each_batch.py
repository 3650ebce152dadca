"""Tagging with an exact average precision that is called for each batch: its forward copies all that it has."""

import torch
from torch import nn
from torchmetrics.classification import MultilabelAccuracy, MultilabelAveragePrecision

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

N_LABELS = 16
BATCH_SIZE = 2056
EPOCHS = 3
BATCHES = 30


class Tagger(nn.Module):
    def __init__(self, n_features=64):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(n_features, 128), nn.GELU(), nn.Linear(128, 128), nn.GELU())
        self.out = nn.Linear(128, N_LABELS)

    def forward(self, x):
        return self.out(self.body(x))


def stream(n_batches, seed):
    g = torch.Generator().manual_seed(seed)
    w = torch.randn(64, N_LABELS, generator=torch.Generator().manual_seed(5))
    for _ in range(n_batches):
        x = torch.randn(BATCH_SIZE, 64, generator=g)
        y = (x @ w + torch.randn(BATCH_SIZE, N_LABELS, generator=g) > 0).long()
        yield x.to(device), y.to(device)


def main():
    torch.manual_seed(0)
    model = Tagger().to(device)
    criterion = nn.BCEWithLogitsLoss()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    accuracy = MultilabelAccuracy(num_labels=N_LABELS).to(device)
    avg_p = MultilabelAveragePrecision(num_labels=N_LABELS).to(device)

    for epoch in range(EPOCHS):
        model.train()
        running, ap = 0.0, 0.0
        for x, y in stream(BATCHES, seed=epoch):
            optimizer.zero_grad()
            logits = model(x)
            loss = criterion(logits, y.float())
            loss.backward()
            optimizer.step()
            running += loss.item()
            probs = logits.detach().sigmoid()
            accuracy(probs, y)
            ap += avg_p(probs, y).item()  # !MG301 avg_p
        print(
            f"epoch {epoch}: loss {running / BATCHES:.4f} accuracy {accuracy.compute():.4f} "
            f"mean batch AP {ap / BATCHES:.4f}"
        )
        accuracy.reset()


if __name__ == "__main__":
    main()
