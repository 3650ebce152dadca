"""Features of a pretrained encoder that the optimizer does not know; only the head learns."""

import torch
from torch import nn


class Wav2Feat(nn.Module):
    def __init__(self):
        super().__init__()
        self.convs = nn.Sequential(nn.Conv1d(1, 32, 10, 5), nn.GELU(), nn.Conv1d(32, 32, 8, 4), nn.GELU())

    def forward(self, wave):
        return self.convs(wave.unsqueeze(1)).transpose(1, 2)


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn, self.out = nn.GRU(32, 16, batch_first=True), nn.Linear(16, 5)

    def forward(self, feats):
        return self.out(self.rnn(feats)[1][0])


extractor, classifier = Wav2Feat(), Classifier()
extractor.eval()
optimizer = torch.optim.Adam(classifier.parameters())
for _ in range(20):
    wave, label = torch.randn(8, 800), torch.randint(5, (8,))
    features = extractor(wave).detach()  # !MG202 extractor
    loss = nn.functional.cross_entropy(classifier(features), label)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
