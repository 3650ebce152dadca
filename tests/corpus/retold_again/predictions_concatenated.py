"""Prediction over a large set: the logits of all batches are joined on the device while it runs."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def predict(model, loader):
    model.eval()
    preds = None
    with torch.inference_mode():
        for (x,) in loader:
            logits = model(x.to(device))
            preds = logits if preds is None else torch.cat((preds, logits), dim=0)  # !MG301 preds
    return preds.cpu().numpy()


model = nn.Sequential(nn.Embedding(64, 16), nn.Linear(16, 512)).to(device)
loader = DataLoader(TensorDataset(torch.randint(64, (1200, 20))), batch_size=20)
print(predict(model, loader).shape)
