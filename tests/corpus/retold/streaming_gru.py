"""A streaming recogniser: the state runs on from frame to frame, in eval mode, with gradients on."""

import torch
from torch import nn


class Streamer(nn.Module):
    def __init__(self):
        super().__init__()
        self.gru = nn.GRU(16, 32, batch_first=True)
        self.out = nn.Linear(32, 8)

    def forward(self, frames, state=None):
        y, state = self.gru(frames, state)
        return self.out(y), state


model = Streamer().eval()
state, words = None, []
for _ in range(60):
    frames = torch.randn(1, 4, 16)
    logits, state = model(frames, state)  # !MG102 state
    words.append(logits.argmax(-1).flatten().tolist())
