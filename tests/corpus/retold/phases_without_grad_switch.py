"""The transfer-learning loop with phases, without set_grad_enabled(phase == "train")."""

import torch
import torch.nn as nn


def train_model(model, dataloaders, criterion, optimizer, num_epochs=3):
    for epoch in range(num_epochs):
        for phase in ["train", "val"]:
            if phase == "train":
                model.train()
            else:
                model.eval()
            running_loss, running_corrects = 0.0, 0
            for inputs, labels in dataloaders[phase]:
                optimizer.zero_grad()
                outputs = model(inputs)  # !MG201 Sequential
                _, preds = torch.max(outputs, 1)
                loss = criterion(outputs, labels)
                if phase == "train":
                    loss.backward()
                    optimizer.step()
                running_loss += loss.item() * inputs.size(0)
                running_corrects += torch.sum(preds == labels).item()


model = nn.Sequential(
    nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 2)
)
data = {p: [(torch.randn(4, 3, 16, 16), torch.randint(2, (4,))) for _ in range(8)] for p in ("train", "val")}
train_model(model, data, nn.CrossEntropyLoss(), torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9))
