"""Encoders with a masked language model head, beyond BERT and RoBERTa: config.json fields -> arguments of `Model`."""

from __future__ import annotations

from peakmem.errors import Impossible
from peakmem.readers.classics import BIASES, bert
from peakmem.readers.fields import Fields
from peakmem.readers.shared import KINDS, Sizes, architecture, even, head_size, layers, refuse, windowed


def bare(f: Fields, name: str) -> frozenset[str]:
    """The switch where the file names the encoder itself, which has no pooler."""
    if architecture(f) != f"{name}Model":
        return frozenset()
    f.notes.append(f"{name}Model is trained as {name}ForMaskedLM, with the head; --run inference is the class itself")
    return frozenset({"bare"})


def distilbert(f: Fields) -> Sizes:
    """DistilBERT: BERT without token types, half as deep."""
    refuse(f, "sinusoidal_pos_embds", "positions that are not trained")
    heads, dropout = f.count("n_heads"), f.fraction("dropout")
    return {
        "layers": f.count("n_layers"), "hidden": f.count("dim"), "heads": heads, "kv_heads": heads,
        "head_size": head_size(f, "dim", "n_heads", own=False), "feed_forward": f.count("hidden_dim"),
        "vocabulary": f.count("vocab_size"), "positions": f.count("max_position_embeddings"),
        "longest": f.count("max_position_embeddings"), "tied": f.flag("tie_word_embeddings"),
        "activation": f.activation("activation"), "embedding_dropout": dropout, "hidden_dropout": dropout,
        "attention_dropout": f.fraction("attention_dropout"),
        "switches": frozenset(BIASES) | bare(f, "DistilBert"),
    }


def electra(f: Fields) -> Sizes:
    """ELECTRA, its generator: the discriminator has the same encoder and a smaller head."""
    sizes, narrow = bert(f), f.count("embedding_size")
    return sizes | {"sizes": {"e": narrow} if narrow != sizes["hidden"] else {},
                    "switches": sizes["switches"] | bare(f, "Electra")}


def mpnet(f: Fields) -> Sizes:
    """MPNet: eager attention; positions begin behind the padding token's number, which is 1."""
    sizes = bert(f)
    buckets = f.count("relative_attention_num_buckets")
    return sizes | {"longest": max(sizes["positions"] - 2, 1), "sizes": {"B": buckets},
                    "switches": sizes["switches"] | {"eager_only", "shared_inputs"}}


def modernbert(f: Fields) -> Sizes:
    """ModernBERT: a full layer and then two with a window to both sides, unless the file lists them."""
    refuse(f, "sparse_prediction", "logits of the masked tokens alone")
    if f.activation("classifier_activation") != "gelu":
        raise f.wrong("classifier_activation", "peakmem knows gelu there")
    count, every = layers(f), f.count("global_attn_every_n_layers") if "global_attn_every_n_layers" in f.given else 3
    kinds = f.kinds("layer_types", count, KINDS) or tuple("sliding" if i % every else "full" for i in range(count))
    window = f.count("local_attention") // 2
    if "sliding" in kinds and not window:
        raise Impossible(f"{f.file}: {f.said('local_attention')} leaves no window; give at least 2")
    heads, size = f.count("num_attention_heads"), head_size(f, own=False)
    flags = {"attention_bias": "attention_bias", "mlp_bias": "mlp_bias", "norm_bias": "norm_bias",
             "decoder_bias": "head_bias", "classifier_bias": "classifier_bias"}
    switches = {switch for field, switch in flags.items() if f.flag(field)}
    return {
        "layers": count, "hidden": f.count("hidden_size"), "heads": heads, "kv_heads": heads,
        "head_size": even(f, "the head size", size), "feed_forward": f.count("intermediate_size"),
        "vocabulary": f.count("vocab_size"), "tied": f.flag("tie_word_embeddings"),
        "activation": f.activation("hidden_activation"), "embedding_dropout": f.fraction("embedding_dropout"),
        "attention_dropout": f.fraction("attention_dropout"), "hidden_dropout": f.fraction("mlp_dropout"),
        "window": windowed(f, window, kinds)["window"], "layer_kinds": (f"{kinds[0]}, first", *kinds[1:]),
        "switches": frozenset({"float_loss"} | switches | bare(f, "ModernBert")),
    }
