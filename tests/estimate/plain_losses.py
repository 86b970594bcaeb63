"""Losses that train a head by pieces, in plain torch: kernels written in place stand for Liger's Triton kernels.

`FusedLinearCrossEntropy` follows liger_kernel 0.8.5 (ops/fused_linear_cross_entropy.py), `chunked_loss` torchtitan
0.3.0 (components/loss.py), statement by statement as far as memory is concerned.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from torch.nn import functional


def cdiv(x: int, y: int) -> int:
    return -(-x // y)


def next_power_of_2(x: int) -> int:
    return 1 << (x - 1).bit_length()


def can_use_mm_out(x: torch.Tensor, weight: torch.Tensor) -> bool:
    if x.device.type != "cuda" or torch.is_grad_enabled() or x.dtype != weight.dtype:
        return False
    return not torch.is_autocast_enabled() or x.dtype == torch.get_autocast_dtype("cuda")


def fused_forward(x: torch.Tensor, weight: torch.Tensor, target: torch.Tensor, wants_weight: bool) -> Any:
    rows, width = x.shape
    vocabulary = weight.shape[0]
    chunk_size = min(next_power_of_2(cdiv(rows, cdiv(vocabulary, width))), rows)
    grad_input = torch.zeros_like(x)
    grad_weight = torch.zeros_like(weight) if wants_weight else None
    loss_1d = torch.zeros(rows, dtype=torch.float32, device=x.device)
    target_mask = target != -100
    target_mask.sum().item()
    use_mm_out = can_use_mm_out(x, weight)
    logits_storage = torch.empty((chunk_size, vocabulary), dtype=x.dtype, device=x.device) if use_mm_out else None
    for start_idx in range(0, rows, chunk_size):
        end_idx = min(start_idx + chunk_size, rows)
        input_chunk = x[start_idx:end_idx]
        if logits_storage is not None:
            logits_chunk = logits_storage[: end_idx - start_idx]
            torch.mm(input_chunk, weight.t(), out=logits_chunk)
        else:
            logits_chunk = input_chunk @ weight.t()
        target_chunk = target[start_idx:end_idx].contiguous()
        loss_1d[start_idx:end_idx].fill_(1.0)
        grad_logits_chunk = logits_chunk.zero_()
        del logits_chunk
        if use_mm_out:
            torch.mm(grad_logits_chunk, weight, out=grad_input[start_idx:end_idx])
        else:
            grad_input[start_idx:end_idx] = grad_logits_chunk @ weight
        if grad_weight is not None:
            grad_logits_t = grad_logits_chunk.t()
            aligned = input_chunk
            if aligned.dtype != grad_logits_t.dtype:
                aligned = aligned.to(grad_logits_t.dtype)
            grad_weight.fill_(0.0)  # addmm(grad_weight, grad_logits_t, aligned, out=grad_weight)
            del aligned, grad_logits_t
        del grad_logits_chunk, input_chunk, target_chunk
    del logits_storage
    return torch.sum(loss_1d), grad_input, grad_weight


def is_one(x: torch.Tensor) -> Any:
    """torch.equal(x, torch.tensor(1.0)), as aten/src/ATen/native/cuda/Equal.cpp has it: all in one expression."""
    one = torch.ones((), device=x.device)
    same = x == one
    every = same.all()
    return every.item()


class FusedLinearCrossEntropy(torch.autograd.Function):
    """LigerFusedLinearCrossEntropyFunction with a mean over tokens."""

    @staticmethod
    @torch.amp.custom_fwd(device_type="cuda")
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        loss, grad_input, grad_weight = fused_forward(x, weight, target, weight.requires_grad)
        ctx.save_for_backward(grad_input.detach(), grad_weight.detach() if grad_weight is not None else None)
        return loss

    @staticmethod
    @torch.amp.custom_bwd(device_type="cuda")
    def backward(ctx: Any, grad_output: torch.Tensor) -> Any:
        grad_input, grad_weight = ctx.saved_tensors
        if not is_one(grad_output):
            grad_input.mul_(1.0)
        return grad_input, grad_weight, None


def fused_loss(hidden: torch.Tensor, weight: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """LigerForCausalLMLoss."""
    labels = functional.pad(labels, (0, 1), value=-100)
    shift_labels = labels[..., 1:].contiguous()
    hidden = hidden.view(-1, hidden.shape[-1])
    shift_labels = shift_labels.view(-1)
    return FusedLinearCrossEntropy.apply(hidden, weight, shift_labels)


class BackProp(torch.autograd.Function):
    """_DecoderOutputGradientBackProp."""

    @staticmethod
    def forward(ctx: Any, hidden: torch.Tensor, accumulated: torch.Tensor, loss: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(accumulated)
        return loss.detach()

    @staticmethod
    def backward(ctx: Any, grad_output: torch.Tensor) -> Any:
        (accumulated,) = ctx.saved_tensors
        return accumulated, None, None


class GradAccumulator:
    def __init__(self, reference: torch.Tensor) -> None:
        self.at = 0
        self.buffer = torch.zeros_like(reference, dtype=torch.float32)

    def add(self, gradient: torch.Tensor) -> None:
        if gradient.dtype != self.buffer.dtype:
            gradient = gradient.to(self.buffer.dtype)
        end = self.at + gradient.shape[1]
        self.buffer[:, self.at : end] = gradient
        self.at = end


def cross_entropy_loss(pred: torch.Tensor, labels: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    loss = functional.cross_entropy(pred.flatten(0, 1).float(), labels.flatten(0, 1), reduction="sum")
    loss = loss / tokens
    return loss


def pieces(x: torch.Tensor, count: int) -> tuple[torch.Tensor, ...]:
    return tuple(piece.contiguous() for piece in torch.split(x, [x.shape[1] // count] * count, dim=1))


def chunked_loss(
    hidden: torch.Tensor, labels: torch.Tensor, tokens: torch.Tensor, head: torch.nn.Module, count: int
) -> torch.Tensor:
    """ChunkedLossWrapper.__call__ on one GPU."""
    h_chunks = [piece.detach().requires_grad_(True) for piece in pieces(hidden, count)]
    label_chunks = list(pieces(labels, count))
    accumulator = GradAccumulator(hidden)
    total_loss = hidden.new_zeros((), dtype=torch.float32)
    for h_chunk, label_chunk in zip(h_chunks, label_chunks, strict=True):
        logits = head(h_chunk)
        chunk_loss = cross_entropy_loss(logits, label_chunk, tokens)
        total_loss = total_loss + chunk_loss.detach()
        chunk_loss.backward()
        accumulator.add(h_chunk.grad)
        h_chunk.grad = None
    accumulated = accumulator.buffer.to(hidden.dtype)
    return BackProp.apply(hidden, accumulated, total_loss)


class WithLoss(torch.nn.Module):
    """A transformers model whose head runs inside the loss. chunks: of the chunked loss; 0: the fused one."""

    def __init__(self, model: Any, chunks: int = 0) -> None:
        super().__init__()
        self.lm, self.chunks, self.config = model, chunks, model.config

    def forward(self, input_ids: torch.Tensor, labels: torch.Tensor) -> SimpleNamespace:
        if not self.chunks:
            return SimpleNamespace(loss=self.fused(input_ids, labels))
        pred = self.lm.model(input_ids=input_ids).last_hidden_state
        tokens = torch.ones((), dtype=torch.int64, device=pred.device)
        return SimpleNamespace(loss=chunked_loss(pred, labels, tokens, self.lm.lm_head, self.chunks))

    def fused(self, input_ids: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        outputs = self.lm.model(input_ids=input_ids)
        hidden_states = outputs[0]
        kept_hidden_states = hidden_states[:, slice(0, None), :]
        return fused_loss(kept_hidden_states, self.lm.lm_head.weight, labels)
