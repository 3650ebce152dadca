import torch
from torch import nn

model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))
optimizer = torch.optim.Adam(model.parameters())
loss_function = nn.CrossEntropyLoss()


def validate(batches=12):
    model.eval()
    right = 0
    for _ in range(batches):
        x, y = torch.randn(32, 64), torch.randint(0, 10, (32,))
        scores = model(x)  # !MG201 Sequential
        right += (scores.argmax(1) == y).sum().item()
    model.train()
    return right / (32 * batches)


for epoch in range(2):
    for _ in range(10):
        x, y = torch.randn(32, 64), torch.randint(0, 10, (32,))
        optimizer.zero_grad()
        loss_function(model(x), y).backward()
        optimizer.step()
    print(validate())
