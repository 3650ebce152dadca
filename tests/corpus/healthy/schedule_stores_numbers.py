# A schedule function that stores a detached loss and a number for each micro-batch.
from functools import partial

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Embedding(1000, 64), nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 1000))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)


def loss_func(labels, output_tensor):
    losses = nn.functional.cross_entropy(output_tensor.flatten(0, 1), labels.flatten(), reduction="none")
    probabilities = output_tensor.softmax(-1)
    return losses.mean(), {"lm loss": losses.mean().detach(), "confidence": probabilities.detach().amax(-1).mean()}


def forward_step_func(data_iterator, model):
    tokens = next(data_iterator)
    return model(tokens), partial(loss_func, tokens)


def forward_step(forward_step_func, data_iterator, model, num_microbatches, forward_data_store):
    output_tensor, loss_func = forward_step_func(data_iterator, model)
    loss, reduced = loss_func(output_tensor)
    forward_data_store.append(reduced)
    return loss / num_microbatches


def backward_step(output_tensor):
    torch.autograd.backward(output_tensor)


def forward_backward_no_pipelining(*, forward_step_func, data_iterator, model, num_microbatches):
    forward_data_store = []
    for _ in range(num_microbatches):
        output_tensor = forward_step(forward_step_func, data_iterator, model, num_microbatches, forward_data_store)
        backward_step(output_tensor)
    return forward_data_store


def tokens():
    while True:
        yield torch.randint(0, 1000, (4, 64))


data = tokens()
for iteration in range(3):
    optimizer.zero_grad()
    reduced = forward_backward_no_pipelining(
        forward_step_func=forward_step_func, data_iterator=data, model=model, num_microbatches=8
    )
    optimizer.step()
    print(iteration, sum(r["lm loss"].item() for r in reduced) / 8, max(r["confidence"].max().item() for r in reduced))
    del reduced
