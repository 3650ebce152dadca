"""Batch inference with a trained model; no optimizer anywhere."""

import torch
from torch import nn


class Tagger(nn.Module):
    def __init__(self, vocab=100, tags=7):
        super().__init__()
        self.embed = nn.Embedding(vocab, 16)
        self.lstm = nn.LSTM(16, 16, bidirectional=True, batch_first=True)
        self.proj = nn.Linear(32, tags)

    def forward(self, tokens):
        return self.proj(self.lstm(self.embed(tokens))[0])


def predict(model, sentences):
    model.eval()
    for tokens in sentences:
        yield model(tokens).argmax(-1).tolist()  # !MG201 Tagger


tagger = Tagger()
sentences = [torch.randint(100, (4, 5 + i % 7)) for i in range(24)]
tags = list(predict(tagger, sentences))
print(len(tags))
