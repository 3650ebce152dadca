"""The AverageMeter of the ImageNet example, fed with tensors."""

import torch
from torch import nn


class AverageMeter:
    def __init__(self, name):
        self.name = name
        self.reset()

    def reset(self):
        self.val = 0
        self.avg = 0
        self.sum = 0
        self.count = 0

    def update(self, val, n=1):
        self.val = val
        self.sum += val * n  # !MG101 AverageMeter.sum
        self.count += n
        self.avg = self.sum / self.count


def accuracy(output, target):
    with torch.no_grad():
        return (output.argmax(1) == target).float().mean()


model = nn.Sequential(nn.Flatten(), nn.Linear(3 * 8 * 8, 64), nn.ReLU(), nn.Linear(64, 5))
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, weight_decay=1e-4)
losses, top1 = AverageMeter("Loss"), AverageMeter("Acc@1")
for i in range(40):
    images, target = torch.randn(12, 3, 8, 8), torch.randint(5, (12,))
    output = model(images)
    loss = criterion(output, target)
    losses.update(loss, images.size(0))
    top1.update(accuracy(output, target), images.size(0))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if i % 10 == 0:
        print(f"{losses.name} {losses.avg:.3f} {top1.name} {top1.avg:.3f}")
