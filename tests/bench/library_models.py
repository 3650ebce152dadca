"""Training steps of models as their libraries make them: torchvision's, timm's and transformers', with random weights.

Their code is nobody's here, and their convolutions and attentions run by cuDNN as in any training: no switch is set.
Each entry builds model, optimizer and step on "cuda"; sizes are those of the published models, batches those of a small
card. A library that is missing takes its entries along.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Build = Callable[[], tuple[nn.Module, torch.optim.Optimizer, Callable[[], None]]]
CUDA = "cuda"
HEADS: set[tuple[str, str]] = set()
"""Configurations and models of transformers that the programs use."""


def _optimizer(name: str, model: nn.Module) -> torch.optim.Optimizer:
    parameters = [p for p in model.parameters() if p.requires_grad]
    if name == "sgd":
        return torch.optim.SGD(parameters, 0.1, momentum=0.9, weight_decay=1e-4)
    return torch.optim.AdamW(parameters, 1e-4, fused=name == "fused" or None)


def _stepped(
    model: nn.Module,
    loss_of: Callable[[nn.Module], Tensor],
    *,
    optimizer: str,
    amp: torch.dtype | None,
    clip: bool = False,
) -> tuple[nn.Module, torch.optim.Optimizer, Callable[[], None]]:
    """The step that every training script has: loss under autocast, backward, clipping, step, gradients set to None."""
    chosen = _optimizer(optimizer, model)
    scaler = torch.amp.GradScaler(CUDA, enabled=amp is torch.float16)

    def step() -> None:
        with torch.autocast(CUDA, dtype=amp or torch.bfloat16, enabled=amp is not None):
            loss = loss_of(model)
        scaler.scale(loss).backward()
        if clip:
            scaler.unscale_(chosen)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(chosen)
        scaler.update()
        chosen.zero_grad(set_to_none=True)

    return model, chosen, step


def _images(
    make: Callable[[], nn.Module],
    *,
    batch: int,
    side: int = 224,
    optimizer: str = "sgd",
    amp: torch.dtype | None = None,
    channels_last: bool = False,
) -> tuple[nn.Module, torch.optim.Optimizer, Callable[[], None]]:
    with torch.device(CUDA):
        model = make().train()
    layout = torch.channels_last if channels_last else torch.contiguous_format
    model = model.to(memory_format=layout)

    def loss_of(model: nn.Module) -> Tensor:
        x = torch.randn(batch, 3, side, side, device=CUDA).contiguous(memory_format=layout)
        out = model(x)
        if isinstance(out, dict):  # torchvision's segmentation
            target = torch.randint(0, 21, (batch, side, side), device=CUDA)
            return F.cross_entropy(out["out"], target)
        target = torch.randint(0, out.shape[1], (batch,), device=CUDA)  # a model may have no head of its own
        return F.cross_entropy(out, target, label_smoothing=0.1)

    return _stepped(model, loss_of, optimizer=optimizer, amp=amp)


def _vision(name: str, **options: Any) -> Build:
    def build() -> Any:
        import torchvision

        return _images(lambda: torchvision.models.get_model(name, weights=None), **options)

    return build


def _segmentation(name: str, **options: Any) -> Build:
    def build() -> Any:
        import torchvision

        make = lambda: torchvision.models.get_model(name, weights=None, weights_backbone=None)  # noqa: E731
        return _images(make, **options)

    return build


def _timm(name: str, **options: Any) -> Build:
    def build() -> Any:
        import timm

        return _images(lambda: timm.create_model(name, pretrained=False), **options)

    return build


def _language(
    config: str,
    head: str,
    *,
    batch: int,
    length: int,
    amp: torch.dtype | None = None,
    optimizer: str = "adamw",
    checkpointed: bool = False,
    bf16: bool = False,
    lora: bool = False,
    **sizes: Any,
) -> Build:
    HEADS.add((config, head))

    def build() -> Any:
        import transformers

        settings = getattr(transformers, config)(**sizes)
        with torch.device(CUDA):
            model = getattr(transformers, head)(settings).train()
        if bf16:
            model = model.bfloat16()
        if checkpointed:
            model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
            model.config.use_cache = False
        if lora:
            model = _with_lora(model)

        def loss_of(model: nn.Module) -> Tensor:
            return _loss_of_words(model, head, batch, length, settings)

        return _stepped(model, loss_of, optimizer=optimizer, amp=amp, clip=True)

    return build


def _with_lora(model: nn.Module) -> nn.Module:
    from peft import LoraConfig, get_peft_model

    chosen = LoraConfig(
        r=16, lora_alpha=32, target_modules=["q_proj", "v_proj"], lora_dropout=0.05, task_type="CAUSAL_LM"
    )
    return get_peft_model(model, chosen)


def _loss_of_words(model: nn.Module, head: str, batch: int, length: int, settings: Any) -> Tensor:
    if "Whisper" in head:
        features = torch.randn(batch, 80, 3000, device=CUDA)
        return model(input_features=features, labels=_words(settings, batch, length)).loss
    if "Wav2Vec2" in head:
        return model(torch.randn(batch, length, device=CUDA)).last_hidden_state.float().square().mean()
    words = _words(settings, batch, length)
    if "Classification" in head:
        return model(input_ids=words, labels=torch.randint(0, 2, (batch,), device=CUDA)).loss
    return model(input_ids=words, labels=words).loss


def _words(settings: Any, batch: int, length: int) -> Tensor:
    return torch.randint(3, settings.vocab_size, (batch, length), device=CUDA)


BF16, FP16 = torch.bfloat16, torch.float16
_llama = functools.partial(
    _language,
    "LlamaConfig",
    "LlamaForCausalLM",
    vocab_size=32000,
    hidden_size=1024,
    intermediate_size=2816,
    num_hidden_layers=16,
    num_attention_heads=16,
    num_key_value_heads=4,
)
_ALL: dict[str, tuple[str, Build]] = {
    "resnet50, fp32": ("torchvision", _vision("resnet50", batch=32)),
    "resnet50, bf16, channels last": ("torchvision", _vision("resnet50", batch=64, amp=BF16, channels_last=True)),
    "resnet50, fp16": ("torchvision", _vision("resnet50", batch=64, amp=FP16)),
    "resnet18 of small images": ("torchvision", _vision("resnet18", batch=256, side=32)),
    "vgg16": ("torchvision", _vision("vgg16", batch=16, amp=BF16)),
    "densenet121": ("torchvision", _vision("densenet121", batch=32, amp=BF16)),
    "efficientnet_b0": ("torchvision", _vision("efficientnet_b0", batch=32, optimizer="adamw")),
    "efficientnet_v2_s, bf16, channels last": (
        "torchvision",
        _vision("efficientnet_v2_s", batch=32, amp=BF16, channels_last=True, optimizer="adamw"),
    ),
    "mobilenet_v3_large": ("torchvision", _vision("mobilenet_v3_large", batch=64)),
    "convnext_tiny, bf16": ("torchvision", _vision("convnext_tiny", batch=32, amp=BF16, optimizer="adamw")),
    "vit_b_16, bf16": ("torchvision", _vision("vit_b_16", batch=32, amp=BF16, optimizer="fused")),
    "swin_t, bf16": ("torchvision", _vision("swin_t", batch=32, amp=BF16, optimizer="adamw")),
    "deeplabv3_resnet50": ("torchvision", _segmentation("deeplabv3_resnet50", batch=4, side=320)),
    "fcn_resnet50, bf16": ("torchvision", _segmentation("fcn_resnet50", batch=4, side=320, amp=BF16)),
    "timm vit_base_patch16_224, fp32": ("timm", _timm("vit_base_patch16_224", batch=16, optimizer="adamw")),
    "timm vit_base_patch16_224, bf16": ("timm", _timm("vit_base_patch16_224", batch=64, amp=BF16, optimizer="fused")),
    "timm convnextv2_nano, bf16": ("timm", _timm("convnextv2_nano", batch=32, amp=BF16, optimizer="adamw")),
    "timm regnety_016": ("timm", _timm("regnety_016", batch=32)),
    "timm eva02_small_patch14_224, bf16": (
        "timm",
        _timm("eva02_small_patch14_224", batch=16, amp=BF16, optimizer="adamw"),
    ),
    "timm mixer_b16_224, bf16": ("timm", _timm("mixer_b16_224", batch=32, amp=BF16, optimizer="adamw")),
    "gpt2, fp32": ("transformers", _language("GPT2Config", "GPT2LMHeadModel", batch=4, length=512)),
    "gpt2, bf16": ("transformers", _language("GPT2Config", "GPT2LMHeadModel", batch=8, length=1024, amp=BF16)),
    "gpt2, bf16, checkpointed": (
        "transformers",
        _language("GPT2Config", "GPT2LMHeadModel", batch=8, length=1024, amp=BF16, checkpointed=True),
    ),
    "bert-base, masked words, fp16": (
        "transformers",
        _language("BertConfig", "BertForMaskedLM", batch=16, length=256, amp=FP16),
    ),
    "bert-base, classes": (
        "transformers",
        _language("BertConfig", "BertForSequenceClassification", batch=32, length=128),
    ),
    "distilbert, classes, bf16": (
        "transformers",
        _language("DistilBertConfig", "DistilBertForSequenceClassification", batch=64, length=128, amp=BF16),
    ),
    "t5-base, bf16": (
        "transformers",
        _language(
            *("T5Config", "T5ForConditionalGeneration"),
            **{"batch": 8, "length": 256, "amp": BF16, "decoder_start_token_id": 0},
            **{"d_model": 768, "d_ff": 3072, "num_layers": 12, "num_heads": 12},
        ),
    ),
    "llama of 0.3 billion, bf16 autocast": ("transformers", _llama(batch=4, length=1024, amp=BF16)),
    "llama of 0.3 billion, weights in bf16": (
        "transformers",
        _llama(batch=8, length=1024, bf16=True, optimizer="fused"),
    ),
    "llama of 0.3 billion, checkpointed": (
        "transformers",
        _llama(batch=8, length=2048, amp=BF16, checkpointed=True),
    ),
    "llama of 0.3 billion, LoRA": ("peft", _llama(batch=8, length=1024, bf16=True, lora=True)),
    "qwen2 of 0.5 billion, bf16": (
        "transformers",
        _language(
            *("Qwen2Config", "Qwen2ForCausalLM"),
            **{"batch": 2, "length": 1024, "amp": BF16, "vocab_size": 151936, "hidden_size": 896},
            **{"intermediate_size": 4864, "num_hidden_layers": 24, "num_attention_heads": 14},
            **{"num_key_value_heads": 2, "tie_word_embeddings": True},
        ),
    ),
    "whisper-small, bf16": (
        "transformers",
        _language(
            *("WhisperConfig", "WhisperForConditionalGeneration"),
            **{"batch": 4, "length": 128, "amp": BF16, "d_model": 768, "encoder_layers": 12, "decoder_layers": 12},
            **{"encoder_attention_heads": 12, "decoder_attention_heads": 12, "encoder_ffn_dim": 3072},
            **{"decoder_ffn_dim": 3072},
        ),
    ),
    "wav2vec2-base": (
        "transformers",
        _language("Wav2Vec2Config", "Wav2Vec2Model", batch=4, length=64000, mask_time_prob=0.0, layerdrop=0.0),
    ),
}


def programs() -> dict[str, Build]:
    """Those whose library is installed, by name."""
    return {name: build for name, (library, build) in _ALL.items() if importlib.util.find_spec(library) is not None}


def load() -> None:
    """Imports all that the programs need, once for every process that is forked afterwards."""
    for library in ("torchvision", "timm", "peft"):
        if importlib.util.find_spec(library) is not None:
            importlib.import_module(library)
    if importlib.util.find_spec("transformers") is not None:
        transformers = importlib.import_module("transformers")
        for config, head in sorted(HEADS):
            getattr(transformers, config)
            getattr(transformers, head)
