"""A decoder keeps its attention weights in the module for plotting, and nobody resets them."""

import torch
from torch import nn


class Attention(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.q, self.k = nn.Linear(dim, dim), nn.Linear(dim, dim)
        self.alignments = []

    def forward(self, query, memory):
        w = torch.softmax(self.q(query) @ self.k(memory).transpose(1, 2), -1)
        self.alignments.append(w)  # !MG101 Attention.alignments
        return w @ memory


class Decoder(nn.Module):
    def __init__(self, dim=16):
        super().__init__()
        self.rnn, self.attn, self.out = nn.GRUCell(dim, dim), Attention(dim), nn.Linear(dim, dim)

    def forward(self, memory, steps=4):
        h = memory.mean(1)
        frames = []
        for _ in range(steps):
            c = self.attn(h.unsqueeze(1), memory).squeeze(1)
            h = self.rnn(c, h)
            frames.append(self.out(h))
        return torch.stack(frames, 1)


decoder = Decoder()
optim = torch.optim.Adam(decoder.parameters(), 1e-3)
for _ in range(20):
    memory, target = torch.randn(4, 6, 16), torch.randn(4, 4, 16)
    loss = nn.functional.l1_loss(decoder(memory), target)
    optim.zero_grad()
    loss.backward()
    optim.step()
