"""A tiny GPT-2, built from its config, learns arithmetic with transformers' Trainer, guarded by MemGuardCallback.

    python examples/huggingface_tiny.py [--steps 60] [--leak] [--device virtual:256MiB] [--logdir DIR]

Nothing is downloaded. With --leak, `compute_loss` keeps each loss with its graph: memguard names the line.
"""

import argparse

import torch
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

from memguard.integrations.huggingface import MemGuardCallback

CHARACTERS = "0123456789+=."


class Sums(Dataset):
    """Additions of two numbers below a hundred, one character a token: ``7+25=32.``"""

    def __init__(self, count: int, seed: int, length: int = 12) -> None:
        pairs = torch.randint(0, 100, (count, 2), generator=torch.Generator().manual_seed(seed)).tolist()
        lines = [f"{a}+{b}={a + b}".ljust(length, ".") for a, b in pairs]
        self.tokens = torch.tensor([[CHARACTERS.index(character) for character in line] for line in lines])

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"input_ids": self.tokens[index], "labels": self.tokens[index]}


class LeakyTrainer(Trainer):
    """Wants to look at its losses later, and forgets that each one holds its graph."""

    history: list[torch.Tensor] = []  # noqa: RUF012 - part of the story

    def compute_loss(self, model, inputs, *args, **kwargs):
        loss = super().compute_loss(model, inputs, *args, **kwargs)
        if model.training:
            self.history.append(loss)
        return loss


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--leak", action="store_true")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--logdir", default="huggingface_tiny")
    given = parser.parse_args()

    torch.manual_seed(0)
    end = CHARACTERS.index(".")
    config = GPT2Config(
        vocab_size=len(CHARACTERS), n_positions=16, n_embd=48, n_layer=2, n_head=4, bos_token_id=end, eos_token_id=end
    )
    trainer = (LeakyTrainer if given.leak else Trainer)(
        model=GPT2LMHeadModel(config),
        args=TrainingArguments(
            output_dir=given.logdir,
            max_steps=given.steps,
            per_device_train_batch_size=32,
            gradient_accumulation_steps=2,
            learning_rate=3e-3,
            eval_strategy="steps",
            eval_steps=20,
            save_strategy="no",
            logging_steps=20,
            report_to=[],
            disable_tqdm=True,
            use_cpu=given.device.startswith("virtual") or given.device == "cpu",
        ),
        train_dataset=Sums(4000, seed=1),
        eval_dataset=Sums(200, seed=2),
        preprocess_logits_for_metrics=lambda logits, labels: logits.argmax(-1),  # keeps the choices, not the logits
        compute_metrics=lambda found: {"right": (found.predictions[:, :-1] == found.label_ids[:, 1:]).mean().item()},
        callbacks=[MemGuardCallback(device=given.device, log_every=10)],
    )
    trainer.train()
    print(f"validation: {trainer.state.log_history[-2]['eval_right']:.1%} of the characters right")


if __name__ == "__main__":
    main()
