"""The short convolution in front of a recurrent state, as transformers runs it without the causal-conv1d package."""

from __future__ import annotations

from peakmem.estimate.inference import state
from peakmem.estimate.layout import dims, flat
from peakmem.estimate.node import Node
from peakmem.estimate.ops import activation, autocast, cast
from peakmem.estimate.shapes import cat, piece, view
from peakmem.estimate.structure import Structure
from peakmem.estimate.tape import Tensor, current, scope
from peakmem.estimate.weights import has, weight


def causal_conv1d(x: Tensor, kind: str, channels: str, taps: str = "q", name: str = "conv1d") -> Tensor:
    """causal_conv1d_fn on (b, channels, s): padded on both sides, the end cut off, then the activation, if any."""
    w, bias = filters(channels, taps, name)
    out = convolved(cast(x, w.dtype), view(w, f"{channels} 1 {taps}"), bias, f"b {channels} s+{taps}-1", name)
    out = piece(out, 2, "s")
    if kind:
        out = activation(out, kind)
    return cast(out, x.dtype)


def filters(channels: str, taps: str, name: str) -> tuple[Tensor, Tensor | None]:
    """The weight as (channels, taps), and the bias.

    The caller passes `conv1d.weight.squeeze(1)`: a node older than all of the function's own, and no leaf to autocast,
    which casts it anew each time.
    """
    with scope(name):
        return view(weight("weight"), f"{channels} {taps}"), weight("bias") if has("bias") else None


def convolved(x: Tensor, w: Tensor, bias: Tensor | None, target: str, name: str) -> Tensor:
    """conv1d, a group for each channel: keeps input and weight; one kernel makes the gradients."""
    given = x, w
    bias = None if bias is None else autocast(bias)
    w = autocast(w)
    x = autocast(x)
    n = Node("convolution", x, w, *(() if bias is None else (bias,)))
    n.saves(x, f"gradient of {n.scope}.{name}")
    n.saves(w, f"gradient of the input of {n.scope}.{name}")
    out = n.makes(dims(target), x.dtype, None, "convolved")
    n.flops(2, (*flat(out.dims), *w.dims[-1]))
    for i in range(2 if bias is None else 3):
        n.gradient(i)
    del given
    return n.output(out)


def remembered_conv1d(m: Structure, x: Tensor, kind: str, channels: str, taps: str = "q",
                      name: str = "conv1d") -> Tensor:
    """The convolution where there is a cache: of the last tokens as many as it has taps.

    The first forward stores them (update_conv_state); each later one joins them with the new token and convolves
    without padding (causal_conv1d_update).
    """
    if m.run == "training":
        return causal_conv1d(x, kind, channels, taps, name)
    single = bool(current().single)
    kept = state("last tokens before the convolution", f"b {channels} {taps}", x.dtype)
    if not single:
        return causal_conv1d(x, kind, channels, taps, name)
    w, bias = filters(channels, taps, name)
    joined = cast(cat([kept, x], f"b {channels} {taps}+1", "last tokens and the new one"), w.dtype)
    out = convolved(joined, view(w, f"{channels} 1 {taps}"), bias, f"b {channels} 2", name)
    out = piece(out, 2, "s")
    if kind:
        out = activation(out, kind)
    return cast(out, x.dtype)
