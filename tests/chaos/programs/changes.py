"""Models that are another after the batch: copied, moved, cast, quantized, compiled, replaced."""

from __future__ import annotations

import copy
import pickle
import warnings

import torch
from torch import nn

from tests.chaos.training import Guarding, Numbers, batches, net, seed, step, weights


def model_replaced_moved_copied_between_batches(guarding: Guarding) -> Numbers:
    """Deep copies, pickles, shallow copies, dtype changes, swapped children, a load of the state."""
    seed()
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    numbers = []
    with guarding(model, optimizer):
        for number, (x, y) in enumerate(batches(8)):
            numbers.append(step(model, optimizer, x, y))
            if number == 0:
                numbers.append(copy.deepcopy(model).eval()(x).detach())
            elif number == 1:
                numbers.append(pickle.loads(pickle.dumps(model)).eval()(x).detach())
            elif number == 2:
                numbers.append(copy.copy(model)(x).detach())
            elif number == 3:
                model.double().float()
            elif number == 4:
                model[1] = nn.GELU()
            elif number == 5:
                model.load_state_dict(net().state_dict())
            elif number == 6:
                model[0] = nn.Linear(8, 16)
                optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return [*numbers, *weights(model)]


def quantized_between_batches(guarding: Guarding) -> Numbers:
    """A dynamically quantized copy answers beside the training."""
    seed()
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    numbers = []
    with guarding(model, optimizer), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for x, y in batches(3):
            numbers.append(step(model, optimizer, x, y))
            small = torch.ao.quantization.quantize_dynamic(model, {nn.Linear}, dtype=torch.qint8)
            numbers.append(small.eval()(x).detach())
    return [*numbers, *weights(model)]


def quantized_in_place(guarding: Guarding) -> Numbers:
    """The trained layers are replaced by quantized ones; a new head is trained on what they give."""
    seed()
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with guarding(model, optimizer), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        numbers = [step(model, optimizer, x, y) for x, y in batches(3)]
        torch.ao.quantization.quantize_dynamic(model, {nn.Linear}, dtype=torch.qint8, inplace=True)
        numbers += [model.eval()(x).detach() for x, _ in batches(2)]
        model.train().append(nn.Linear(4, 4))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        numbers += [step(model, optimizer, x, y) for x, y in batches(3)]
    return [*numbers, *weights(model)]


def compiled_in_place(guarding: Guarding) -> Numbers:
    """``model.compile()`` in the middle of a training, and a wrapper around the model after it."""
    seed()
    torch._dynamo.reset()
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with guarding(model, optimizer), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        numbers = [step(model, optimizer, x, y) for x, y in batches(3)]
        model.compile(backend="eager")
        numbers += [step(model, optimizer, x, y) for x, y in batches(3)]
        whole = torch.compile(model, backend="eager")
        numbers += [step(whole, optimizer, x, y) for x, y in batches(3)]
    torch._dynamo.reset()
    return [*numbers, *weights(model)]


def weights_exchanged(guarding: Guarding) -> Numbers:
    """Parameters moved to shared memory, given other data, parametrized, swapped for others under the same names."""
    seed()
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with guarding(model, optimizer):
        numbers = [step(model, optimizer, x, y) for x, y in batches(2)]
        model.share_memory()
        numbers += [step(model, optimizer, x, y) for x, y in batches(2)]
        for parameter in model.parameters():
            parameter.data = parameter.data.clone() * 0.5
        numbers += [step(model, optimizer, x, y) for x, y in batches(2)]
        nn.utils.parametrizations.weight_norm(model[0])
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        numbers += [step(model, optimizer, x, y) for x, y in batches(2)]
        nn.utils.parametrize.remove_parametrizations(model[0], "weight")
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        torch.__future__.set_swap_module_params_on_conversion(True)  # fails where anybody holds a weak reference
        try:
            optimizer.zero_grad()
            model.double().float()
        finally:
            torch.__future__.set_swap_module_params_on_conversion(False)
        numbers += [step(model, optimizer, x, y) for x, y in batches(2)]
    return [*numbers, *weights(model)]


def replaced_by_another(guarding: Guarding) -> Numbers:
    """The guarded model is thrown away, and a new one with a new optimizer trains under the same guard."""
    seed()
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with guarding(model, optimizer):
        numbers = [step(model, optimizer, x, y) for x, y in batches(3)]
        del model, optimizer
        other = nn.Sequential(nn.Linear(8, 4), nn.Dropout(0.1))
        optimizer = torch.optim.Adam(other.parameters(), lr=0.1)
        numbers += [step(other, optimizer, x, y) for x, y in batches(3)]
        numbers += [other.eval()(x).detach() for x, _ in batches(2)]
    return [*numbers, *weights(other)]
