# device: virtual:256MiB
"""A seq2seq model evaluated by beam search under inference_mode; hypotheses are kept in a heap during one sentence only."""

import heapq
import torch
from torch import nn


class S2S(nn.Module):
    def __init__(self, v=60, d=64):
        super().__init__()
        self.e, self.enc, self.dec, self.o = (
            nn.Embedding(v, d),
            nn.GRU(d, d, batch_first=True),
            nn.GRUCell(d, d),
            nn.Linear(d, v),
        )

    def step(self, tok, h):
        h = self.dec(self.e(tok), h)
        return self.o(h).log_softmax(-1), h

    def forward(self, src, tgt):
        h = self.enc(self.e(src))[1][0]
        out = []
        for t in range(tgt.size(1)):
            lp, h = self.step(tgt[:, t], h)
            out.append(lp)
        return torch.stack(out, 1)


@torch.inference_mode()
def beam(model, src, k=4, n=12):
    h = model.enc(model.e(src))[1][0]
    beams = [(0.0, 0, [1], h)]
    count = 1
    for _ in range(n):
        cand = []
        for score, _, toks, h in beams:
            lp, h2 = model.step(torch.tensor([toks[-1]]), h)
            for p, t in zip(*lp[0].topk(k)):
                cand.append((score + float(p), count, toks + [int(t)], h2))
                count += 1
        beams = heapq.nlargest(k, cand)
    return beams[0][2]


m = S2S()
opt = torch.optim.Adam(m.parameters())
for epoch in range(3):
    m.train()
    for _ in range(12):
        s, t = torch.randint(0, 60, (16, 10)), torch.randint(0, 60, (16, 8))
        opt.zero_grad()
        nn.functional.nll_loss(m(s, t).flatten(0, 1), t.flatten()).backward()
        opt.step()
    m.eval()
    outs = [beam(m, torch.randint(0, 60, (1, 10))) for _ in range(4)]
