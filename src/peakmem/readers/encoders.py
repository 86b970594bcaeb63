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


def deberta_v2(f: Fields) -> Sizes:
    """DeBERTa v2 and v3: eager attention that scores distances; a table of positions beside them, or none."""
    if not f.flag("legacy"):
        raise Impossible(f"{f.file}: legacy is false: a masked head that peakmem does not know; set it to true")
    if f.count("conv_kernel_size", least=0, null=0):
        raise Impossible(f"{f.file}: {f.said('conv_kernel_size')}: a convolution beside the first layer, which peakmem "
                         "does not know; DeBERTa v3 has none")
    f.used |= {"conv_act", "conv_groups", "pooler_dropout", "pooler_hidden_act", "pooler_hidden_size"}
    heads, dropout = f.count("num_attention_heads"), f.fraction("hidden_dropout_prob")
    size = head_size(f, own=False)
    own = f.count("attention_head_size") if f.value("attention_head_size") is not None else size
    if own != size:
        raise Impossible(f"{f.file}: {f.said('attention_head_size')} must be {size}, hidden_size over heads")
    longest, types = f.count("max_position_embeddings"), f.count("type_vocab_size", least=0)
    narrow = f.count("embedding_size" if f.value("embedding_size") is not None else "hidden_size")
    relative = f.flag("relative_attention")
    span = f.count("max_relative_positions", least=-1)
    span = span if span > 0 else longest
    buckets = f.count("position_buckets", least=-1, null=-1)
    norms = f.value("norm_rel_ebd")
    ways = _ways(f)
    if relative and not ways:
        raise Impossible(f"{f.file}: relative_attention is true, and pos_att_type names neither c2p nor p2c; give both")
    placed = f.flag("position_biased_input")
    facts = {"relative": relative, "c2p": "c2p" in ways, "p2c": "p2c" in ways,
             "shared_keys": bool(f.value("share_att_key")), "buckets": buckets > 0,
             "norm_relative": isinstance(norms, str) and "layer_norm" in norms.lower().split("|"),
             "position_input": placed, "token_types": types > 0,
             "shared_inputs": True}
    return {
        "layers": f.count("num_hidden_layers"), "hidden": f.count("hidden_size"), "heads": heads, "kv_heads": heads,
        "head_size": size, "feed_forward": f.count("intermediate_size"), "vocabulary": f.count("vocab_size"),
        "positions": longest if placed else 0, "longest": longest if placed else 0, "token_types": types,
        "tied": f.flag("tie_word_embeddings"), "activation": f.activation("hidden_act"),
        "embedding_dropout": dropout, "hidden_dropout": dropout,
        "attention_dropout": f.fraction("attention_probs_dropout_prob"),
        "sizes": {"R": 2 * (buckets if buckets > 0 else span), **({} if placed else {"P": longest}),
                  **({"e": narrow} if narrow != f.count("hidden_size") else {})},
        "switches": frozenset({"eager_only"} | {name for name, on in facts.items() if on}) | bare(f, "DebertaV2"),
    }


def _ways(f: Fields) -> frozenset[str]:
    """pos_att_type: a list, or words with bars between them. Errors: Unreadable."""
    value = f.value("pos_att_type")
    words = value.lower().split("|") if isinstance(value, str) else [] if value is None else value
    if not isinstance(words, list) or not all(isinstance(word, str) and word.strip() in ("c2p", "p2c")
                                              for word in words):
        raise f.wrong("pos_att_type", "give c2p, p2c, or both: c2p|p2c")
    return frozenset(word.strip() for word in words)
