"""The super-resolution example: sub-pixel convolution, PSNR on a test set, a checkpoint per epoch."""

import io
from math import log10

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    def __init__(self, upscale_factor):
        super().__init__()
        self.relu = nn.ReLU()
        self.conv1 = nn.Conv2d(1, 16, (5, 5), (1, 1), (2, 2))
        self.conv2 = nn.Conv2d(16, 8, (3, 3), (1, 1), (1, 1))
        self.conv3 = nn.Conv2d(8, upscale_factor**2, (3, 3), (1, 1), (1, 1))
        self.pixel_shuffle = nn.PixelShuffle(upscale_factor)

    def forward(self, x):
        x = self.relu(self.conv1(x))
        return self.pixel_shuffle(self.conv3(self.relu(self.conv2(x))))


train_set = TensorDataset(torch.rand(64, 1, 8, 8), torch.rand(64, 1, 16, 16))
test_set = TensorDataset(torch.rand(32, 1, 8, 8), torch.rand(32, 1, 16, 16))
training_data_loader = DataLoader(train_set, batch_size=4, shuffle=True)
testing_data_loader = DataLoader(test_set, batch_size=4)
model = Net(2)
criterion = nn.MSELoss()
optimizer = torch.optim.Adam(model.parameters(), lr=0.001)


def train(epoch):
    epoch_loss = 0
    for iteration, batch in enumerate(training_data_loader, 1):
        input, target = batch[0], batch[1]
        optimizer.zero_grad()
        loss = criterion(model(input), target)
        epoch_loss += loss.item()
        loss.backward()
        optimizer.step()
    print(f"===> Epoch {epoch} Complete: Avg. Loss: {epoch_loss / len(training_data_loader):.4f}")


def test():
    avg_psnr = 0
    with torch.no_grad():
        for batch in testing_data_loader:
            mse = criterion(model(batch[0]), batch[1])
            avg_psnr += 10 * log10(1 / mse.item())
    print(f"===> Avg. PSNR: {avg_psnr / len(testing_data_loader):.4f} dB")


def checkpoint(epoch):
    torch.save(model, io.BytesIO())


for epoch in range(1, 4):
    train(epoch)
    test()
    checkpoint(epoch)
