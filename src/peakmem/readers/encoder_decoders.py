"""T5, Whisper, BART's kin: config.json fields -> arguments of `Model`. The layers of the encoder come first."""

from __future__ import annotations

from peakmem.errors import Impossible
from peakmem.readers.fields import Fields
from peakmem.readers.shared import Sizes, head_size, layers


def t5(f: Fields, scales: bool = True) -> Sizes:
    """T5, Flan-T5: the first layer of each stack makes the position bias that all of its layers add.

    The head is always the embedding matrix; a file that says otherwise means that the output isn't scaled. transformers
    5 saves such a file as tied, with scale_decoder_outputs false (configuration_t5.py).
    """
    encoder = layers(f, "num_layers")
    decoder = encoder if f.value("num_decoder_layers") is None else layers(f, "num_decoder_layers")
    heads, dropout = f.count("num_heads"), f.fraction("dropout_rate")
    gated, activation = _feed_forward(f)
    untied = f.value("tie_word_embeddings") is False
    scaled = scales and not untied
    if scales and "scale_decoder_outputs" in f.given:
        scaled = f.flag("scale_decoder_outputs", null=False)
    if untied and not scales:
        f.notes.append("tie_word_embeddings false is not followed: mT5's head is always tied")
    elif untied:
        f.notes.append("tie_word_embeddings false only means that the output is not scaled: T5's head is always tied")
    switches = {"encoder_decoder", "shared_inputs", "position_bias", "masked", *(("gated",) if gated else ()),
                *(("scaled_output",) if scaled else ())}
    return {
        "layers": encoder + decoder, "layer_kinds": (*stack("encoder", encoder), *stack("decoder", decoder)),
        "hidden": f.count("d_model"), "heads": heads, "kv_heads": heads, "head_size": f.count("d_kv"),
        "feed_forward": f.count("d_ff"), "vocabulary": f.count("vocab_size"), "tied": True, "activation": activation,
        "embedding_dropout": dropout, "attention_dropout": dropout, "hidden_dropout": dropout,
        "switches": frozenset(switches), "sizes": {"B": f.count("relative_attention_num_buckets")},
    }


def mt5(f: Fields) -> Sizes:
    """mT5: T5 with an output that is never scaled."""
    return t5(f, scales=False)


def whisper(f: Fields) -> Sizes:
    """Whisper: encoder and decoder of one width, with as many heads; the source is always of one length."""
    if f.value("apply_spec_augment"):
        raise Impossible(f"{f.file}: {f.said('apply_spec_augment')}: masked frames, which peakmem does not know; "
                         "leave it out")
    longest = f.count("max_target_positions")
    return _two_stacks(f, "Whisper") | {
        "positions": longest, "longest": longest,
        "sizes": {"s": f.count("max_source_positions"), "mel": f.count("num_mel_bins")},
    }


def bart(f: Fields) -> Sizes:
    """BART, mBART, Marian, Pegasus, M2M100: a table of positions for each stack, of two rows more than positions.

    Marian's and Pegasus's have no more. M2M100's would grow with a longer sequence, which is refused.
    """
    kind, longest = f.given["model_type"], f.count("max_position_embeddings")
    if kind == "marian":
        if not f.flag("share_encoder_decoder_embeddings"):
            raise Impossible(f"{f.file}: share_encoder_decoder_embeddings is false: two vocabularies, which peakmem "
                             "does not know; set it to true")
        own = f.value("decoder_vocab_size")
        if own is not None and own != f.count("vocab_size"):
            raise Impossible(f"{f.file}: {f.said('decoder_vocab_size')} must be {f.said('vocab_size')}, as the "
                             "embeddings are shared")
    return _two_stacks(f, kind) | {
        "positions": longest + (0 if kind in ("marian", "pegasus") else 2),
        "longest": longest}


def _two_stacks(f: Fields, name: str) -> Sizes:
    """What Whisper and BART's kin have in common. Errors: Impossible."""
    encoder, decoder = layers(f, "encoder_layers"), layers(f, "decoder_layers")
    heads, wide = f.count("decoder_attention_heads"), f.count("decoder_ffn_dim")
    if (f.count("encoder_attention_heads"), f.count("encoder_ffn_dim")) != (heads, wide):
        raise Impossible(f"{f.file}: encoder_attention_heads and encoder_ffn_dim must be those of the decoder: "
                         f"peakmem knows no other {name}")
    if f.fraction("encoder_layerdrop") or f.fraction("decoder_layerdrop"):
        f.notes.append("layerdrop is taken as 0: the step in which no layer is dropped")
    f.used |= {"num_hidden_layers", "scale_embedding", "forced_eos_token_id", "forced_bos_token_id"}
    dropout = f.fraction("dropout")
    return {
        "layers": encoder + decoder, "layer_kinds": ("encoder",) * encoder + ("decoder",) * decoder,
        "hidden": f.count("d_model"), "heads": heads, "kv_heads": heads,
        "head_size": head_size(f, "d_model", "decoder_attention_heads", own=False), "feed_forward": wide,
        "vocabulary": f.count("vocab_size"), "tied": f.flag("tie_word_embeddings"),
        "activation": f.activation("activation_function"), "embedding_dropout": dropout,
        "attention_dropout": f.fraction("attention_dropout"), "hidden_dropout": dropout,
        "activation_dropout": f.fraction("activation_dropout"),
        "switches": frozenset({"encoder_decoder", "shared_inputs"}),
    }


def stack(name: str, count: int) -> tuple[str, ...]:
    """The kinds of a stack's layers, of which the first is one of its own."""
    return (f"{name}, first", *((name,) * (count - 1)))


def _feed_forward(f: Fields) -> tuple[bool, str]:
    """feed_forward_proj: an activation, or `gated-` and one; gelu with a gate is T5 1.1's, gelu_new."""
    word = f.value("feed_forward_proj")
    if not isinstance(word, str) or word.count("-") > 1 or "-" in word and not word.startswith("gated-"):
        raise f.wrong("feed_forward_proj", "give an activation, or gated- and an activation")
    name = "gelu_new" if word == "gated-gelu" else word.removeprefix("gated-")
    return word != name and word.startswith("gated-"), Fields(f.file, {"feed_forward_proj": name}, {}).activation(
        "feed_forward_proj")


