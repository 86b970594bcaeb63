"""A Llama as one writes it by hand: fused RMSNorm, complex rotary embedding, no casts but the loss's."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional


class Attention(nn.Module):
    """Grouped causal attention; tokens batch × sequence × hidden."""

    def __init__(self, c: Any) -> None:
        super().__init__()
        self.heads, self.key_heads, self.size = c.heads, c.key_heads, c.hidden // c.heads
        self.wq = nn.Linear(c.hidden, c.heads * self.size, bias=False)
        self.wk = nn.Linear(c.hidden, c.key_heads * self.size, bias=False)
        self.wv = nn.Linear(c.hidden, c.key_heads * self.size, bias=False)
        self.wo = nn.Linear(c.heads * self.size, c.hidden, bias=False)

    def forward(self, x: Tensor, turns: Tensor) -> Tensor:
        """Return the mixed tokens."""
        b, s, _ = x.shape
        q = rotate(self.wq(x).view(b, s, self.heads, self.size), turns).transpose(1, 2)
        k = rotate(self.wk(x).view(b, s, self.key_heads, self.size), turns).transpose(1, 2)
        v = self.wv(x).view(b, s, self.key_heads, self.size).transpose(1, 2)
        grouped = self.heads != self.key_heads
        out = functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=grouped)
        return self.wo(out.transpose(1, 2).reshape(b, s, -1))


def rotate(x: Tensor, turns: Tensor) -> Tensor:
    """Return x with its pairs turned, by complex multiplication in fp32."""
    pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * turns[None, : x.shape[1], None]).flatten(3).type_as(x)


class Layer(nn.Module):
    """Attention and SwiGLU, each behind a norm."""

    def __init__(self, c: Any) -> None:
        super().__init__()
        self.attention_norm = nn.RMSNorm(c.hidden, eps=1e-5)
        self.attention = Attention(c)
        self.ffn_norm = nn.RMSNorm(c.hidden, eps=1e-5)
        self.w1 = nn.Linear(c.hidden, c.intermediate, bias=False)
        self.w3 = nn.Linear(c.hidden, c.intermediate, bias=False)
        self.w2 = nn.Linear(c.intermediate, c.hidden, bias=False)

    def forward(self, x: Tensor, turns: Tensor) -> Tensor:
        """Return the tokens after the layer."""
        x = x + self.attention(self.attention_norm(x), turns)
        y = self.ffn_norm(x)
        return x + self.w2(functional.silu(self.w1(y)) * self.w3(y))


class CleanLlama(nn.Module):
    """The language model. `forward` returns the loss as ``.loss``, from fp32 logits."""

    def __init__(
        self, hidden: int, intermediate: int, layers: int, heads: int, key_heads: int, vocabulary: int
    ) -> None:
        super().__init__()
        c = SimpleNamespace(hidden=hidden, intermediate=intermediate, heads=heads, key_heads=key_heads)
        self.config = SimpleNamespace(image_size=None)
        self.embedding = nn.Embedding(vocabulary, hidden)
        self.layers = nn.ModuleList(Layer(c) for _ in range(layers))
        self.norm = nn.RMSNorm(hidden, eps=1e-5)
        self.output = nn.Linear(hidden, vocabulary, bias=False)
        size = hidden // heads
        angles = torch.outer(torch.arange(4096), 10000.0 ** -(torch.arange(0, size, 2) / size))
        self.register_buffer("turns", torch.polar(torch.ones_like(angles), angles), persistent=False)

    def forward(self, input_ids: Tensor, labels: Tensor) -> dict[str, Tensor]:
        """Return the loss of predicting `labels`, both batch × sequence."""
        x = self.embedding(input_ids)
        for layer in self.layers:
            x = layer(x, self.turns)
        logits = self.output(self.norm(x))
        return {"loss": functional.cross_entropy(logits.flatten(0, 1).float(), labels.flatten())}
