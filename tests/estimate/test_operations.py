"""Each operation's rule against PyTorch's own kernels on the CPU: every allocation of forward and backward, in order.

Shapes and layouts are in no reference record. Kernels that only a GPU has (flash, efficient, cuDNN, dropout, the
lists of autocast for CUDA) are held to traces on a fake GPU instead: tests/trace and tests/estimate/test_agreement.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from peakmem.estimate import attention, losses, ops, positions, shapes, weights
from tests.estimate.kernels import Inputs, measured, predicted

X: Inputs = {"x": ("b s h", "fp32", True)}
XY: Inputs = {"x": ("b s h", "fp32", True), "y": ("b s h", "fp32", True)}
HEADS: Inputs = {"x": ("b s a d", "fp32", True)}
Case = tuple[Inputs, Callable[..., Any], Callable[..., torch.Tensor]]

POINTWISE: dict[str, Case] = {
    "add": (XY, lambda x, y: ops.add(x, y), lambda x, y: x + y),
    "add, the same twice": (X, lambda x: ops.add(x, x), lambda x: x + x),
    "add, broadcast": ({"x": ("b s h", "fp32", True), "y": ("h", "fp32", True)},
                       lambda x, y: ops.add(x, y), lambda x, y: x + y),
    "mul": (XY, lambda x, y: ops.mul(x, y), lambda x, y: x * y),
    "mul, broadcast weight first": ({"x": ("h", "fp32", True), "y": ("b s h", "fp32", True)},
                                    lambda x, y: ops.mul(x, y), lambda x, y: x * y),
    "mul, one frozen": ({"x": ("b s h", "fp32", True), "y": ("b s h", "fp32", False)},
                        lambda x, y: ops.mul(x, y), lambda x, y: x * y),
    "scale": (X, lambda x: ops.scale(x), lambda x: x * 2.5),
    "shift": (X, lambda x: ops.shift(x), lambda x: x + 2.5),
    "neg": (X, lambda x: ops.neg(x), lambda x: -x),
    "cast": (X, lambda x: ops.cast(x, "bf16"), lambda x: x.to(torch.bfloat16)),
    "square": (X, lambda x: ops.square(x), lambda x: x.pow(2)),
    "cube": (X, lambda x: ops.cube(x), lambda x: x.pow(3.0)),
    "mean": (X, lambda x: ops.mean_last(x), lambda x: x.mean(-1, keepdim=True)),
    "silu": (X, lambda x: ops.activation(x, "silu"), lambda x: F.silu(x)),
    "gelu": (X, lambda x: ops.activation(x, "gelu"), lambda x: F.gelu(x)),
    "gelu, tanh": (X, lambda x: ops.activation(x, "gelu_pytorch_tanh"), lambda x: F.gelu(x, approximate="tanh")),
    "relu": (X, lambda x: ops.activation(x, "relu"), lambda x: F.relu(x)),
    "tanh": (X, lambda x: ops.tanh(x), lambda x: torch.tanh(x)),
    "gelu_new": (X, lambda x: ops.gelu_new(x), lambda x: 0.5 * x * (
        1.0 + torch.tanh(0.7978845608 * (x + 0.044715 * torch.pow(x, 3.0))))),
    "softmax": (X, lambda x: ops.softmax(x), lambda x: torch.softmax(x, -1)),
    "softmax of bf16 in fp32": ({"x": ("b s h", "bf16", True)}, lambda x: ops.softmax(x, "fp32"),
                                lambda x: torch.softmax(x, -1, dtype=torch.float32)),
    "chain of three": (XY, lambda x, y: ops.mul(ops.activation(ops.mul(x, y), "silu"), x),
                       lambda x, y: F.silu(x * y) * x),
}
SHAPES: dict[str, Case] = {
    "view and back": (X, lambda x: shapes.view(ops.scale(x), "(b s) h"), lambda x: (x * 2.5).view(24, 48)),
    "split heads, then pointwise": (
        {"x": ("b s (a d)", "fp32", True)}, lambda x: ops.activation(shapes.split_heads(x, "b a s d"), "silu"),
        lambda x: F.silu(x.view(4, 6, 4, 16).transpose(1, 2))),
    "heads back to rows": (
        HEADS, lambda x: attention.merged(shapes.contiguous(shapes.swap(x, "b a s d"))),
        lambda x: x.transpose(1, 2).contiguous().transpose(1, 2).contiguous().reshape(4, 6, 64)),
    "clone of a transposed": (HEADS, lambda x: shapes.contiguous(shapes.swap(x, "b a s d")),
                              lambda x: x.transpose(1, 2).contiguous()),
    "slice": (X, lambda x: ops.scale(shapes.piece(x, 2, "h/2")), lambda x: x[..., :24] * 2.5),
    "chunk": (X, lambda x: ops.mul(*shapes.split(x, 2, ["h/2", "h/2"])), lambda x: torch.mul(*x.chunk(2, -1))),
    "cat": (XY, lambda x, y: shapes.cat([x, y], "b s (2 h)"), lambda x, y: torch.cat((x, y), -1)),
    "rotary": (
        {"x": ("b s a d", "fp32", True), "c": ("s d", "fp32", False), "t": ("s d", "fp32", False)},
        lambda x, c, t: positions.rotate(shapes.swap(x, "b a s d"), c, t), lambda x, c, t: rotated(x, c, t)),
    "repeated heads": (
        {"x": ("b k s d", "fp32", True)}, lambda x: attention.repeat_heads(x),
        lambda x: x[:, :, None].expand(4, 2, 2, 6, 16).reshape(4, 4, 6, 16)),
}


def rotated(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """transformers' apply_rotary_pos_emb for one tensor."""
    x = x.transpose(1, 2)
    return x * cos + rotate_half(x) * sin


def rotate_half(x: torch.Tensor) -> torch.Tensor:
    """transformers' function of that name."""
    x1 = x[..., :8]
    x2 = x[..., 8:]
    return torch.cat((-x2, x1), dim=-1)


@pytest.mark.parametrize("name", POINTWISE)
def test_pointwise(name: str) -> None:
    inputs, ours, theirs = POINTWISE[name]
    assert predicted(inputs, ours) == measured(inputs, theirs)


@pytest.mark.parametrize("name", SHAPES)
def test_shapes(name: str) -> None:
    inputs, ours, theirs = SHAPES[name]
    assert predicted(inputs, ours) == measured(inputs, theirs)


def test_rsqrt() -> None:
    positive: Inputs = {"x": ("b s h", "fp32", True)}
    assert predicted(positive, lambda x: ops.rsqrt(ops.square(x))) == measured(
        positive, lambda x: torch.rsqrt(x.pow(2)))


WEIGHTS: dict[str, Case] = {
    "linear": ({"x": ("b s h", "fp32", True), "layer.weight": ("f h", "fp32", True)},
               lambda x, **_: weights.project(x, "layer"), lambda x, **w: F.linear(x, w["layer.weight"])),
    "linear with bias": (
        {"x": ("b s h", "fp32", True), "layer.weight": ("f h", "fp32", True), "layer.bias": ("f", "fp32", True)},
        lambda x, **_: weights.project(x, "layer"), lambda x, **w: F.linear(x, w["layer.weight"], w["layer.bias"])),
    "linear, frozen weight": ({"x": ("b s h", "fp32", True), "layer.weight": ("f h", "fp32", True)},
                              lambda x, **_: weights.project(x, "layer"),
                              lambda x, **w: F.linear(x, w["layer.weight"])),
    "two linears on one input": (
        {"x": ("b s h", "fp32", True), "one.weight": ("f h", "fp32", True), "two.weight": ("f h", "fp32", True)},
        lambda x, **_: ops.mul(weights.project(x, "one"), weights.project(x, "two")),
        lambda x, **w: F.linear(x, w["one.weight"]) * F.linear(x, w["two.weight"])),
    "conv1d": ({"x": ("b s h", "fp32", True), "layer.weight": ("h f", "fp32", True), "layer.bias": ("f", "fp32", True)},
               lambda x, **_: weights.conv1d(x, "layer"),
               lambda x, **w: torch.addmm(w["layer.bias"], x.view(-1, 48), w["layer.weight"]).view(4, 6, 80)),
    "linear on transposed heads": (
        {"x": ("b s a d", "fp32", True), "layer.weight": ("f (a d)", "fp32", True)},
        lambda x, **_: weights.project(attention.merged(shapes.swap(x, "b a s d")), "layer"),
        lambda x, **w: F.linear(x.transpose(1, 2).transpose(1, 2).contiguous().reshape(4, 6, 64), w["layer.weight"])),
    "layer norm": (
        {"x": ("b s h", "fp32", True), "norm.weight": ("h", "fp32", True), "norm.bias": ("h", "fp32", True)},
        lambda x, **_: weights.layer_norm(x, "norm"),
        lambda x, **w: F.layer_norm(x, (48,), w["norm.weight"], w["norm.bias"])),
    "embedding": ({"ids": ("b s", "int64", False), "table.weight": ("V h", "fp32", True)},
                  lambda ids, **_: weights.embed(ids, "table"), lambda ids, **w: F.embedding(ids, w["table.weight"])),
    "rms norm of bf16": (
        {"x": ("b s h", "bf16", True), "norm.weight": ("h", "bf16", True)}, lambda x, **_: weights.rms(x, "norm"),
        lambda x, **w: rms(x, w["norm.weight"])),
}


def rms(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """transformers' LlamaRMSNorm."""
    hidden = x.to(torch.float32)
    variance = hidden.pow(2).mean(-1, keepdim=True)
    hidden = hidden * torch.rsqrt(variance + 1e-6)
    return weight * hidden.to(x.dtype)


@pytest.mark.parametrize("name", WEIGHTS)
def test_weights(name: str) -> None:
    inputs, ours, theirs = WEIGHTS[name]
    # The CPU's layer norm sums both gradients once for each thread.
    scratch = 2 * 48 * 4 * torch.get_num_threads() if name == "layer norm" else 0
    assert predicted(inputs, ours) == measured(inputs, theirs, scratch)


QKV: Inputs = {"q": ("b s a d", "fp32", True), "k": ("b s k d", "fp32", True), "v": ("b s k d", "fp32", True)}


def eager(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """transformers' eager_attention_forward with grouped heads and without a mask."""
    query, key, value = (x.transpose(1, 2) for x in (q, k, v))
    keys, values = (x[:, :, None].expand(4, 2, 2, 6, 16).reshape(4, 4, 6, 16) for x in (key, value))
    scores = torch.matmul(query, keys.transpose(2, 3)) * 0.25
    scores = torch.softmax(scores, dim=-1, dtype=torch.float32).to(query.dtype)
    out = torch.matmul(scores, values)
    out = out.transpose(1, 2).contiguous()
    return out.reshape(4, 6, 64)


def ours_eager(q: Any, k: Any, v: Any) -> Any:
    query, key, value = (shapes.swap(x, text) for x, text in ((q, "b a s d"), (k, "b k s d"), (v, "b k s d")))
    return attention.eager(query, key, value, None, True, False)[0]


def test_eager_attention() -> None:
    assert predicted(QKV, ours_eager) == measured(QKV, eager)


def test_cross_entropy() -> None:
    logits: Inputs = {"x": ("(b s) V", "fp32", True), "y": ("(b s)", "int64", False)}
    assert predicted(logits, lambda x, y: losses.cross_entropy(x, y)) == measured(
        logits, lambda x, y: F.cross_entropy(x, y))


def test_a_wrong_rule_is_seen() -> None:
    """The comparison would fail if a rule left a tensor out."""
    inputs, ours, theirs = POINTWISE["silu"]
    assert predicted(inputs, lambda x: ops.square(x)) != measured(inputs, theirs)
    assert predicted(inputs, ours) == measured(inputs, theirs)
