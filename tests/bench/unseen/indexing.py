"""Gathers, scatters, index_put and embeddings."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor
from unseen.operators import CUDA, ROWS, TOKENS, WORDS, indices, operator


def _set_rows(x: Tensor, i: Tensor) -> Tensor:
    y = torch.zeros(1000, 256, device=CUDA)
    y[i] = x
    return y


def _rows(x: Tensor) -> Tensor:
    return torch.zeros(1000, 256, device=CUDA, dtype=x.dtype)


def _blocks(x: Tensor) -> Tensor:
    return torch.zeros(64, 128, 256, device=CUDA, dtype=x.dtype)


PROGRAMS = (
    operator("gather", lambda x, i: x.gather(1, i[:, :, None].expand(-1, -1, 256)), TOKENS, ROWS),
    operator("gather_last", lambda x, i: x.gather(-1, i[:, :, None]), (64, 32, 1000), indices(1000, 64, 32)),
    operator("index1", lambda x, i: x[i], (1000, 256), indices(1000, 4096)),
    operator("index1_2d", lambda x, i: x[i], (1000, 256), indices(1000, 16, 128)),
    operator("index_colon", lambda x, i: x[i, :], (10000, 256), indices(10000, 16, 128), halves=True),
    operator("index_mid", lambda x, i: x[:, i], TOKENS, indices(128, 50)),
    operator("index_two", lambda x, i, j: x[i, j], TOKENS, indices(64, 500), indices(128, 500)),
    operator("index_select", lambda x, i: x.index_select(0, i), (1000, 256), indices(1000, 4096)),
    operator("index_select1", lambda x, i: x.index_select(1, i), TOKENS, indices(128, 50)),
    operator("take_along", lambda x, i: x.take_along_dim(i[:, :, None], 1), TOKENS, ROWS),
    operator(
        "scatter_add", lambda x, i: _blocks(x).scatter_add(1, i[:, :, None].expand(-1, -1, 256), x), (64, 32, 256), ROWS
    ),
    operator("scatter", lambda x, i: _blocks(x).scatter(1, i[:, :, None].expand(-1, -1, 256), x), (64, 32, 256), ROWS),
    operator("index_add", lambda x, i: _rows(x).index_add(0, i, x), (4096, 256), indices(1000, 4096), halves=True),
    operator("index_add_", lambda x, i: _rows(x).index_add_(0, i, x), (4096, 256), indices(1000, 4096)),
    operator(
        "scatter_reduce",
        lambda x, i: _rows(x).scatter_reduce(0, i[:, None].expand(-1, 256), x, "mean"),
        (4096, 256),
        indices(1000, 4096),
    ),
    operator(
        "scatter_reduce_max",
        lambda x, i: _rows(x).scatter_reduce(0, i[:, None].expand(-1, 256), x, "amax"),
        (4096, 256),
        indices(1000, 4096),
    ),
    operator("index_copy", lambda x, i: _rows(x).index_copy(0, i, x), (500, 256), indices(1000, 500)),
    operator(
        "index_put_acc", lambda x, i: _rows(x).index_put((i,), x, accumulate=True), (4096, 256), indices(1000, 4096)
    ),
    operator("index_set", lambda x, i: _set_rows(x, i), (4096, 256), indices(1000, 4096)),
    operator("rel_bias", lambda x, i: x[i].permute(2, 0, 1), (169, 8), indices(169, 49, 49), halves=True),
    operator("rel_bias_flat", lambda x, i: x[i.view(-1)].view(49, 49, -1), (169, 8), indices(169, 49, 49)),
    operator("embedding", lambda i, w: F.embedding(i, w), WORDS, (1000, 256), autocast=True, halves=True),
    operator("embedding_small", lambda i, w: F.embedding(i, w), indices(1000, 16), (1000, 256)),
    operator("embedding_big", lambda i, w: F.embedding(i, w), indices(50000, 16, 512), (50000, 64), halves=True),
    operator("embedding_pad", lambda i, w: F.embedding(i, w, padding_idx=0), indices(1000, 64, 128), (1000, 256)),
    operator(
        "embedding_scale", lambda i, w: F.embedding(i, w, scale_grad_by_freq=True), indices(1000, 64, 128), (1000, 256)
    ),
    operator("embedding_sparse", lambda i, w: F.embedding(i, w, sparse=True), indices(1000, 64, 128), (1000, 256)),
    operator("embedding_bag", lambda i, w: F.embedding_bag(i, w), indices(1000, 512, 16), (1000, 64)),
    operator("embedding_bag_sum", lambda i, w: F.embedding_bag(i, w, mode="sum"), indices(1000, 512, 16), (1000, 64)),
    operator(
        "embedding_bag_off",
        lambda i, w: F.embedding_bag(i, w, torch.arange(0, 4096, 8, device=CUDA), mode="sum"),
        indices(1000, 4096),
        (1000, 64),
    ),
    operator("embedding_bag_max", lambda i, w: F.embedding_bag(i, w, mode="max"), indices(1000, 512, 16), (1000, 64)),
    operator(
        "embedding_bag_sparse",
        lambda i, w: F.embedding_bag(i, w, mode="sum", sparse=True),
        indices(1000, 512, 16),
        (1000, 64),
    ),
    operator("one_hot", lambda i, x: F.one_hot(i, 100).to(x.dtype) @ x, indices(100, 512), (100, 64)),
)
