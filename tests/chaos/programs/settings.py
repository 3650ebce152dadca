"""Settings of the whole process: collector, determinism, default device and type, inference mode."""

from __future__ import annotations

import gc
import sys
import warnings
from typing import Any

import pytest
import torch

from tests.chaos.training import Guarding, Numbers, batches, net, seed, step, train, weights


def garbage_is_not_collected(guarding: Guarding) -> Numbers:
    """Gc is disabled throughout."""
    gc.disable()
    try:
        return train(guarding)
    finally:
        gc.enable()


def deterministic_algorithms(guarding: Guarding) -> Numbers:
    """Deterministic mode fills new memory: whoever makes tensors shows."""
    torch.use_deterministic_algorithms(True)
    try:
        return train(guarding)
    finally:
        torch.use_deterministic_algorithms(False)


def default_device_and_dtype(guarding: Guarding) -> Numbers:
    """A default device is a mode on the stack; it is set and taken back inside."""
    seed()
    torch.set_default_device("cpu")
    torch.set_default_dtype(torch.float64)
    try:
        model = net().float()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with guarding(model, optimizer):
            numbers = [step(model, optimizer, x.float(), y) for x, y in batches(3)]
            torch.set_default_device(None)
            numbers += [step(model, optimizer, x.float(), y) for x, y in batches(3)]
            torch.set_default_device("meta")
            numbers.append(torch.tensor(torch.empty(1).is_meta, device="cpu"))
            numbers += [model.eval()(x.float()).detach() for x, _ in [*batches_on_cpu()]]
    finally:
        torch.set_default_device(None)
        torch.set_default_dtype(torch.float32)
    return [*numbers, *weights(model)]


def batches_on_cpu() -> Any:
    with torch.device("cpu"):
        return list(batches(2))


def inference_mode_inside(guarding: Guarding) -> Numbers:
    """Tensors of inference mode go through the model, and its outputs are used after it."""
    seed()
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    numbers = []
    with guarding(model, optimizer):
        for x, y in batches(4):
            numbers.append(step(model, optimizer, x, y))
            with torch.inference_mode():
                inside = model(x)
            numbers.append(torch.tensor(inside.is_inference()))
            model.eval()
            numbers.append(model(inside.new_ones(4, 8).clone()).detach())
            model.train()
    return [*numbers, *weights(model)]


def made_in_inference_mode(guarding: Guarding) -> Numbers:
    """A model whose weights are inference tensors, and inference tensors where training cannot take them."""
    seed()
    with torch.inference_mode():
        frozen = net().eval()
        inside = torch.randn(4, 8)
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    numbers = []
    with guarding([model, frozen], optimizer):
        for x, y in batches(4):
            with pytest.raises(RuntimeError, match="Inference tensors cannot be saved for backward"):
                frozen(x.clone().requires_grad_())
            with pytest.raises(RuntimeError, match="Inference tensors cannot be saved for backward"):
                model(inside)
            with torch.no_grad():
                numbers.append(frozen(x).clone())
            with torch.inference_mode():
                numbers.append(frozen(inside).clone())
            numbers.append(step(model, optimizer, x, y))
    return [*numbers, *weights(model)]


def under_anomaly_detection_and_a_profile_function(guarding: Guarding) -> Numbers:
    """The program's own tools look on, at every operator and at every call of Python's."""
    calls: list[str] = []
    sys.setprofile(lambda frame, event, argument: calls.append(event))
    try:
        with warnings.catch_warnings(), torch.autograd.set_detect_anomaly(True):
            warnings.simplefilter("ignore")
            numbers = train(guarding)
    finally:
        sys.setprofile(None)
    return [*numbers, torch.tensor(bool(calls))]
