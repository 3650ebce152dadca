"""Generation after each epoch in eval mode with gradients: token by token, the sequence grows."""

import torch
from torch import nn


class CharRNN(nn.Module):
    def __init__(self, vocab=30, hidden=32):
        super().__init__()
        self.embed = nn.Embedding(vocab, hidden)
        self.lstm = nn.LSTM(hidden, hidden, batch_first=True)
        self.fc = nn.Linear(hidden, vocab)

    def forward(self, x, state=None):
        h, state = self.lstm(self.embed(x), state)
        return self.fc(h), state


def generate(model, length=25):
    model.eval()
    token, text = torch.zeros(1, 1, dtype=torch.long), []
    for _ in range(length):
        logits, _ = model(token)  # !MG201 CharRNN
        token = logits[:, -1].softmax(-1).multinomial(1)
        text.append(token.item())
    model.train()
    return text


model = CharRNN()
opt = torch.optim.Adam(model.parameters(), 1e-3)
for epoch in range(2):
    for _ in range(10):
        chunk = torch.randint(30, (8, 13))
        logits, _ = model(chunk[:, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), chunk[:, 1:].flatten())
        opt.zero_grad()
        loss.backward()
        opt.step()
    generate(model)
