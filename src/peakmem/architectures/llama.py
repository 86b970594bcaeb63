"""Llama, as transformers 5.24 runs it (models/llama/modeling_llama.py)."""

from peakmem.architectures.definition import Definition, Layers, Row, buffer, embedding, linear, rms_norm
from peakmem.estimate.attention import attend, causal_mask
from peakmem.estimate.losses import causal_lm
from peakmem.estimate.ops import activation
from peakmem.estimate.shapes import split_heads
from peakmem.estimate.weights import embed, project, rms
from peakmem.estimate.positions import positions, rotary_table, rotate
from peakmem.estimate.structure import Structure
from peakmem.estimate.tape import Tensor, current, scope

MIRRORS = "transformers 5.24.0 models/llama/modeling_llama.py"


def define(m: Structure) -> Definition:
    yield from embedding("model.embed_tokens", "V", "h")
    yield Layers("model.layers", lambda kind: block_rows(m))
    yield from rms_norm("model.norm")
    yield from buffer("model.rotary_emb.inv_freq", "d/2", "fp32")
    yield from buffer("model.rotary_emb.original_inv_freq", "d/2", "fp32")
    if not m.has("tied"):
        yield from linear("lm_head", "V", "h")


def block_rows(m: Structure):
    biased = m.has("attention_bias")
    yield from linear("self_attn.q_proj", "(a d)", "h", biased)
    yield from linear("self_attn.k_proj", "(k d)", "h", biased)
    yield from linear("self_attn.v_proj", "(k d)", "h", biased)
    yield from linear("self_attn.o_proj", "h", "(a d)", m.has("output_bias"))
    yield from linear("mlp.gate_proj", "f", "h", m.has("mlp_bias"))
    yield from linear("mlp.up_proj", "f", "h", m.has("mlp_bias"))
    yield from linear("mlp.down_proj", "h", "f", m.has("mlp_bias"))
    yield from rms_norm("input_layernorm")
    yield from rms_norm("post_attention_layernorm")


def forward(m: Structure, ids: Tensor) -> Tensor:
    return causal_lm(m, lambda: model(m, ids), "model.embed_tokens")


def model(m: Structure, ids: Tensor) -> Tensor:
    with scope("model"):
        x = inputs_embeds = embed(ids, "embed_tokens")
        position_ids = positions()
        mask = causal_mask(m, x.dtype)
        cos, sin = rotary_table(x.dtype)
        for _ in m.layers("layers"):
            x = m.layer(block, x, cos, sin, mask, position_ids)
        x = rms(x, "norm")
        del inputs_embeds
        return x


def block(m: Structure, x, cos, sin, mask, position_ids):
    residual = x
    x = rms(x, "input_layernorm")
    x, probabilities = attention(m, x, cos, sin, mask)
    x = residual + x
    residual = x
    x = rms(x, "post_attention_layernorm")
    x = mlp(m, x)
    x = residual + x
    del probabilities
    return x


def attention(m: Structure, x, cos, sin, mask):
    with scope("self_attn"):
        q = split_heads(project(x, "q_proj"), "b a s d")
        k = split_heads(project(x, "k_proj"), "b k s d")
        v = split_heads(project(x, "v_proj"), "b k s d")
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        x, probabilities = attend(m, q, k, v, mask)
        return project(x, "o_proj"), probabilities


def mlp(m: Structure, x):
    with scope("mlp"):
        return project(activation(project(x, "gate_proj"), m.activation) * project(x, "up_proj"), "down_proj")
