"""Early stopping: train a fully connected autoencoder and go back to the weights of the best epoch."""

import copy

import torch
import torch.nn as nn

torch.manual_seed(0)
device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")


class AE(nn.Module):
    def __init__(self, d=512):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(d, 384), nn.ReLU(), nn.Linear(384, 64))
        self.decoder = nn.Sequential(nn.Linear(64, 384), nn.ReLU(), nn.Linear(384, d))

    def forward(self, x):
        return self.decoder(self.encoder(x))


basis = torch.randn(24, 512)
train_x = (torch.randn(1920, 24) @ basis / 5 + 0.1 * torch.randn(1920, 512)).to(device)
valid_x = (torch.randn(256, 24) @ basis / 5 + 0.1 * torch.randn(256, 512)).to(device)

model = AE().to(device)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
mse = nn.MSELoss()

patience, wait = 4, 0
history = {"val_loss": [], "weights": []}
for epoch in range(20):
    model.train()
    for xb in train_x[torch.randperm(1920)].split(64):
        optimizer.zero_grad()
        loss = mse(model(xb), xb)
        loss.backward()
        optimizer.step()

    model.eval()
    with torch.no_grad():
        val_loss = mse(model(valid_x), valid_x).item()
    history["val_loss"].append(val_loss)
    history["weights"].append(copy.deepcopy(model.state_dict()))  # !MG308 history
    print(f"epoch {epoch:2d} val_loss {val_loss:.5f}")
    if val_loss > min(history["val_loss"]):
        wait += 1
        if wait >= patience:
            print("early stop")
            break
    else:
        wait = 0

best = min(range(len(history["val_loss"])), key=history["val_loss"].__getitem__)
model.load_state_dict(history["weights"][best])
print("restored epoch", best, "with", round(history["val_loss"][best], 5))
