# device: virtual:128MiB
"""Distillation of a language model in half precision: both models' logits are upcast, the student's for the loss."""

import torch
import torch.nn.functional as F
from torch import nn


class LM(nn.Module):
    def __init__(self, vocab, dim):
        super().__init__()
        self.emb, self.head = nn.Embedding(vocab, dim), nn.Linear(dim, vocab, bias=False)

    def forward(self, ids):
        return self.head(torch.tanh(self.emb(ids)))


student = LM(32000, 16).bfloat16()
opt = torch.optim.SGD(student.parameters(), lr=0.1)
for step in range(10):
    ids = torch.randint(32000, (4, 33))
    logits = student(ids[:, :-1])
    log_p = F.log_softmax(logits.float() / 2.0, dim=-1)  # !MG310 -
    loss = F.nll_loss(log_p.flatten(0, 1), ids[:, 1:].flatten())
    opt.zero_grad()
    loss.backward()
    opt.step()
