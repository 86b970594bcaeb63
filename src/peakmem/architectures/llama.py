"""Llama, as transformers 5.24 runs it (models/llama/modeling_llama.py), and what its kin share with it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from peakmem.architectures.definition import Definition, Row, attention_rows, decoder, gated_rows, rms_norm
from peakmem.estimate.attention import attend
from peakmem.estimate.inference import cached
from peakmem.estimate.losses import causal_lm
from peakmem.estimate.masks import layer_masks
from peakmem.estimate.ops import activation
from peakmem.estimate.positions import positions, rotary, rotate
from peakmem.estimate.shapes import swap, view
from peakmem.estimate.structure import Structure
from peakmem.estimate.tape import Tensor, scope
from peakmem.estimate.weights import embed, project, rms

MIRRORS = "transformers 5.24.0 models/llama/modeling_llama.py"

Turn = Callable[[Tensor, Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]


def define(m: Structure) -> Definition:
    yield from decoder(m, lambda kind: block_rows(m))


def block_rows(m: Structure) -> Iterator[Row]:
    biased = m.has("attention_bias")
    yield from attention_rows(biased, m.has("output_bias"))
    if m.has("qk_norm"):
        yield from rms_norm("self_attn.q_norm", "d")
        yield from rms_norm("self_attn.k_norm", "d")
    yield from gated_rows(m.has("mlp_bias"))
    yield from rms_norm("input_layernorm")
    yield from rms_norm("post_attention_layernorm")


def forward(m: Structure, ids: Tensor) -> Tensor:
    return causal_lm(m, lambda: model(m, ids), "model.embed_tokens")


def model(m: Structure, ids: Tensor, body: Callable[..., Tensor] | None = None,
          masked: Iterable[str] = ("full",), norm: Callable[[Tensor, str], Tensor] = rms, name: str = "model",
          tables: Callable[[Structure, str], tuple[Tensor, Tensor]] = rotary, packed: bool = True,
          inputs_embeds: Tensor | None = None, after: Callable[[Tensor, str], Tensor] | None = None,
          numbered: Callable[[], tuple[Tensor, Tensor | None]] | None = None) -> Tensor:
    """The decoder. body, norm: its layer and last norm; masked: the kinds of layers that get masks.

    name: where it lies; tables: its positions; packed: its positions are searched for packed sequences.
    inputs_embeds: what stands for the tokens' own embeddings; after: what is done after a layer of a kind.
    numbered: makes the numbers of the positions, and what of them the layers get.
    """
    with scope(name):
        if inputs_embeds is None:
            inputs_embeds = embed(ids, "embed_tokens")
        x = inputs_embeds
        numbers, position_ids = numbered() if numbered else (positions(),) * 2
        masks = layer_masks(m, x.dtype, masked, packed)
        cos, sin = tables(m, x.dtype)
        for kind in m.layers("layers"):
            x = m.layer(body or block, x, cos, sin, masks[kind.partition(",")[0]], position_ids)
            x = x if after is None else after(x, kind)
        x = norm(x, "norm")
        del inputs_embeds, numbers
        return x


def block(m: Structure, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor | None,
          position_ids: Tensor) -> Tensor:
    return pre_norm(x, lambda x: attention(m, x, cos, sin, mask), lambda x: mlp(m, x))


def pre_norm(x: Tensor, attending: Callable[[Tensor], tuple[Tensor, Tensor | None]],
             feed_forward: Callable[[Tensor], Tensor], norm: Callable[[Tensor, str], Tensor] = rms) -> Tensor:
    """LlamaDecoderLayer.forward: attention, then feed-forward, each behind a norm and added to what came in."""
    residual = x
    x = norm(x, "input_layernorm")
    x, probabilities = attending(x)
    x = residual + x
    residual = x
    x = norm(x, "post_attention_layernorm")
    x = feed_forward(x)
    x = residual + x
    del probabilities
    return x


def turned(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    """apply_rotary_pos_emb."""
    return rotate(q, cos, sin), rotate(k, cos, sin)


def attention(m: Structure, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor | None,
              turn: Turn | None = turned) -> tuple[Tensor, Tensor | None]:
    """turn: how positions turn queries and keys, if they do.

    Norms of queries and keys come before their heads are swapped, after that, or after the turn.
    """
    with scope("self_attn"):
        q = heads(m, x, "q", "a")
        k = heads(m, x, "k", "k")
        v = swap(view(project(x, "v_proj"), "b s k d"), "b k s d")
        if m.has("swapped_qk_norm"):
            q = rms(q, "q_norm")
            k = rms(k, "k_norm")
        if turn is not None:
            q, k = turn(q, k, cos, sin)
        if m.has("turned_qk_norm"):
            q = rms(q, "query_layernorm")
            k = rms(k, "key_layernorm")
        k, v = cached(m, k, v)
        x, probabilities = attend(m, q, k, v, mask)
        return project(x, "o_proj"), probabilities


def heads(m: Structure, x: Tensor, part: str, count: str) -> Tensor:
    """Queries or keys of each head; Qwen3 normalises them while a token's heads lie together."""
    x = view(project(x, f"{part}_proj"), f"b s {count} d")
    if m.has("qk_norm"):
        x = rms(x, f"{part}_norm")
    return swap(x, f"b {count} s d")


def mlp(m: Structure, x: Tensor, name: str = "mlp") -> Tensor:
    with scope(name):
        return project(activation(project(x, "gate_proj"), m.activation) * project(x, "up_proj"), "down_proj")
