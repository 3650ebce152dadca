"""Steps whose optimizers are the user's own, or are called in unusual ways."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

CUDA = "cuda"


def _language_model(words: int = 4000, width: int = 256, depth: int = 3) -> nn.Module:
    layers: list[nn.Module] = [nn.Embedding(words, width)]
    for _ in range(depth):
        layers += [nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.SiLU(), nn.Linear(4 * width, width)]
    return nn.Sequential(*layers, nn.Linear(width, words, bias=False))


def _loss_of(model: nn.Module, samples: int = 8, length: int = 128) -> Tensor:
    words = torch.randint(0, 4000, (samples, length), device=CUDA)
    return F.cross_entropy(model(words).flatten(0, 1), words.flatten())


class EightBitAdam(torch.optim.Optimizer):
    """Adam whose moments are kept as bytes with a scale for every block of 256 numbers."""

    def __init__(self, parameters: Any, lr: float = 1e-3) -> None:
        super().__init__(parameters, {"lr": lr})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            for parameter in group["params"]:
                gradient, state = parameter.grad, self.state[parameter]
                if not state:
                    for name in ("mean", "square"):
                        state[name] = self._packed(torch.zeros_like(parameter))
                mean = self._unpacked(*state["mean"], parameter).mul_(0.9).add_(gradient, alpha=0.1)
                square = (
                    self._unpacked(*state["square"], parameter).mul_(0.999).addcmul_(gradient, gradient, value=1e-3)
                )
                parameter.addcdiv_(mean, square.sqrt() + 1e-8, value=-group["lr"])
                state["mean"], state["square"] = self._packed(mean), self._packed(square)

    def _packed(self, tensor: Tensor) -> tuple[Tensor, Tensor]:
        blocks = F.pad(tensor.flatten(), (0, -tensor.numel() % 256)).view(-1, 256)
        scale = blocks.abs().amax(1, keepdim=True).clamp_(min=1e-12)
        return (blocks / scale * 127 + 128).round().to(torch.uint8), scale

    def _unpacked(self, codes: Tensor, scale: Tensor, like: Tensor) -> Tensor:
        return ((codes.float() - 128) / 127 * scale).view(-1)[: like.numel()].view_as(like).clone()


def eight_bit_adam() -> tuple[Any, Any, Any]:
    """Bytes for the optimizer's states, full gradients."""
    model = _language_model().to(CUDA)
    optimizer = EightBitAdam(model.parameters())

    def step() -> None:
        _loss_of(model).backward()
        optimizer.step()
        optimizer.zero_grad()

    return model, optimizer, step


class Muon(torch.optim.Optimizer):
    """Momentum whose update is orthogonalised by Newton-Schulz steps in bf16; for matrices."""

    def __init__(self, parameters: Any, lr: float = 0.02) -> None:
        super().__init__(parameters, {"lr": lr})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            for parameter in group["params"]:
                state = self.state[parameter]
                momentum = state.setdefault("momentum", torch.zeros_like(parameter))
                momentum.lerp_(parameter.grad, 0.05)
                x = parameter.grad.lerp(momentum, 0.95).bfloat16()
                x = x.T if x.shape[0] > x.shape[1] else x
                x = x / (x.norm() + 1e-7)
                for _ in range(5):
                    square = x @ x.T
                    x = 3.4445 * x + (-4.775 * square + 2.0315 * square @ square) @ x
                x = x.T if parameter.shape[0] > parameter.shape[1] else x
                parameter.add_(x.to(parameter.dtype), alpha=-group["lr"])


def muon_and_adam() -> tuple[Any, Any, Any]:
    """Muon for the inner matrices, fused AdamW for the rest; bf16 autocast."""
    model = _language_model(depth=4).to(CUDA)
    matrices = [p for name, p in model.named_parameters() if p.dim() == 2 and not name.startswith(("0.", "17."))]
    chosen = {id(p) for p in matrices}
    rest = [p for p in model.parameters() if id(p) not in chosen]
    optimizers = [Muon(matrices), torch.optim.AdamW(rest, fused=True)]

    def step() -> None:
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = _loss_of(model)
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()

    return model, optimizers, step


def sharpness_aware() -> tuple[Any, Any, Any]:
    """Each step climbs to the worst neighbour, takes the gradient there, and returns."""
    model = _language_model().to(CUDA)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)

    def step() -> None:
        _loss_of(model).backward()
        with torch.no_grad():
            norm = torch.stack([p.grad.norm(2) for p in model.parameters()]).norm(2)
            climbs = {}
            for parameter in model.parameters():
                climbs[parameter] = parameter.grad * (0.05 / (norm + 1e-12))
                parameter.add_(climbs[parameter])
        optimizer.zero_grad()
        _loss_of(model).backward()
        with torch.no_grad():
            for parameter, climb in climbs.items():
                parameter.sub_(climb)
        optimizer.step()
        optimizer.zero_grad()

    return model, optimizer, step


def optimizer_in_backward() -> tuple[Any, Any, Any]:
    """Every parameter steps as soon as its gradient is there, which is then dropped."""
    model = _language_model(depth=4).to(CUDA)
    optimizers = {p: torch.optim.AdamW([p], 1e-3, foreach=False) for p in model.parameters()}

    def update(parameter: Tensor) -> None:
        optimizers[parameter].step()
        optimizers[parameter].zero_grad()

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(update)

    def step() -> None:
        _loss_of(model).backward()

    return model, list(optimizers.values()), step


def second_order() -> tuple[Any, Any, Any]:
    """L-BFGS with a closure, four evaluations a step and a history of five."""
    model = nn.Sequential(nn.Linear(256, 1024), nn.Tanh(), nn.Linear(1024, 512), nn.Tanh(), nn.Linear(512, 1)).to(CUDA)
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=4, history_size=5)
    x, y = torch.randn(4096, 256, device=CUDA), torch.randn(4096, 1, device=CUDA)

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        return loss

    return model, optimizer, lambda: optimizer.step(closure)


def sparse_and_dense() -> tuple[Any, Any, Any]:
    """Tables of embeddings with sparse gradients under SparseAdam, the rest under foreach Adam."""
    tables = nn.ModuleList(nn.Embedding(20000, 64, sparse=True) for _ in range(4)).to(CUDA)
    tower = nn.Sequential(nn.Linear(4 * 64, 512), nn.ReLU(), nn.Linear(512, 1)).to(CUDA)
    optimizers = [torch.optim.SparseAdam(list(tables.parameters())), torch.optim.Adam(tower.parameters())]

    def step() -> None:
        ids = torch.randint(0, 20000, (4, 4096), device=CUDA)
        found = torch.cat([table(column) for table, column in zip(tables, ids, strict=True)], 1)
        F.binary_cross_entropy_with_logits(tower(found).squeeze(1), torch.rand(4096, device=CUDA)).backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()

    return nn.ModuleList([tables, tower]), optimizers, step


PROGRAMS = {
    "8-bit Adam of one's own": eight_bit_adam,
    "Muon and AdamW": muon_and_adam,
    "sharpness-aware": sharpness_aware,
    "optimizer in backward": optimizer_in_backward,
    "L-BFGS": second_order,
    "SparseAdam and Adam": sparse_and_dense,
}
