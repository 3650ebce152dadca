# A Trainer of Hugging Face accumulates gradients; compute_loss keeps outputs until they are logged.
# device: virtual:1GiB
import tempfile

import torch
from torch import nn
from torch.utils.data import Dataset
from transformers import Trainer, TrainingArguments


class Words(Dataset):
    def __len__(self):
        return 768

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(index)
        return {"x": torch.randn(64, generator=generator), "labels": torch.tensor(index % 2000)}


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 2000))

    def forward(self, x, labels=None):
        logits = self.net(x)
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits, "probs": logits.softmax(-1)}


class KeepingTrainer(Trainer):
    window = []

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        outputs = model(**inputs)
        self.window.append(outputs)  # !MG106 KeepingTrainer.window
        return (outputs["loss"], outputs) if return_outputs else outputs["loss"]

    def log(self, logs, *args, **kwargs):
        if self.window:
            logs["confidence"] = torch.cat([o["probs"] for o in self.window]).amax(-1).mean().item()
            self.window.clear()
        super().log(logs, *args, **kwargs)


with tempfile.TemporaryDirectory() as folder:
    arguments = TrainingArguments(
        folder, per_device_train_batch_size=64, gradient_accumulation_steps=6, num_train_epochs=2, logging_steps=1,
        report_to=[], save_strategy="no", use_cpu=True, disable_tqdm=True,
    )
    torch.manual_seed(0)
    KeepingTrainer(model=Net(), args=arguments, train_dataset=Words()).train()
