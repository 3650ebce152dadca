"""Training steps with torch.compile: the models of `forecast_models`, compiled in the ways that people do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import forecast_models
import torch
from torch import nn


@dataclass(frozen=True)
class Case:
    """One configuration."""

    model: str
    how: str = "whole"
    """What is compiled: "whole" the model, "blocks" each of its blocks, "broken" the model with a graph break in it,
    "budget" with an activation memory budget of a half, "loss" model and loss as one function, "optimizer" the model
    and the optimizer's step, "reused" one block with several batch sizes."""
    precision: str = "fp32"
    option: str = "none"
    batch: int = 8
    optimizer: str = "adamw"

    def __str__(self) -> str:
        """As cells of a table."""
        option = "" if self.option == "none" else f", {self.option}"
        return f"{self.model} | {self.how} | {self.precision}{option} | {self.optimizer}, batch {self.batch}"


MODELS = ("mlp", "resnet", "convnext", "vit", "bert", "gpt", "t5", "unet")
_BLOCKS = ("gpt", "bert", "vit", "t5", "convnext", "resnet")


def cases() -> list[Case]:
    """All configurations of the table."""
    found = [Case(model, precision=precision) for model in MODELS for precision in ("fp32", "bf16-amp")]
    found += [Case(model, precision="bf16", optimizer="sgd") for model in MODELS]
    found += [Case(model, "blocks", "bf16-amp", batch=4) for model in _BLOCKS]
    found += [Case(model, "broken", batch=4) for model in ("gpt", "vit", "resnet", "bert")]
    found += [Case(model, "budget", batch=16) for model in ("gpt", "bert", "vit", "t5")]
    found += [Case(model, option="checkpoint", batch=16) for model in ("gpt", "bert", "vit", "convnext")]
    found += [Case(model, option="accumulate", precision="fp16-amp") for model in ("gpt", "unet", "mlp")]
    found += [Case(model, "loss", "bf16-amp") for model in ("gpt", "bert", "t5", "resnet")]
    found += [Case(model, "optimizer") for model in ("gpt", "vit", "mlp")]
    found += [Case(model, "reused") for model in ("gpt", "resnet", "mlp")]
    return found


def build(case: Case) -> tuple[nn.Module, Any, Callable[[], None]]:
    """Model, optimizer and step, on "cuda"."""
    plain = forecast_models.Case(case.model, case.optimizer, case.precision, case.batch, case.option)
    if case.how == "loss":
        return _with_loss(plain)
    model, optimizer, step = forecast_models.build(plain)
    if case.how == "blocks":
        for child in model.children():
            if isinstance(child, nn.ModuleList):
                for block in child:
                    block.compile()
        return model, optimizer, step
    if case.how == "broken":
        list(model.children())[-1].register_forward_pre_hook(_break)
    elif case.how == "budget":
        import torch._functorch.config as config

        config.activation_memory_budget = 0.5
    elif case.how == "optimizer":
        optimizer.step = torch.compile(optimizer.step)
    model.compile()
    if case.how == "reused":
        return model, optimizer, _other_batches(plain, model, optimizer)
    return model, optimizer, step


def _break(module: nn.Module, inputs: Any) -> None:
    torch._dynamo.graph_break()


def _with_loss(case: forecast_models.Case) -> tuple[nn.Module, Any, Callable[[], None]]:
    torch.backends.cuda.enable_cudnn_sdp(False)  # the null GPU has no cuDNN attention
    with torch.device("cuda"):
        model = forecast_models.make_model(case.model, case.size)
    optimizer = forecast_models.make_optimizer(case.optimizer, model.parameters())

    @torch.compile
    def loss_of(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cuda", dtype=torch.bfloat16):
            out = model(x)
            return nn.functional.cross_entropy(out.reshape(-1, out.shape[-1]), y.reshape(-1))

    def step() -> None:
        optimizer.zero_grad()
        loss_of(*forecast_models.make_batch(case)).backward()
        optimizer.step()

    return model, optimizer, step


def _other_batches(case: forecast_models.Case, model: nn.Module, optimizer: Any) -> Callable[[], None]:
    """A step after whose first one the batch size changes, for which the code is compiled again."""
    sizes = [case.batch]

    def step() -> None:
        for size in sizes:
            x, y = forecast_models.make_batch(forecast_models.Case(case.model, batch=size))
            out = model(x)
            loss = nn.functional.cross_entropy(out.reshape(-1, out.shape[-1]), y.reshape(-1))
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        sizes[:] = [case.batch, case.batch // 2, case.batch - 1]

    return step
