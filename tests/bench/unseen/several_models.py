"""Steps in which several networks take part: adversaries, teachers, momentum encoders, a policy and its reference."""

from __future__ import annotations

import copy
import itertools
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

CUDA = "cuda"


def _convolutions(*channels: int, stride: int = 2) -> nn.Sequential:
    layers: list[nn.Module] = []
    for narrow, wide in itertools.pairwise(channels):
        layers += [nn.Conv2d(narrow, wide, 3, stride, 1), nn.BatchNorm2d(wide), nn.LeakyReLU(0.2)]
    return nn.Sequential(*layers)


def gradient_penalty() -> tuple[Any, Any, Any]:
    """A Wasserstein GAN: two critic updates with a gradient penalty, then one of the generator."""
    generator = nn.Sequential(
        nn.Linear(64, 8 * 8 * 128),
        nn.Unflatten(1, (128, 8, 8)),
        nn.Upsample(scale_factor=2),
        nn.Conv2d(128, 64, 3, padding=1),
        nn.ReLU(),
        nn.Upsample(scale_factor=2),
        nn.Conv2d(64, 3, 3, padding=1),
        nn.Tanh(),
    ).to(CUDA)
    critic = nn.Sequential(
        nn.Conv2d(3, 64, 4, 2, 1),
        nn.LeakyReLU(0.2),
        nn.Conv2d(64, 128, 4, 2, 1),
        nn.LeakyReLU(0.2),
        nn.Flatten(),
        nn.Linear(128 * 64, 1),
    ).to(CUDA)
    of_generator = torch.optim.Adam(generator.parameters(), 1e-4, betas=(0.0, 0.9))
    of_critic = torch.optim.Adam(critic.parameters(), 1e-4, betas=(0.0, 0.9))

    def step() -> None:
        for _ in range(2):
            real = torch.randn(48, 3, 32, 32, device=CUDA)
            with torch.no_grad():
                made = generator(torch.randn(48, 64, device=CUDA))
            share = torch.rand(48, 1, 1, 1, device=CUDA)
            between = (share * real + (1 - share) * made).requires_grad_()
            (slope,) = torch.autograd.grad(critic(between).sum(), between, create_graph=True)
            penalty = (slope.flatten(1).norm(2, dim=1) - 1).pow(2).mean()
            loss = critic(made).mean() - critic(real).mean() + 10 * penalty
            of_critic.zero_grad()
            loss.backward()
            of_critic.step()
        of_generator.zero_grad()
        (-critic(generator(torch.randn(48, 64, device=CUDA))).mean()).backward()
        of_generator.step()

    return nn.ModuleList([generator, critic]), [of_generator, of_critic], step


def momentum_contrast() -> tuple[Any, Any, Any]:
    """Contrastive learning against a queue of keys, which a slowly following encoder makes; bf16 autocast."""
    encoder = nn.Sequential(_convolutions(3, 48, 96, 192), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(192, 128))
    encoder = encoder.to(CUDA)
    follower = copy.deepcopy(encoder).requires_grad_(False)
    encoder.register_buffer("queue", F.normalize(torch.randn(128, 8192, device=CUDA), dim=0))
    optimizer = torch.optim.SGD(encoder.parameters(), 0.03, momentum=0.9, weight_decay=1e-4)
    place = 0

    def step() -> None:
        nonlocal place
        first, second = (torch.randn(64, 3, 64, 64, device=CUDA) for _ in range(2))
        with torch.autocast("cuda", dtype=torch.bfloat16):
            query = F.normalize(encoder(first), dim=1)
            with torch.no_grad():
                for slow, fast in zip(follower.parameters(), encoder.parameters(), strict=True):
                    slow.data = slow.data * 0.999 + fast.data * 0.001
                order = torch.randperm(64, device=CUDA)
                key = F.normalize(follower(second[order]), dim=1)[torch.argsort(order)]
            positive = torch.einsum("nc,nc->n", query, key).unsqueeze(-1)
            negative = torch.einsum("nc,ck->nk", query, encoder.queue.clone().detach())
            logits = torch.cat([positive, negative], dim=1) / 0.07
            loss = F.cross_entropy(logits, torch.zeros(64, dtype=torch.long, device=CUDA))
        encoder.queue[:, place : place + 64] = key.T
        place = (place + 64) % 8192
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return encoder, optimizer, step


def distillation() -> tuple[Any, Any, Any]:
    """A small transformer learns the softened answers of a large frozen one, which runs in half precision."""

    def transformer(width: int, depth: int) -> nn.Module:
        layer = nn.TransformerEncoderLayer(width, 8, 4 * width, activation=F.gelu, batch_first=True, norm_first=True)
        body = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        return nn.Sequential(nn.Embedding(5000, width), body, nn.LayerNorm(width), nn.Linear(width, 5000))

    teacher = transformer(512, 6).to(CUDA).half().eval()
    student = transformer(256, 3).to(CUDA)
    optimizer = torch.optim.AdamW(student.parameters(), 3e-4)
    scaler = torch.amp.GradScaler("cuda")

    def step() -> None:
        words = torch.randint(0, 5000, (8, 128), device=CUDA)
        with torch.inference_mode():
            soft = teacher(words)
        soft = soft.clone()
        with torch.autocast("cuda", dtype=torch.float16):
            logits = student(words)
        hard = F.cross_entropy(logits.flatten(0, 1).float(), words.flatten())
        warm = F.kl_div(F.log_softmax(logits.float() / 2, -1), F.softmax(soft.float() / 2, -1), reduction="batchmean")
        optimizer.zero_grad()
        scaler.scale(hard + 4 * warm / 128).backward()
        scaler.step(optimizer)
        scaler.update()

    return student, optimizer, step


class _Policy(nn.Module):
    def __init__(self, width: int = 192, words: int = 3000) -> None:
        super().__init__()
        self.words, self.width = nn.Embedding(words, width), width
        self.mix, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.head, self.value = nn.Linear(width, words, bias=False), nn.Linear(width, 1)

    def forward(self, tokens: Tensor, cache: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, Tensor, Any]:
        x = self.words(tokens)
        query, key, value = (t.unflatten(-1, (6, -1)).transpose(1, 2) for t in self.mix(x).chunk(3, -1))
        if cache is not None:
            key, value = torch.cat([cache[0], key], 2), torch.cat([cache[1], value], 2)
        seen = F.scaled_dot_product_attention(query, key, value, is_causal=cache is None)
        x = x + self.out(seen.transpose(1, 2).flatten(2))
        x = x + self.wide(x)
        return self.head(x), self.value(x).squeeze(-1), (key, value)


def policy_gradient() -> tuple[Any, Any, Any]:
    """Text is sampled with a growing cache, scored by a reference, and trained on with a clipped ratio."""
    policy = _Policy().to(CUDA)
    reference = copy.deepcopy(policy).eval().requires_grad_(False)
    optimizer = torch.optim.AdamW(policy.parameters(), 1e-5, fused=True)

    def step() -> None:
        prompt = torch.randint(0, 3000, (8, 32), device=CUDA)
        with torch.no_grad():
            logits, _, cache = policy(prompt)
            text = [prompt]
            for _ in range(24):
                word = torch.multinomial(logits[:, -1].softmax(-1), 1)
                text.append(word)
                logits, _, cache = policy(word, cache)
            whole = torch.cat(text, 1)
            old_logits, old_values, _ = policy(whole)
            old = old_logits.log_softmax(-1).gather(-1, whole.unsqueeze(-1)).squeeze(-1)
            other = reference(whole)[0].log_softmax(-1).gather(-1, whole.unsqueeze(-1)).squeeze(-1)
            reward = torch.randn(8, 56, device=CUDA) - 0.1 * (old - other)
            gain = reward.flip(1).cumsum(1).flip(1) - old_values
            gain = (gain - gain.mean()) / (gain.std() + 1e-8)
        for _ in range(2):
            logits, values, _ = policy(whole)
            new = logits.log_softmax(-1).gather(-1, whole.unsqueeze(-1)).squeeze(-1)
            ratio = (new - old).exp()
            surrogate = torch.min(ratio * gain, ratio.clamp(0.8, 1.2) * gain).mean()
            loss = 0.5 * F.mse_loss(values, gain + old_values) - surrogate
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
            optimizer.step()

    return policy, optimizer, step


PROGRAMS = {
    "gradient penalty GAN": gradient_penalty,
    "momentum contrast": momentum_contrast,
    "distillation": distillation,
    "policy gradient": policy_gradient,
}
