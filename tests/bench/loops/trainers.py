"""Loops that a library drives: Lightning in both of its ways, Hugging Face's Trainer, Accelerate."""

from __future__ import annotations

import logging
import tempfile
import warnings
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import IterableDataset

from tests.bench.loops.run import LoopRun


class _Stream(IterableDataset[Any]):
    def __init__(self, run: LoopRun, batch: Any) -> None:
        self._run, self._batch = run, batch

    def __iter__(self) -> Iterator[Any]:
        return self._run.batches(lambda: self._batch)


def _fit(run: LoopRun, *, automatic: bool) -> None:
    import lightning.pytorch as pl

    class Digits(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
            self.automatic_optimization = automatic

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            loss = functional.cross_entropy(self.net(batch[0]), batch[1])
            if automatic:
                return loss
            optimizer: Any = self.optimizers()
            optimizer.zero_grad()
            self.manual_backward(loss)
            optimizer.step()
            return None

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.Adam(self.parameters(), lr=1e-3)

    warnings.filterwarnings("ignore")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    loader = torch.utils.data.DataLoader(_Stream(run, (torch.rand(64, 64), torch.randint(10, (64,)))), batch_size=None)
    with tempfile.TemporaryDirectory() as folder:
        trainer = pl.Trainer(
            max_epochs=1,
            accelerator="cpu",
            default_root_dir=folder,
            enable_progress_bar=False,
            enable_model_summary=False,
            enable_checkpointing=False,
            logger=False,
            callbacks=run.callbacks(),
        )
        trainer.fit(Digits(), loader)


def lightning(run: LoopRun) -> None:
    """Lightning's Trainer, which steps by itself."""
    _fit(run, automatic=True)


def lightning_manual(run: LoopRun) -> None:
    """Lightning's Trainer with a module that steps by hand."""
    _fit(run, automatic=False)


def hugging_face(run: LoopRun) -> None:
    """Hugging Face's Trainer on a tiny language model."""
    import transformers
    from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

    transformers.logging.set_verbosity_error()
    model = LlamaForCausalLM(
        LlamaConfig(vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2)
    )
    tokens = torch.randint(64, (16,))
    rows = run.batches(lambda: {"input_ids": tokens, "labels": tokens})

    class Rows(IterableDataset[Any]):
        def __iter__(self) -> Iterator[Any]:
            return rows

    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            max_steps=run.total,
            per_device_train_batch_size=1,
            report_to=[],
            save_strategy="no",
            logging_strategy="no",
            disable_tqdm=True,
            use_cpu=True,
        )
        trainer = Trainer(model=model, args=arguments, train_dataset=Rows())
        for callback in run.callbacks("memguard.integrations.huggingface", "MemGuardCallback"):
            trainer.add_callback(callback)
        trainer.train()


def accelerate(run: LoopRun) -> None:
    """A plain loop whose model, optimizer and loader Accelerate has prepared."""
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True)
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    batch = torch.rand(64, 64), torch.randint(10, (64,))
    loader = torch.utils.data.DataLoader(_Stream(run, batch), batch_size=None)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    with run.guard(model, optimizer):
        for images, labels in loader:
            optimizer.zero_grad()
            accelerator.backward(functional.cross_entropy(model(images), labels))
            optimizer.step()
