# device: virtual:512MiB
"""CTC with utterances of very different lengths, sorted into buckets, longest not first."""

import torch
from torch import nn


class ASR(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(40, 64, 3, stride=2, padding=1)
        self.rnn = nn.GRU(64, 96, batch_first=True, bidirectional=True)
        self.out = nn.Linear(192, 30)

    def forward(self, x):
        h, _ = self.rnn(self.conv(x).relu().transpose(1, 2))
        return self.out(h).log_softmax(-1)


torch.manual_seed(1)
model, ctc = ASR(), nn.CTCLoss(zero_infinity=True)
opt = torch.optim.Adam(model.parameters(), 1e-3)
epoch_losses = []
for epoch in range(2):
    running = torch.zeros(())
    for i in range(50):
        frames = int(torch.randint(40, 400, ()))
        x = torch.randn(8, 40, frames)
        logp = model(x)
        lens = torch.full((8,), logp.size(1))
        target = torch.randint(1, 30, (8, max(4, frames // 12)))
        loss = ctc(logp.transpose(0, 1), target, lens, torch.full((8,), target.size(1)))
        opt.zero_grad()
        loss.backward()
        opt.step()
        running += loss.detach()
    epoch_losses.append(running / 50)
print(epoch_losses)
