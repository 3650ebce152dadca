# device: virtual:96MiB
# runs out of memory
# cause: size
"""Hugging Face's Trainer and a tiny GPT-2 with random weights; too many sequences a device."""

import tempfile

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

torch.manual_seed(0)


class Ids(torch.utils.data.Dataset):
    def __len__(self):
        return 512

    def __getitem__(self, i):
        ids = torch.randint(0, 2000, (64,))
        return {"input_ids": ids, "labels": ids}


model = GPT2LMHeadModel(GPT2Config(vocab_size=2000, n_positions=64, n_embd=64, n_layer=3, n_head=4))
args = TrainingArguments(
    tempfile.mkdtemp(),
    per_device_train_batch_size=64,
    max_steps=4,
    report_to=[],
    save_strategy="no",
    use_cpu=True,
    disable_tqdm=True,
    logging_strategy="no",
    dataloader_pin_memory=False,
)
Trainer(model=model, args=args, train_dataset=Ids()).train()
