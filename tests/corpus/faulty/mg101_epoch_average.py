"""MNIST-like training whose epoch average is a tensor with history."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3)
        self.fc = nn.Linear(4 * 13 * 13, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv(x)), 2)
        return F.log_softmax(self.fc(x.flatten(1)), dim=1)


def train(model, loader, optimizer, epoch):
    model.train()
    running_loss, correct = 0, 0
    for batch_idx, (data, target) in enumerate(loader):
        optimizer.zero_grad()
        output = model(data)
        loss = F.nll_loss(output, target)
        loss.backward()
        optimizer.step()
        running_loss = running_loss + loss * len(data)  # !MG101 running_loss
        correct += output.argmax(1).eq(target).sum().item()
        if batch_idx % 10 == 0:
            print(f"epoch {epoch} [{batch_idx}/{len(loader)}] loss {loss.item():.4f}")
    return running_loss / len(loader.dataset)


def main():
    torch.manual_seed(1)
    data = TensorDataset(torch.randn(480, 1, 28, 28), torch.randint(0, 10, (480,)))
    loader = DataLoader(data, batch_size=16, shuffle=True)
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.5)
    for epoch in range(1, 2):
        print("train loss", float(train(model, loader, optimizer, epoch)))


if __name__ == "__main__":
    main()
