"""Gradient accumulation over 4; the printed sum is never started anew and never detached."""

import torch
from torch import nn


def get_batch():
    x = torch.randint(0, 500, (8, 32))
    return x[:, :-1], x[:, 1:]


class TinyLM(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(500, 96)
        self.layer = nn.TransformerEncoderLayer(96, 4, 192, batch_first=True, dropout=0.0)
        self.head = nn.Linear(96, 500)

    def forward(self, ids):
        mask = nn.Transformer.generate_square_subsequent_mask(ids.size(1))
        return self.head(self.layer(self.emb(ids), src_mask=mask))


def main(accum=4, updates=20):
    model = TinyLM()
    opt = torch.optim.AdamW(model.parameters(), lr=3e-4)
    tr_loss, logged = torch.tensor(0.0), 0
    for micro in range(accum * updates):
        x, y = get_batch()
        loss = nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten()) / accum
        loss.backward()
        tr_loss += loss  # !MG101 tr_loss
        if (micro + 1) % accum == 0:
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            opt.zero_grad()
            if (micro + 1) % (accum * 10) == 0:
                print("avg loss", tr_loss.item() / (micro + 1) * accum)


if __name__ == "__main__":
    main()
