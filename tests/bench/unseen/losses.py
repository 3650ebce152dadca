"""Loss functions."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor
from unseen.operators import CUDA, LABELS, LOGITS, constant, indices, operator


def _focal(x: Tensor, y: Tensor) -> Tensor:
    each = F.binary_cross_entropy_with_logits(x, y, reduction="none")
    return ((1 - torch.exp(-F.binary_cross_entropy_with_logits(x, y, reduction="none"))) ** 2 * each).mean()


def _ctc(x: Tensor, y: Tensor) -> Tensor:
    return F.ctc_loss(F.log_softmax(x, -1), y, torch.full((16,), 100), torch.full((16,), 20))


PROGRAMS = (
    operator("focal", _focal, LOGITS, constant(512, 1000)),
    operator("ctc", _ctc, (100, 16, 50), indices(50, 16, 20)),
    operator("ce", F.cross_entropy, LOGITS, LABELS, autocast=True, halves=True),
    operator("ce_big", F.cross_entropy, (2048, 32000), indices(32000, 2048), autocast=True, halves=True),
    operator(
        "ce_smooth", lambda x, y: F.cross_entropy(x, y, label_smoothing=0.1), LOGITS, LABELS, autocast=True, halves=True
    ),
    operator("ce_w", lambda x, y, w: F.cross_entropy(x, y, w), LOGITS, LABELS, constant(1000)),
    operator("ce_ign", lambda x, y: F.cross_entropy(x, y, ignore_index=-100), LOGITS, LABELS),
    operator("ce_none", lambda x, y: F.cross_entropy(x, y, reduction="none"), LOGITS, LABELS),
    operator("ce_prob", lambda x, y: F.cross_entropy(x, y), LOGITS, constant(512, 1000)),
    operator("ce_2d", F.cross_entropy, (8, 10, 64, 64), indices(10, 8, 64, 64), autocast=True, halves=True),
    operator("ce_3d", F.cross_entropy, (8, 100, 64), indices(100, 8, 64)),
    operator("nll", lambda x, y: F.nll_loss(F.log_softmax(x, -1), y), LOGITS, LABELS, autocast=True),
    operator("bce_logits", F.binary_cross_entropy_with_logits, LOGITS, constant(512, 1000), autocast=True, halves=True),
    operator(
        "bce_pw",
        lambda x, y, w: F.binary_cross_entropy_with_logits(x, y, pos_weight=w),
        LOGITS,
        constant(512, 1000),
        constant(1000),
    ),
    operator("bce", lambda x, y: F.binary_cross_entropy(x.sigmoid(), y), LOGITS, constant(512, 1000)),
    operator("mse", F.mse_loss, LOGITS, LOGITS, autocast=True, halves=True),
    operator("mse_t", F.mse_loss, LOGITS, constant(512, 1000)),
    operator("l1", F.l1_loss, LOGITS, constant(512, 1000), autocast=True),
    operator("smooth_l1", F.smooth_l1_loss, LOGITS, constant(512, 1000), autocast=True),
    operator("huber", F.huber_loss, LOGITS, constant(512, 1000)),
    operator(
        "kl",
        lambda x, y: F.kl_div(F.log_softmax(x, -1), y, reduction="batchmean"),
        LOGITS,
        constant(512, 1000),
        autocast=True,
    ),
    operator(
        "kl_log",
        lambda x, y: F.kl_div(F.log_softmax(x, -1), y, reduction="batchmean", log_target=True),
        LOGITS,
        constant(512, 1000),
    ),
    operator("cosine_sim", lambda a, b: F.cosine_similarity(a, b, -1), LOGITS, LOGITS, autocast=True),
    operator("cos_emb", lambda a, b: F.cosine_embedding_loss(a, b, torch.ones(512, device=CUDA)), LOGITS, LOGITS),
    operator("triplet", F.triplet_margin_loss, LOGITS, LOGITS, LOGITS),
    operator("margin", lambda a, b: F.margin_ranking_loss(a, b, torch.ones(512, device=CUDA)), (512,), (512,)),
    operator("hinge", lambda a, y: F.multi_margin_loss(a, y), LOGITS, LABELS),
    operator("gaussian_nll", lambda a, b: F.gaussian_nll_loss(a, torch.zeros_like(a), b.exp()), LOGITS, LOGITS),
    operator("poisson", lambda a, b: F.poisson_nll_loss(a, b), LOGITS, constant(512, 1000)),
    operator(
        "lsm_gather", lambda x, y: -F.log_softmax(x, -1).gather(-1, y[:, None]).mean(), LOGITS, LABELS, autocast=True
    ),
    operator("z_loss", lambda x: torch.logsumexp(x, -1).pow(2).mean(), LOGITS, autocast=True),
    operator("pairwise", F.pairwise_distance, LOGITS, LOGITS),
    operator("pdist", lambda x: F.pdist(x), (128, 64)),
    operator("soft_margin", lambda x: F.soft_margin_loss(x, torch.ones_like(x)), LOGITS),
    operator("ml_margin", lambda x: F.multilabel_soft_margin_loss(x, torch.ones_like(x)), LOGITS),
)
