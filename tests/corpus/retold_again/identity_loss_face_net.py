"""An autoencoder with an identity loss: the embeddings of the real faces need no graph."""

import torch
from torch import nn


class FaceNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 16, 3, 2, 1), nn.ReLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1)
        )

    def forward(self, x):
        return nn.functional.normalize(self.features(x).flatten(1), dim=1)


facenet = FaceNet().eval()
autoencoder = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1), nn.ReLU(), nn.ConvTranspose2d(16, 3, 4, 2, 1), nn.Sigmoid())
optimizer = torch.optim.Adam(autoencoder.parameters(), lr=1e-3)
for step in range(20):
    real = torch.rand(4, 3, 32, 32)
    anchor = facenet(real).data  # !MG202 facenet
    out = autoencoder(real)
    identity = 1 - (facenet(out) * anchor).sum(1)
    loss = nn.functional.l1_loss(out, real) + identity.mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
