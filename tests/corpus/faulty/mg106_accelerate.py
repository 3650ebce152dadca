# Accelerate accumulates over eight batches; log-probabilities wait until gradients are synchronized.
# device: virtual:1GiB
import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
accelerator = Accelerator(gradient_accumulation_steps=8, cpu=True)
model = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 2000))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
loader = DataLoader(TensorDataset(torch.randn(3072, 64), torch.randint(0, 2000, (3072,))), batch_size=96)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)

logits_of_step = []
for x, y in loader:
    with accelerator.accumulate(model):
        logits = model(x)
        loss = nn.functional.cross_entropy(logits, y)
        accelerator.backward(loss)
        logits_of_step.append(logits.log_softmax(-1))  # !MG106 logits_of_step
        optimizer.step()
        optimizer.zero_grad()
    if accelerator.sync_gradients:
        accelerator.print(torch.cat(logits_of_step).exp().amax(-1).mean().item())
        logits_of_step = []
