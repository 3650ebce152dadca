"""SGD by hand, as textbooks do it: no Module, no optimizer."""

import torch


def linreg(X, w, b):
    return torch.matmul(X, w) + b


def squared_loss(y_hat, y):
    return (y_hat - y.reshape(y_hat.shape)) ** 2 / 2


def sgd(params, lr, batch_size):
    with torch.no_grad():
        for param in params:
            param -= lr * param.grad / batch_size
            param.grad.zero_()


w = torch.normal(0, 0.01, size=(8, 1), requires_grad=True)
b = torch.zeros(1, requires_grad=True)
curve = []
for step in range(60):
    X = torch.randn(10, 8)
    y = X.sum(1)
    l = squared_loss(linreg(X, w, b), y).sum()
    l.backward()
    sgd([w, b], 0.03, 10)
    curve.append(l)  # !MG101 curve
