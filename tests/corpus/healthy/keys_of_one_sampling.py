"""A decoder draws texts now and then: each drawing keeps its keys and values in an object of its own, which ends with it."""

import torch
from torch import nn
from torch.nn import functional


class Drawing:
    def __init__(self) -> None:
        self.keys: list[torch.Tensor] = []
        self.values: list[torch.Tensor] = []

    def extend(self, key: torch.Tensor, value: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        self.keys.append(key)
        self.values.append(value)
        return torch.cat(self.keys, 1), torch.cat(self.values, 1)


class Decoder(nn.Module):
    def __init__(self, words: int = 128, width: int = 192) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(words, width), nn.Linear(width, words)
        self.attend = nn.Linear(width, 3 * width)

    def forward(self, words: torch.Tensor, drawing: Drawing | None = None) -> torch.Tensor:
        query, key, value = self.attend(self.embed(words)).chunk(3, -1)
        if drawing is not None:
            key, value = drawing.extend(key, value)
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=drawing is None)
        return self.head(mixed)


@torch.inference_mode()
def draw(model: Decoder, texts: int = 8, length: int = 48) -> list[list[int]]:
    drawing, word, drawn = Drawing(), torch.zeros(texts, 1, dtype=torch.long), []
    for _ in range(length):
        word = model(word, drawing)[:, -1:].argmax(-1)
        drawn.append(word)
    return torch.cat(drawn, 1).tolist()


torch.manual_seed(0)
model = Decoder()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step in range(60):
    words = torch.randint(128, (16, 33))
    optimizer.zero_grad()
    functional.cross_entropy(model(words[:, :-1]).flatten(0, 1), words[:, 1:].flatten()).backward()
    optimizer.step()
    if step % 12 == 11:
        texts = draw(model)
