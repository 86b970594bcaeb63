"""torchtitan 0.3.0's Llama 3 in plain torch (models/llama3/model.py, models/common), and Liger's SwiGLU."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint


class SiLUMul(torch.autograd.Function):
    """LigerSiLUMulFunction: the backward writes over what was saved."""

    @staticmethod
    def forward(ctx: Any, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        shape = a.shape
        a, b = a.view(-1, shape[-1]), b.view(-1, shape[-1])
        c = torch.empty_like(a)
        ctx.save_for_backward(a, b)
        return c.view(*shape)

    @staticmethod
    def backward(ctx: Any, dc: torch.Tensor) -> Any:
        a, b = ctx.saved_tensors
        a.fill_(0.0)
        b.fill_(0.0)
        return a.view(*dc.shape), b.view(*dc.shape)


def apply_rotary_emb(query: torch.Tensor, key: torch.Tensor, cache: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    xq_ = torch.view_as_complex(query.float().reshape(*query.shape[:-1], -1, 2))
    xk_ = torch.view_as_complex(key.float().reshape(*key.shape[:-1], -1, 2))
    xq_out = torch.view_as_real(xq_ * cache).flatten(3)
    xk_out = torch.view_as_real(xk_ * cache).flatten(3)
    return xq_out.type_as(query), xk_out.type_as(key)


class RoPE(nn.Module):
    def __init__(self, positions: int, size: int) -> None:
        super().__init__()
        self.register_buffer("cache", torch.empty(positions, size // 2, dtype=torch.complex64), persistent=False)

    def forward(self, query: torch.Tensor, key: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        reshaped = self.cache[0 : query.shape[1]].view(1, query.shape[1], 1, query.shape[-1] // 2)
        return apply_rotary_emb(query, key, reshaped)


class QKV(nn.Module):
    def __init__(self, c: Any, size: int) -> None:
        super().__init__()
        self.size = size
        self.wq = nn.Linear(c.hidden_size, c.num_attention_heads * size, bias=False)
        self.wk = nn.Linear(c.hidden_size, c.num_key_value_heads * size, bias=False)
        self.wv = nn.Linear(c.hidden_size, c.num_key_value_heads * size, bias=False)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        b, s, _ = x.shape
        xq, xk, xv = self.wq(x), self.wk(x), self.wv(x)
        xq, xk, xv = xq.view(b, s, -1, self.size), xk.view(b, s, -1, self.size), xv.view(b, s, -1, self.size)
        return xq, xk, xv


class InnerAttention(nn.Module):
    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
        out = functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=q.shape[1] > k.shape[1])
        return out.transpose(1, 2)


class Attention(nn.Module):
    def __init__(self, c: Any, sequence: int) -> None:
        super().__init__()
        size = c.hidden_size // c.num_attention_heads
        self.rope = RoPE(sequence, size)
        self.qkv_linear = QKV(c, size)
        self.wo = nn.Linear(c.num_attention_heads * size, c.hidden_size, bias=False)
        self.inner_attention = InnerAttention()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        xq, xk, xv = self.qkv_linear(x)
        xq, xk = self.rope(xq, xk)
        out = self.inner_attention(xq, xk, xv).contiguous()
        return self.wo(out.flatten(2))


class FeedForward(nn.Module):
    def __init__(self, c: Any, fused: bool) -> None:
        super().__init__()
        self.fused = fused
        self.w1 = nn.Linear(c.hidden_size, c.intermediate_size, bias=False)
        self.w3 = nn.Linear(c.hidden_size, c.intermediate_size, bias=False)
        self.w2 = nn.Linear(c.intermediate_size, c.hidden_size, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.fused:
            return self.w2(SiLUMul.apply(self.w1(x), self.w3(x)))
        return self.w2(functional.silu(self.w1(x)) * self.w3(x))


class Block(nn.Module):
    def __init__(self, c: Any, sequence: int, fused: bool) -> None:
        super().__init__()
        self.attention = Attention(c, sequence)
        self.feed_forward = FeedForward(c, fused)
        self.attention_norm = nn.RMSNorm(c.hidden_size, c.rms_norm_eps)
        self.ffn_norm = nn.RMSNorm(c.hidden_size, c.rms_norm_eps)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = x + self.attention(self.attention_norm(x))
        out = h + self.feed_forward(self.ffn_norm(h))
        return out


class Llama(nn.Module):
    """With transformers' loss around it."""

    def __init__(self, config: Any, sequence: int, fused: bool, recomputed: bool) -> None:
        super().__init__()
        self.config, self.recomputed = config, recomputed
        self.tok_embeddings = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(Block(config, sequence, fused) for _ in range(config.num_hidden_layers))
        self.norm = nn.RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        if config.tie_word_embeddings:
            self.tok_embeddings.weight = self.lm_head.weight

    def decode(self, tokens: torch.Tensor) -> torch.Tensor:
        h = self.tok_embeddings(tokens)
        for layer in self.layers:
            h = checkpoint(layer, h, use_reentrant=False) if self.recomputed else layer(h)
        h = self.norm(h)
        return h

    def forward(self, input_ids: torch.Tensor, labels: torch.Tensor) -> SimpleNamespace:
        from transformers.loss.loss_utils import ForCausalLMLoss

        hidden = self.decode(input_ids)
        logits = self.lm_head(hidden)
        return SimpleNamespace(loss=ForCausalLMLoss(logits, labels, self.config.vocab_size))
