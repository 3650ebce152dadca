"""The tables of two articles on PyTorch's memory, measured there on a GPU, come out of the virtual one to the digit."""

from __future__ import annotations

import torch

from memguard.text.units import MIB
from tests.backends.virtual_gpu import virtual_gpu


def test_temporaries_of_attention() -> None:
    """What an expression holds ends with the function that computed it; at module level its names hold on."""
    with virtual_gpu() as gpu:
        q, v = torch.randn(64, 8, 32, 64), torch.randn(64, 8, 32, 64)
        k, x = torch.randn(64, 8, 64, 32), torch.randn(64, 32, 512)
        assert gpu.allocated == 16.0
        seen = []

        def attend(x: torch.Tensor) -> None:
            attn = (q @ k) * 0.125
            seen.append(gpu.allocated)
            x = (attn @ v).transpose(1, 2).reshape(64, 32, 512)
            seen.append(gpu.allocated)
            del x

        attend(x)
        assert [*seen, gpu.allocated] == [18.0, 22.0, 16.0]

        attn = (q @ k) * 0.125
        x = (attn @ v).transpose(1, 2).reshape(64, 32, 512)
        assert gpu.allocated == 18.0
        del attn


def test_rebinding_in_a_function() -> None:
    """A result that nobody names is gone at once; one that takes the argument's name is there beside it."""
    with virtual_gpu() as gpu:
        tensors = [torch.randn(64, 8, 32, 64) for _ in range(3)]
        x = torch.randn(64, 32, 512)
        seen = []

        def unnamed(x: torch.Tensor) -> None:
            x + 1
            seen.append(gpu.allocated)

        def named(x: torch.Tensor) -> None:
            x = x + 1
            seen.append(gpu.allocated)

        unnamed(x)
        named(x)
        assert seen == [16.0, 20.0]
        assert len(tensors) == 3


def test_names_and_the_cache() -> None:
    """Dropped memory stays reserved and is used again; made again under its own name, a tensor needs it twice."""
    size = 64 * MIB

    def make() -> torch.Tensor:
        return torch.empty(size, dtype=torch.uint8)

    with virtual_gpu() as gpu:
        before = gpu.reserved
        seen = []

        def look() -> None:
            seen.append((gpu.allocated / 64, (gpu.reserved - before) / 64))

        a, b = make(), make()
        look()
        del b
        look()
        c = make()
        look()
        c = make()
        look()
        d = make()
        look()
        del d
        look()
        assert seen == [(2, 2), (1, 2), (2, 2), (2, 3), (3, 3), (2, 3)]
        del a, c
