"""A table of data small enough to be validated in one go, once per epoch, with gradients on."""

import torch

X = torch.randn(2000, 20)
Y = (X[:, :1] * X[:, 1:2] > 0).float()
X_train, X_val = X[:1600], X[1600:]
Y_train, Y_val = Y[:1600], Y[1600:]

model = torch.nn.Sequential(
    torch.nn.Linear(20, 64),
    torch.nn.BatchNorm1d(64),
    torch.nn.ReLU(),
    torch.nn.Dropout(0.2),
    torch.nn.Linear(64, 1),
    torch.nn.Sigmoid(),
)
loss_fn = torch.nn.BCELoss()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
batch_size = 160
for epoch in range(8):
    model.train()
    for start in range(0, len(X_train), batch_size):
        xb, yb = X_train[start : start + batch_size], Y_train[start : start + batch_size]
        loss = loss_fn(model(xb), yb)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval()
    y_pred = model(X_val)  # !MG201 Sequential
    acc = (y_pred.round() == Y_val).float().mean()
    print(f"epoch {epoch} accuracy {float(acc):.3f}")
