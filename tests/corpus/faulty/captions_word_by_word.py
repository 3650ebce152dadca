"""Captions of images: an LSTM says one word after the other, for the score after every epoch as well."""

import torch
from torch import nn

WORDS, HIDDEN = 1000, 256


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(3, 32, 3, 2, 1), nn.ReLU(), nn.Conv2d(32, HIDDEN, 3, 2, 1), nn.ReLU())

    def forward(self, images):
        return self.layers(images).mean((2, 3))


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(WORDS, HIDDEN)
        self.cell = nn.LSTMCell(HIDDEN, HIDDEN)
        self.out = nn.Linear(HIDDEN, WORDS)

    def step(self, word, state):
        state = self.cell(self.embed(word), state)
        return self.out(state[0]), state

    def forward(self, features, captions):
        state, logits = (features, torch.zeros_like(features)), []
        for t in range(captions.size(1)):
            scores, state = self.step(captions[:, t], state)
            logits.append(scores)
        return torch.stack(logits, 1)

    def greedy(self, features, length=15):
        state = (features, torch.zeros_like(features))
        word = torch.zeros(features.size(0), dtype=torch.long)
        caption = []
        for _ in range(length):
            scores, state = self.step(word, state)
            word = scores.argmax(1)
            caption.append(word)
        return torch.stack(caption, 1)


def score(encoder, decoder, loader):
    encoder.eval()
    decoder.eval()
    hits = 0
    for images, captions in loader:
        features = encoder(images)  # !MG201 Encoder
        hits += (decoder.greedy(features) == captions).sum().item()
    encoder.train()
    decoder.train()
    return hits


def batches(count, size):
    return [(torch.randn(size, 3, 32, 32), torch.randint(0, WORDS, (size, 15))) for _ in range(count)]


torch.manual_seed(0)
encoder, decoder = Encoder(), Decoder()
optimizer = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()], 1e-3)
train, val = batches(12, 16), batches(8, 48)
for epoch in range(2):
    for images, captions in train:
        logits = decoder(encoder(images), captions)
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), captions.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(epoch, score(encoder, decoder, val))
