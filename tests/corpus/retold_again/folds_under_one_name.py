"""deepset-ai/FARM, cross-validation example: GPU memory is higher from the second fold on, "the model variable gets re-used and I thought that should the
data on the GPU": the next fold's model is built while the last one, its gradients and its momentum are still there.
https://github.com/deepset-ai/FARM/issues/219
"""

import torch
from torch import nn
import torch.nn.functional as F
from sklearn.model_selection import KFold

device = "cuda" if torch.cuda.is_available() else "cpu"


def make_model():
    return nn.Sequential(nn.EmbeddingBag(100000, 192), nn.Linear(192, 64), nn.ReLU(), nn.Linear(64, 4))


torch.manual_seed(0)
texts = torch.randint(0, 100000, (640, 40))
labels = torch.randint(0, 4, (640,))
scores = []
for fold, (train_idx, test_idx) in enumerate(KFold(n_splits=5).split(texts)):
    model = make_model().to(device)  # !MG305 model
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for i in range(0, 480, 48):
        idx = torch.as_tensor(train_idx[i : i + 48])
        x, y = texts[idx].to(device), labels[idx].to(device)
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        idx = torch.as_tensor(test_idx)
        pred = model(texts[idx].to(device)).argmax(1).cpu()
    scores.append((pred == labels[idx]).float().mean().item())
    print("fold", fold, "loss", loss.item(), "acc", scores[-1])
print("mean", sum(scores) / len(scores))
