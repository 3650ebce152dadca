"""High memory usage from tensors that are released too late: the new tensor is built while the variable still holds
the old one. Told as nearest-neighbour contrastive learning that re-encodes its whole bank at every epoch.
https://github.com/THUDM/slime/pull/616
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

device = "cuda" if torch.cuda.is_available() else "cpu"
N, DIM = 48000, 512


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(32, 48), nn.ReLU())
        self.proj = nn.Linear(48, DIM)

    def forward(self, x):
        return F.normalize(self.proj(self.body(x)), dim=1)


@torch.no_grad()
def encode_all(encoder, data, chunk=2000):
    out = torch.empty(len(data), DIM, device=device)
    for i in range(0, len(data), chunk):
        out[i : i + chunk] = encoder(data[i : i + chunk].to(device))
    return out


def nn_contrastive(z, bank, pick, temperature=0.2):
    negatives = bank[pick]
    with torch.no_grad():
        nearest = bank[pick[(z @ negatives.T).argmax(1)]]
    pos = (z * nearest).sum(1, keepdim=True)
    logits = torch.cat([pos, z @ negatives.T], 1) / temperature
    return F.cross_entropy(logits, torch.zeros(len(z), dtype=torch.long, device=z.device))


def main(epochs=4, steps=20):
    torch.manual_seed(0)
    data = torch.randn(N, 32)
    encoder = Encoder().to(device)
    optimizer = torch.optim.SGD(encoder.parameters(), lr=0.03, momentum=0.9)
    bank = None
    for epoch in range(epochs):
        bank = encode_all(encoder, data)  # !MG305 bank
        for _ in range(steps):
            x = data[torch.randint(0, N, (128,))].to(device)
            pick = torch.randint(0, N, (1024,)).to(device)
            optimizer.zero_grad()
            loss = nn_contrastive(encoder(x + 0.1 * torch.randn_like(x)), bank, pick)
            loss.backward()
            optimizer.step()
        print("epoch", epoch, "loss", loss.item())


if __name__ == "__main__":
    main()
