"""A stateful GRU scores a long text chunk by chunk; its hidden state keeps the graph of the whole text."""

import torch
from torch import nn


class CharRNN(nn.Module):
    def __init__(self, vocab=30, hidden=24):
        super().__init__()
        self.embed = nn.Embedding(vocab, 12)
        self.gru = nn.GRU(12, hidden, batch_first=True)
        self.out = nn.Linear(hidden, vocab)

    def forward(self, tokens, hidden=None):
        output, hidden = self.gru(self.embed(tokens), hidden)
        return self.out(output), hidden


def generate_and_score(model, chunks):
    model.eval()
    hidden, total = None, 0.0
    for tokens in chunks:
        logits, hidden = model(tokens, hidden)  # !MG102 hidden
        total += nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten()).item()
    return total / len(chunks)


model = CharRNN()
print(generate_and_score(model, [torch.randint(30, (4, 10)) for _ in range(30)]))
