"""Mixtral, as transformers 5.24 runs it (models/mixtral/modeling_mixtral.py): Mistral with experts as feed-forward."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from peakmem.architectures import llama
from peakmem.architectures.definition import Definition, Row, attention_rows, decoder, rms_norm
from peakmem.architectures.llama import attention
from peakmem.estimate.experts import experts, router
from peakmem.estimate.load_balance import added, load_balancing_loss, release
from peakmem.estimate.losses import causal_lm
from peakmem.estimate.masks import layer_masks
from peakmem.estimate.param_adapters import adapts
from peakmem.estimate.positions import positions, rotary_table
from peakmem.estimate.shapes import reshape, view
from peakmem.estimate.structure import Structure
from peakmem.estimate.tape import Tensor, current, scope
from peakmem.estimate.weights import embed, rms

MIRRORS = "transformers 5.24.0 models/mixtral/modeling_mixtral.py, experts implementation grouped_mm"

FeedForward = Callable[[Structure, Tensor], Tensor]


def define(m: Structure) -> Definition:
    yield from decoder(m, lambda kind: block_rows(m))


def block_rows(m: Structure) -> Iterator[Row]:
    yield from attention_rows()
    yield from router_rows(m, "mlp.gate")
    yield from expert_rows(m, "mlp.experts")
    yield from rms_norm("input_layernorm")
    yield from rms_norm("post_attention_layernorm")


def router_rows(m: Structure, name: str, dtype: str = "") -> Iterator[Row]:
    """The router's matrix, and the factors of its adapter."""
    if not adapts(m, "gate"):
        yield Row(f"{name}.weight", "E h", "", dtype)
        return
    yield Row(f"{name}.base_layer.weight", "E h", "", dtype)
    yield Row(f"{name}.lora_A.default.weight", "r h", "adapter", "fp32")
    yield Row(f"{name}.lora_B.default.weight", "E r", "adapter", "fp32")


def expert_rows(m: Structure, name: str) -> Iterator[Row]:
    """All experts in two parameters: gate and up projections in one, down projections in the other.

    Adapters wrap the module once for each parameter; gate and up, two matrices in one, get twice the rank.
    """
    factors = {"gate_up_proj": ("(E 2 r) h", "(2 x) (2' r E)"), "down_proj": ("(E r) x", "h (r E)")}
    wrapped = [parameter for parameter in factors if adapts(m, parameter)]
    inside = name + ".base_layer" * len(wrapped)
    yield Row(f"{inside}.gate_up_proj", "E (2 x) h")
    yield Row(f"{inside}.down_proj", "E h x")
    while wrapped:
        a, b = factors[wrapped.pop(0)]
        wrapper = name + ".base_layer" * len(wrapped)
        yield Row(f"{wrapper}.lora_A.default.weight", a, "adapter", "fp32")
        yield Row(f"{wrapper}.lora_B.default.weight", b, "adapter", "fp32")


def forward(m: Structure, ids: Tensor) -> Tensor:
    return moe_lm(m, lambda: model(m, ids, lambda kind: moe))


def moe_lm(m: Structure, run: Callable[[], Tensor]) -> Tensor:
    """XxxForCausalLM; where the configuration asks for router logits, those of every layer live until it returns."""
    if not m.has("router_logits") or m.run == "inference":
        return causal_lm(m, run, "model.embed_tokens")
    logits: list[Tensor] = []
    loss = causal_lm(m, lambda: observed(run, logits), "model.embed_tokens",
                     extra=lambda loss: with_routers(loss, logits))
    release(logits)
    return loss


def with_routers(loss: Tensor | None, logits: list[Tensor]) -> Tensor:
    """The loss with that of the routers; this one by itself where the model has no labels."""
    routers = load_balancing_loss(logits)
    return routers if loss is None else added(loss, routers)


def observed(run: Callable[[], Tensor], logits: list[Tensor]) -> Tensor:
    """Run the decoder and collect what its routers give (output_capturing.py)."""
    tape = current()
    tape.router_logits = logits
    hidden = run()
    tape.router_logits = None
    return hidden


def model(m: Structure, ids: Tensor, feed_forward: Callable[[str], FeedForward], name: str = "model",
          tables: Callable[[Structure, str], tuple[Tensor, Tensor]] = lambda m, dtype: rotary_table(dtype),
          inputs_embeds: Tensor | None = None, after: Callable[[Tensor, str], Tensor] | None = None,
          numbered: Callable[[], tuple[Tensor, Tensor | None]] | None = None, packed: bool = True) -> Tensor:
    """The decoder; feed_forward: what each kind of layer has there; the rest: as in llama.model."""
    with scope(name):
        if inputs_embeds is None:
            inputs_embeds = embed(ids, "embed_tokens")
        x = inputs_embeds
        numbers, position_ids = numbered() if numbered else (positions(),) * 2
        mask, = layer_masks(m, x.dtype, ("sliding" if m.has("window") else "full",), packed).values()
        cos, sin = tables(m, x.dtype)
        for kind in m.layers("layers"):
            x = m.layer(block, x, cos, sin, mask, position_ids, feed_forward(kind))
            x = x if after is None else after(x, kind)
        x = rms(x, "norm")
        del inputs_embeds, numbers
        return x


def block(m: Structure, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor | None, position_ids: Tensor,
          feed_forward: FeedForward) -> Tensor:
    return llama.pre_norm(x, lambda x: attention(m, x, cos, sin, mask), lambda x: feed_forward(m, x))


def moe(m: Structure, x: Tensor, keeps_dtype: bool = False) -> Tensor:
    """MixtralSparseMoeBlock. The router's logits live until it returns."""
    with scope("mlp"):
        shape = x.dims
        x = view(x, "(b s) h")
        logits, top_k_weights, top_k_index = router(m, x, keeps_dtype)
        x = experts(m, x, top_k_index, top_k_weights)
        x = reshape(x, shape)
        del logits
        return x
