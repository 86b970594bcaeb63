"""Norms that real models write out in Python, line for line, beside those of estimate/weights.py."""

from __future__ import annotations

from peakmem.estimate.ops import autocast_off, cast, inverse_root, mean_last, mul, rsqrt, shift, square, sub
from peakmem.estimate.shapes import cat, split
from peakmem.estimate.tape import Tensor, current, scope
from peakmem.estimate.weights import has, layer_norm, layer_normed, normalised, weight


def rms_cast_last(x: Tensor, name: str) -> Tensor:
    """transformers' Olmo2RMSNorm: in fp32, the weight multiplied before the cast back."""
    with scope(name):
        h = cast(x, "fp32", "input in fp32")
        variance = mean_last(square(h))
        h = mul(h, rsqrt(shift(variance)), "normalised in fp32")
        h = cast(mul(weight("weight"), h, "output in fp32"), x.dtype, "output")
        del variance
        return h


def rms_in_fp32(x: Tensor, name: str) -> Tensor:
    """transformers' HeliumRMSNorm: in fp32, times the weight in fp32, then cast back."""
    with scope(name):
        h = cast(x, "fp32", "input in fp32")
        variance = mean_last(square(h))
        h = mul(h, rsqrt(shift(variance)), "normalised in fp32")
        h = cast(mul(cast(weight("weight"), "fp32", "weight in fp32"), h, "output in fp32"), x.dtype, "output")
        del variance
        return h


def norm_per_head(x: Tensor, name: str, heads: int) -> Tensor:
    """transformers' StableLmLayerNormPerHead: a norm of its own for each head, of (b, heads, s, d), then joined."""
    with scope(name):
        states_per_heads = split(x, 1, [()] * heads)
        return cat([layer_norm(head, f"norms.{i}") for i, head in enumerate(states_per_heads)], x.dims)


def layer_norm_plus_one(x: Tensor, name: str) -> Tensor:
    """transformers' NemotronLayerNorm1P: 1 + weight; under autocast all is cast to its dtype and stays there."""
    with scope(name):
        args = [x, shift(weight("weight"), "1 + weight"), weight("bias")]
        if dtype := current().autocast:
            args = [cast(part, dtype) for part in args]
        with autocast_off():
            return layer_normed(args[0], args[1:])


def centred_norm(x: Tensor, name: str) -> Tensor:
    """transformers' CohereLayerNorm: a layer norm without bias, written out, all of it in fp32."""
    with scope(name):
        h = cast(x, "fp32", "input in fp32")
        mean = mean_last(h)
        variance = mean_last(square(sub(h, mean, "centred")))
        h = mul(sub(h, mean, "centred"), rsqrt(shift(variance)), "normalised in fp32")
        h = mul(cast(weight("weight"), "fp32", "weight in fp32"), h, "output in fp32")
        h = cast(h, x.dtype, "output")
        del mean, variance
        return h


def rms_weight_last(x: Tensor, name: str) -> Tensor:
    """transformers' Llama4TextRMSNorm: in fp32, cast back, then times the weight."""
    with scope(name):
        output = l2_norm(x)
        return mul(output, weight("weight"), "output")


def l2_norm(x: Tensor) -> Tensor:
    """transformers' Llama4TextL2Norm: in fp32 without a weight, cast back."""
    return cast(normalised(cast(x, "fp32", "input in fp32")), x.dtype, "normalised")


def rms_of_input(x: Tensor, name: str) -> Tensor:
    """transformers' T5LayerNorm: the variance in fp32, the input itself divided by its root, then cast."""
    with scope(name):
        variance = mean_last(square(cast(x, "fp32", "input in fp32")))
        h = mul(x, rsqrt(shift(variance)), "normalised in fp32")
        w = weight("weight")
        if w.dtype != "fp32":
            h = cast(h, w.dtype, "normalised")
        out = mul(w, h, "output")
        del variance
        return out


def rms_by_power(x: Tensor, name: str) -> Tensor:
    """transformers' Gemma4RMSNorm: in fp32, by a power of -0.5; with a weight or without one."""
    with scope(name):
        h = normed(cast(x, "fp32", "input in fp32"))
        if has("weight"):
            h = mul(h, cast(weight("weight"), "fp32", "weight in fp32"), "output in fp32")
        return cast(h, x.dtype, "output")


def normed(x: Tensor) -> Tensor:
    mean_squared = shift(mean_last(square(x)))
    return mul(x, inverse_root(mean_squared), "normalised in fp32")
