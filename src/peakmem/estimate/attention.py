"""Scaled dot-product attention: PyTorch's fused kernels, its composite math path, transformers' eager code.

All work on (b, heads, s, d). Key positions carry the letter `s'`, so that scores are (b, a, s, s').
"""

from __future__ import annotations

from peakmem.estimate.grouped_heads import packed_queries, repeat_heads
from peakmem.estimate.inplace import add_into
from peakmem.estimate.layout import GAP, Dims, dense_order, dims, flat, is_one, multiplied, with_last
from peakmem.estimate.masks import where
from peakmem.estimate.node import Node
from peakmem.estimate.ops import add, autocast, autocast_off, cast, dropout, scale, softmax, tanh
from peakmem.estimate.positions import made
from peakmem.estimate.scratch import cudnn_backward, efficient_backward, efficient_forward, flash_backward
from peakmem.estimate.shapes import contiguous, expand, pad, piece, regroup, rename, reshape, swap, view
from peakmem.estimate.structure import Structure
from peakmem.estimate.tape import Tensor, current


def attend(m: Structure, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, softmax_in: str = "fp32",
           causal: bool = True) -> tuple[Tensor, Tensor | None]:
    """The attention of one layer, its heads merged to (b, s, a·d), and the probabilities where they exist.

    The kernel is what the structure says. transformers hands the eager probabilities up to the layer, which
    holds them until it returns. softmax_in: see `eager`.
    """
    kernel = m.kernel("full")
    if mask is not None and kernel != "eager":
        kernel = m.kernel("sliding")
    drop, grouped, packed = m.drops("attention"), m.has("grouped_heads"), None
    if kernel == "eager":
        return eager(q, k, v, mask, grouped, drop, softmax_in, m.has("attention_softcap"))
    if grouped and (mask is not None or m.has("wide_heads")):
        grouped = False
        if is_one(q.dims[2], current().ones):
            packed, q, causal = q.dims, packed_queries(q, k), False
        else:
            k, v = repeat_heads(k), repeat_heads(v)
    if mask is not None:
        return merged(masked(m, kernel, q, k, v, mask, drop), packed), None
    if kernel == "math":
        return merged(math(q, k, v, mask, grouped, drop, causal), packed), None
    if kernel in ("efficient", "cudnn"):
        return merged((efficient if kernel == "efficient" else cudnn)(q, k, v), packed), None
    if m.stored.prepared != "no" and q.dtype == "fp32" and not m.autocast:
        # callers of flash-attn cast to the dtype that was there before; autocast does so inside
        q, k, v = cast(q, m.dtype), cast(k, m.dtype), cast(v, m.dtype)
    run = padded_flash if m.has("odd_heads") else flash
    return merged(run(q, k, v, grouped)), None


def merged(x: Tensor, packed: Dims | None = None) -> Tensor:
    """transpose(1, 2).contiguous(), then the heads of a token in one row: a copy unless q was token-major.

    packed: the shape of the queries before they were packed.
    """
    if packed is not None:
        b, group, queries, d = x.dims
        x = regroup(reshape(x, (b, group + queries, packed[2], d)), (*packed[:3], d))
    b, a, s, d = x.dims
    x = contiguous(swap(x, (b, s, a, d)), "attention output, heads merged")
    return view(x, (b, s, a + d))


def flash(q: Tensor, k: Tensor, v: Tensor, grouped: bool = False) -> Tensor:
    """aten::_scaled_dot_product_flash_attention: no s·s tensor is ever made.

    The output takes the order of q in memory, each gradient that of its input.
    Source: aten/src/ATen/native/transformers/cuda/flash_attn/flash_api.cpp.
    """
    q, k, v = autocast(q), autocast(k), autocast(v)
    n = Node("flash", q, k, v)
    flash_backward(n, q, k, grouped)
    save_inputs(n, q, k, v)
    out = n.makes(q.dims[:3] + v.dims[3:], q.dtype, with_last(q.dims, q.memory, v.dims[3]), "attention output")
    lse = n.makes(q.dims[:3], "fp32", None, "logsumexp")
    seed = n.makes(dims("2"), "uint64", None, "random seed")
    offset = n.makes((), "uint64", None, "random offset")
    return finish(n, q, k, v, out, lse, seed, offset)


def cudnn(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
    """aten::_scaled_dot_product_cudnn_attention: as flash, other random state; it takes a mask.

    Source: aten/src/ATen/native/cudnn/MHA.cpp.
    """
    q, k, v = autocast(q), autocast(k), autocast(v)
    n = Node("cudnn", q, k, v)
    cudnn_backward(n, q)
    save_inputs(n, q, k, v)
    if mask is not None:
        n.saves(mask, f"the backward of {n.scope} adds it to the scores again")
    out = n.makes(q.dims[:3] + v.dims[3:], q.dtype, with_last(q.dims, q.memory, v.dims[3]), "attention output")
    lse = n.makes((*q.dims[:3], () if n.active else ("0",)), "fp32", None, "logsumexp")
    seed = n.makes((), "int64", None, "random seed")
    offset = n.makes((), "int64", None, "random offset")
    return finish(n, q, k, v, out, lse, seed, offset)


def padded_flash(q: Tensor, k: Tensor, v: Tensor, grouped: bool) -> Tensor:
    """Flash attention with a head size that is no multiple of 8: q, k, v get zeros at the end first.

    Source: aten/src/ATen/native/transformers/attention.cpp, pad_last_dim and post_process_flash_output.
    """
    q, k, v = autocast(q), autocast(k), autocast(v)
    size = q.dims[3][0]
    out = flash(pad(q, f"{size}^8"), pad(k, f"{size}^8"), pad(v, f"{size}^8"), grouped)
    return piece(out, 3, size)


def efficient(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, gaps: bool = False) -> Tensor:
    """aten::_scaled_dot_product_efficient_attention: as flash, with the logsumexp's s rounded up to 32.

    No logsumexp where no gradient is wanted. A mask's own gradient has rows that begin at multiples
    of 16 elements; gaps: its rows are no such multiple.
    Source: aten/src/ATen/native/transformers/cuda/attention.cu and attention_backward.cu.
    """
    q, k, v = autocast(q), autocast(k), autocast(v)
    n = Node("efficient", q, k, v, *(() if mask is None else (mask,)))
    efficient_backward(n, q)
    save_inputs(n, q, k, v)
    if mask is not None:
        n.saves(mask, f"the backward of {n.scope} adds it to the scores again")
    (b, a, s), d = q.dims[:3], v.dims[3]
    out = n.makes((b, a, s, d), q.dtype, b + s + a + d, "attention output")
    rows = f"{s[0] if len(s) == 1 else multiplied(s)}^32"
    lse = n.makes((b, a, (rows,) if n.active else ("0",)), "fp32", None, "logsumexp")
    efficient_forward(n, q, v)
    seed, offset = (n.makes((), "int64", None, f"random {part}") for part in ("seed", "offset"))
    out = finish(n, q, k, v, out, lse, seed, offset)
    if mask is not None:
        keys, before = mask.dims[3][0], mask.dims[:3]
        n.gradient(3, "rows", dims=(*before, (keys.rstrip("'") + "^16",)),
                   memory=(*flat(before), *((GAP,) if gaps else ()), keys))
    return out


def masked(m: Structure, kernel: str, q: Tensor, k: Tensor, v: Tensor, mask: Tensor, drop: bool) -> Tensor:
    """scaled_dot_product_attention with a mask; a boolean one becomes numbers first: 0 and -inf.

    Numbers are an argument, of which autocast makes a copy. The efficient kernel wants rows that start at multiples
    of 8 elements; rows of other lengths are copied.
    Every layer makes the numbers anew, and its kernel keeps them for its backward.
    Source: aten/src/ATen/native/transformers/attention.cpp, convert_boolean_attn_mask and preprocess_mask.
    """
    q, k, v = autocast(q), autocast(k), autocast(v)
    boolean = mask.dtype == "bool"
    mask = mask if boolean else autocast(mask)
    numbers = where(mask, "b 1 s s'", q.dtype, "mask as numbers") if boolean else mask
    if kernel == "math":
        return math(q, k, v, numbers, False, drop)
    if kernel == "cudnn":
        return cudnn(q, k, v, numbers)
    keys = current().letters.get("s'", "s")  # as many as the cache holds
    odd = "odd_window" if keys[0] == "u" else "odd_sequence"
    if numbers.dims[3] == ("tn'",):
        keys, odd = "tn", "odd_patches"
    if m.has(odd):
        padded = (*numbers.dims[:3], (f"{keys}^8",))
        numbers = current().new(padded, numbers.dtype, None, f"{current().scope}/mask as numbers, padded")
        numbers = numbers.seen_as(mask.dims)
    return efficient(q, k, v, numbers)


def save_inputs(n: Node, q: Tensor, k: Tensor, v: Tensor) -> None:
    n.saves(q, f"gradient of the keys in {n.scope}")
    n.saves(k, f"gradient of the queries in {n.scope}")
    n.saves(v, f"gradient of the attention probabilities in {n.scope}")


def finish(n: Node, q: Tensor, k: Tensor, v: Tensor, out: Tensor, *small: Tensor) -> Tensor:
    n.keeps(out, f"the backward of {n.scope} rebuilds the probabilities row by row")
    for x in small:
        n.keeps(x, f"the backward of {n.scope} repeats the softmax with it")
    for i, x in enumerate((q, k, v)):
        if n.needs(i):  # the efficient kernel's gradients lie token by token, however its inputs did
            b, a, s, d = x.dims
            n.gradient(i, memory=b + s + a + d if n.op == "efficient" else dense_order(x.dims, x.memory))
        else:  # the kernel makes all three
            n.works(x.dims, x.dtype)
    return n.output(out)


def matmul(x: Tensor, y: Tensor) -> Tensor:
    """matmul of (b, a, i, j) and (b, a, j, l): bmm over b·a. The second matrix's gradient comes first.

    One head is broadcast to all. Autocast takes its arguments from right to left.
    """
    called = x, y  # arguments live until the call returns
    other = autocast(y)
    given = autocast(x)
    heads, rows, columns = x.dims[:2], x.dims[2], y.dims[3]
    ones = current().ones
    if is_one(y.dims[1], ones) and not is_one(heads[1], ones):
        other = expand(other, (*heads, *y.dims[2:]))
        y = other
    one = heads[0] + heads[1]
    x = reshape(given, (one, *x.dims[2:]))
    y = reshape(other, (y.dims[0] + y.dims[1], *y.dims[2:]))
    out = bmm(x, y)
    del given, other, called
    return view(out, (*heads, rows, columns))


def bmm(x: Tensor, y: Tensor) -> Tensor:
    """bmm of (n, i, j) and (n, j, l): the second matrix's gradient comes first (BmmBackward0)."""
    given, y, x = (x, y), autocast(y), autocast(x)  # arguments live until the call is over
    n = Node("bmm", x, y)
    if n.needs(1):
        n.saves(x, f"gradient of the second factor in {n.scope}")
    if n.needs(0):
        n.saves(y, f"gradient of the first factor in {n.scope}")
    out = n.makes((*x.dims[:2], y.dims[2]), x.dtype, None, "product")
    n.flops(2, (*flat(out.dims), *x.dims[2]))
    n.gradient(1)
    n.gradient(0)
    del given
    return n.output(out)


def keys_as(x: Tensor) -> Tensor:
    """The same keys or values with their positions primed, as in s', to tell them from the queries'."""
    b, a, positions, d = x.dims
    if len(positions) > 1:  # a letter's second prime, its third, …
        return rename(x, (b, a, tuple(x.rstrip("'") + "'" * (i + 2) for i, x in enumerate(positions)), d))
    return rename(x, (b, a, (positions[-1].rstrip("'") + "'",), d))


def eager(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, grouped: bool, drop: bool,
          softmax_in: str = "fp32", capped: bool = False) -> tuple[Tensor, Tensor]:
    """transformers' eager_attention_forward: the scores exist.

    softmax_in: `fp32`, and cast back to q's dtype; or `own` dtype (under autocast fp32 all the same), which GPT-2
    then casts to v's in a second statement: `own, cast back`. capped: Gemma 2's tanh on the scores.
    """
    keys = repeat_heads(k) if grouped else k
    values = repeat_heads(v) if grouped else v
    keys, values = keys_as(keys), keys_as(values)
    b, a, t, d = keys.dims
    weights = scale(matmul(q, swap(keys, (b, a, d, t))), "scores, scaled")
    if capped:
        weights = scale(weights, "scores, scaled down")
        weights = tanh(weights, "scores, tanh")
        weights = scale(weights, "scores, capped")
    if mask is not None:
        weights = add(weights, mask, "scores, masked")
    if softmax_in == "fp32":
        weights = cast(softmax(weights, "fp32"), q.dtype, "probabilities")
    else:
        weights = softmax(weights)
    if softmax_in == "own, cast back":
        weights = cast(weights, v.dtype, "probabilities")
    weights = dropout(weights, drop)
    output = matmul(weights, values)
    output = merged(output)
    return output, weights


def math(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, grouped: bool, drop: bool,
         causal: bool = True) -> Tensor:
    """The math kernel: autocast casts q, k, v, and then leaves its inside alone (ExcludeDispatchKeyGuard)."""
    q, k, v = autocast(q), autocast(k), autocast(v)
    with autocast_off():
        return composite(q, k, v, mask, grouped, drop, causal)


def composite(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, grouped: bool, drop: bool,
              causal: bool) -> Tensor:
    """_scaled_dot_product_attention_math: q and k both scaled, 16-bit inputs in fp32, s·s scores.

    The mask is added to the scores in place (`attn.add_`).

    Source: aten/src/ATen/native/transformers/attention.cpp. The causal mask is built for every call.
    """
    origin = q.dtype
    q32, k32, v32 = cast(q, "fp32"), cast(k, "fp32"), cast(v, "fp32")
    query = scale(q32, "queries, scaled")
    if mask is None and causal and not is_one(q.dims[2], current().ones):  # a single query may look everywhere
        mask = made(pairs := f"{q.dims[2][0]} {q.dims[2][0]}'", "bool", "ones")
        mask = made(pairs, "bool", "causal mask")
        mask = where(mask, pairs, "fp32", "causal mask as numbers")
    keys = repeat_heads(k32, always=True) if grouped else k32
    values = repeat_heads(v32, always=True) if grouped else v32
    keys, values = keys_as(keys), keys_as(values)
    b, a, t, d = keys.dims
    attn = matmul(query, scale(swap(keys, (b, a, d, t)), "keys, scaled"))
    if mask is not None and current().keeper is not None:
        attn = add(attn, mask, "scores, masked")  # no add_ under selective checkpointing's dispatch mode
    elif mask is not None and mask.needs_grad:
        attn = add_into(attn, mask)
    attn = softmax(attn)
    attn = dropout(attn, drop)
    low = cast(attn, origin)  # nobody uses it; make_tuple's arguments are evaluated from the right
    out = cast(matmul(attn, values), origin)
    return out if low else out
