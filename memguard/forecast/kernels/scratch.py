"""Memory that CUDA kernels take beside their outputs, operator by operator, in the order in which they take it.

Found by comparing traces with the real allocator's history, torch 2.15.0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from memguard.forecast.kernels import (
    scratch_attention,
    scratch_convolution,
    scratch_losses,
    scratch_norms,
    scratch_products,
    scratch_sorting,
)
from memguard.forecast.kernels.indexing import embedding_backward_plan, index_put_plan
from memguard.forecast.kernels.scratch_parts import (
    HALVES,
    Scratch,
    contiguous_copy,
    dims_of,
    nbytes_of,
    nothing,
    take_reduction,
)

if TYPE_CHECKING:
    from memguard.forecast.tracer import Tracer

_aten = torch.ops.aten


def _mask_first(tracer: Tracer, site: int, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
    """Dropout makes its mask before its output."""
    tracer.outputs(out[1], site)
    tracer.outputs(out[0], site)


def _reduction(tracer: Tracer, site: int, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
    """Numbers are cast before they are added, unless CUDA does so as it reads: halves to float."""
    tensor = args[0]
    cast = out.dtype != tensor.dtype and not (tensor.dtype in HALVES and out.dtype == torch.float32)
    tracer.outputs(out, site)
    if not tensor.numel():
        return
    copied = nothing
    if cast:
        tensor = torch.empty_strided(tensor.shape, tensor.stride(), dtype=out.dtype, device="meta")
        copied = tracer.hold(site, nbytes_of(tensor))
    dims = args[1] if len(args) > 1 else kwargs.get("dim")
    take_reduction(tracer, site, tensor, dims_of(tensor, dims))
    copied()


def _variance(tracer: Tracer, site: int, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
    tracer.outputs(out, site)
    dims = args[1] if len(args) > 1 else kwargs.get("dim")
    take_reduction(tracer, site, args[0], dims_of(args[0], dims), 16)


def _logsumexp(tracer: Tracer, site: int, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
    """The largest of each row, tested for infinity; then the exponentials."""
    nbytes = nbytes_of(out)
    largest = tracer.hold(site, nbytes)
    tracer.take(site, nbytes, out.numel())
    exponentials = tracer.hold(site, nbytes_of(args[0]))
    tracer.outputs(out, site)
    exponentials()
    largest()


def _roll(tracer: Tracer, site: int, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
    """One dimension after the other."""
    dims = args[2] if len(args) > 2 else kwargs.get("dims", [])
    rolled = [tracer.hold(site, nbytes_of(out)) for _ in range(1 if len(dims) > 1 else 0)]
    tracer.outputs(out, site)
    for release in rolled:
        release()


def _embedding_bag(tracer: Tracer, site: int, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
    result, bag_of_offset, bag_size, largest = out
    tracer.outputs((bag_size, bag_of_offset, result, largest), site)


def _embedding_bag_backward(tracer: Tracer, site: int, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
    if not isinstance(out, Tensor) or out.layout != torch.strided or args[8] > 1:  # sparse, or the largest of each bag
        tracer.outputs(out, site)
        return
    plan = embedding_backward_plan(args[1].numel(), out.shape[0], out.shape[1], out.element_size(), sort_always=True)
    tracer.play(site, plan, out)


def _norm(tracer: Tracer, site: int, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
    tracer.outputs(out, site)
    take_reduction(tracer, site, args[0], dims_of(args[0], args[2] if len(args) > 2 else None))


def _softmax_backward(tracer: Tracer, site: int, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
    """The product of gradient and output stands beside the result."""
    tracer.outputs(out, site)
    tracer.take(site, out.numel() * max(args[0].element_size(), args[1].element_size()))


def _embedding_backward(tracer: Tracer, site: int, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
    gradient, indices = args[:2]
    copied = contiguous_copy(tracer, site, gradient)
    plan = embedding_backward_plan(indices.numel(), out.shape[0], out.shape[1], out.element_size())
    tracer.play(site, plan, out)
    copied()


def _index_put(tracer: Tracer, site: int, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
    tracer.outputs(out, site)
    target, indices = args[:2]
    accumulate = args[3] if len(args) > 3 else kwargs.get("accumulate", False)
    if not accumulate:
        return
    used = [index for index in indices if index is not None]
    count = max((index.numel() for index in used), default=0)
    rows = 1
    for dim, index in enumerate(indices):
        rows *= target.shape[dim] if index is not None else 1
    tracer.play(site, index_put_plan(count, rows))


def _safe_softmax(tracer: Tracer, site: int, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
    """Rows that are masked throughout become zero: a mask of elements, one of rows, and the zero."""
    tracer.outputs(out, site)
    rows = out.numel() // max(out.shape[args[1]], 1)
    tracer.take(site, out.numel(), rows, out.element_size())


def _test(tracer: Tracer, site: int, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
    """any, all: a byte for each partial answer."""
    tracer.outputs(out, site)
    dims = args[1] if len(args) > 1 else kwargs.get("dim")
    take_reduction(tracer, site, args[0], dims_of(args[0], [dims] if isinstance(dims, int) else dims), 1)


def _windows(tracer: Tracer, site: int, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
    """unfold: its output begins as large as its input."""
    smaller = tracer.hold(site, nbytes_of(args[0]))
    tracer.outputs(out, site)
    smaller()


def _from_windows(tracer: Tracer, site: int, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
    """fold: its output lies in memory as large as its input."""
    tracer.larger(out, site, nbytes_of(args[0]))


def _distances_backward(tracer: Tracer, site: int, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
    """pdist: the gradient of every pair, before they are added up."""
    tracer.outputs(out, site)
    tracer.take(site, max(out.shape[0] - 1, 0) * nbytes_of(out))


_SCRATCH: dict[Any, Scratch] = {
    _aten.any.default: _test,
    _aten.any.dim: _test,
    _aten.all.default: _test,
    _aten.all.dim: _test,
    _aten.im2col.default: _windows,
    _aten.col2im.default: _from_windows,
    _aten._pdist_backward.default: _distances_backward,
    _aten._trilinear.default: scratch_products.trilinear,
    _aten.soft_margin_loss.default: scratch_losses.soft_margin_loss,
    _aten.soft_margin_loss_backward.default: scratch_losses.soft_margin_loss_backward,
    _aten.native_dropout.default: _mask_first,
    _aten._thnn_fused_lstm_cell.default: scratch_losses.lstm_cell,
    _aten.native_layer_norm.default: scratch_norms.layer_norm,
    _aten.native_layer_norm_backward.default: scratch_norms.layer_norm_backward,
    _aten.native_group_norm.default: scratch_norms.group_norm,
    _aten.native_group_norm_backward.default: scratch_norms.group_norm_backward,
    _aten.mm.default: scratch_products.gemm,
    _aten.bmm.default: scratch_products.gemm,
    _aten.baddbmm.default: scratch_products.gemm,
    _aten.addmm.default: scratch_products.addmm,
    _aten.sum.default: _reduction,
    _aten.sum.dim_IntList: _reduction,
    _aten.mean.default: _reduction,
    _aten.mean.dim: _reduction,
    _aten.amax.default: _reduction,
    _aten.amin.default: _reduction,
    _aten.linalg_vector_norm.default: _norm,
    _aten._scaled_dot_product_efficient_attention.default: scratch_attention.efficient_forward,
    _aten._scaled_dot_product_efficient_attention_backward.default: scratch_attention.efficient_backward,
    _aten._scaled_dot_product_flash_attention.default: scratch_attention.flash_forward,
    _aten._scaled_dot_product_flash_attention_backward.default: scratch_attention.flash_backward,
    _aten._softmax_backward_data.default: _softmax_backward,
    _aten.embedding_dense_backward.default: _embedding_backward,
    _aten.index_put_.default: _index_put,
    _aten._index_put_impl_.default: _index_put,
    _aten.convolution.default: scratch_convolution.convolution,
    _aten.convolution_backward.default: scratch_convolution.convolution_backward,
    _aten.native_batch_norm.default: scratch_norms.batch_norm,
    _aten.native_batch_norm_backward.default: scratch_norms.batch_norm_backward,
    _aten.mse_loss.default: scratch_losses.resized_loss,
    _aten.smooth_l1_loss.default: scratch_losses.resized_loss,
    _aten.huber_loss.default: scratch_losses.averaged_loss,
    _aten.binary_cross_entropy.default: scratch_losses.probability_loss,
    _aten.binary_cross_entropy_with_logits.default: scratch_losses.logit_loss,
    _aten.sort.default: scratch_sorting.sort,
    _aten.sort.stable: scratch_sorting.sort,
    _aten._thnn_fused_gru_cell.default: scratch_losses.gru_cell,
    _aten._thnn_fused_gru_cell_backward.default: scratch_losses.gru_cell_backward,
    _aten._ctc_loss.default: scratch_losses.ctc_loss,
    _aten._ctc_loss.Tensor: scratch_losses.ctc_loss,
    _aten._ctc_loss_backward.default: scratch_losses.ctc_loss_backward,
    _aten._ctc_loss_backward.Tensor: scratch_losses.ctc_loss_backward,
    _aten.logsumexp.default: _logsumexp,
    _aten.roll.default: _roll,
    _aten.var.correction: _variance,
    _aten.std.correction: _variance,
    _aten.var_mean.correction: _variance,
    _aten.std_mean.correction: _variance,
    _aten.max.default: _reduction,
    _aten.min.default: _reduction,
    _aten.dot.default: scratch_products.gemm,
    _aten.vdot.default: scratch_products.gemm,
    _aten.mv.default: scratch_products.gemm,
    _aten.addmv.default: scratch_products.gemm,
    _aten._embedding_bag.default: _embedding_bag,
    _aten._embedding_bag_forward_only.default: _embedding_bag,
    _aten._embedding_bag_backward.default: _embedding_bag_backward,
}

if hasattr(_aten, "_safe_softmax"):  # torch 2.4 has neither of the two
    _SCRATCH[_aten._safe_softmax.default] = _safe_softmax
if hasattr(_aten, "_grouped_mm"):
    _SCRATCH[_aten._grouped_mm.default] = scratch_products.grouped_mm


def scratch_of(func: Any) -> Scratch | None:
    """How the operator's CUDA kernel takes memory, or None if its outputs are all."""
    return _SCRATCH.get(func)
