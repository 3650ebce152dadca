# device: virtual:1GiB
"""A small bf16 language model over a large vocabulary upcasts all its logits for the loss."""

import torch
from torch import nn


class LM(nn.Module):
    def __init__(self, vocab=32000, dim=32):
        super().__init__()
        self.wte = nn.Embedding(vocab, dim)
        self.mix = nn.GRU(dim, dim, batch_first=True)
        self.lm_head = nn.Linear(dim, vocab, bias=False)

    def forward(self, ids):
        h, _ = self.mix(self.wte(ids).float())
        return self.lm_head(h.to(self.lm_head.weight.dtype))


def loss_fn(logits, labels):
    logits = logits.float()  # !MG310 logits
    return nn.functional.cross_entropy(logits[:, :-1].reshape(-1, logits.size(-1)), labels[:, 1:].reshape(-1))


model = LM()
model.wte.bfloat16(), model.lm_head.bfloat16()
opt = torch.optim.SGD(model.parameters(), 0.1)
for step in range(8):
    ids = torch.randint(0, 32000, (8, 64))
    logits = model(ids)
    loss = loss_fn(logits, ids)
    opt.zero_grad()
    loss.backward()
    opt.step()
    del logits, loss
