"""LLaVA and Qwen-VL: config.json fields -> keyword arguments of `Model`: a tower for pictures before a decoder."""

from __future__ import annotations

from typing import Any

from peakmem.errors import Impossible, UnknownName
from peakmem.model import Model
from peakmem.readers import decoders, recurrent
from peakmem.readers.defaults_towers import CLIP_VISION, LLAVA_VISION, QWEN_TEXT, QWEN_VISION
from peakmem.readers.fields import Fields
from peakmem.readers.shared import Sizes, layers, side
from peakmem.readers.towers import clip_vision, part

TEXTS = {"llama": decoders.llama, "mistral": decoders.mistral, "qwen2": decoders.qwen2}
NOTE = "the tower's weights are counted; generation is of text alone, no picture is looked at"
ANY_SIZE = ("a picture of --image-height × --image-width takes a token for each square of patches that is merged; "
            "--images says how many there are in each sequence")
AVERAGED = ("a picture takes {} tokens of --sequence, which look at one another both ways, so that every layer has a "
            "mask; --images says whether there is one")
TILES = ("a picture is one or more tiles of {0} × {0} pixels, each of which takes {1} tokens of --sequence; --images "
         "says how many tiles there are in each sequence")
SEES = "a picture takes as many tokens of --sequence as the tower sees patches; --images says whether there is one"


def together(f: Fields, text: Sizes, image: Model) -> Sizes:
    """A decoder with a tower whose layers run first. What the tower merges early is added after the first layers."""
    kinds = text.get("layer_kinds") or ("sliding" if text.get("window") else "full",) * text["layers"]
    before = image.layer_kinds or ("image",) * image.layers
    deep = image.sizes.get("nd", 0) if "sees" in text["switches"] else 0
    kinds = (*(f"{kind}, deepstack {i}" for i, kind in enumerate(kinds[:deep])), *kinds[deep:])
    f.notes.append(ANY_SIZE if "any_size" in text["switches"] else SEES if "sees" in text["switches"] else NOTE)
    if "gt" in image.sizes:
        f.notes[-1] = AVERAGED.format(image.sizes["gt"] ** 2)
    if "tiles" in text["switches"]:
        f.notes[-1] = TILES.format(image.image, image.sizes["qt"] ** 2)
    f.assumed.pop(("text_config", "tie_word_embeddings"), None)  # the whole model's word counts
    return text | {
        "layers": image.layers + text["layers"], "layer_kinds": (*before, *kinds),
        "image": image.image, "patch": image.patch, "channels": image.channels, "towers": (image,),
    }


def llava(f: Fields) -> Sizes:
    """LLaVA 1.5: CLIP's tower, two layers of a projector, a decoder of another family."""
    from peakmem.readers.defaults import ALIASES, DEFAULTS

    given = part(f, "text_config", {})
    kind = given.value("model_type") or "llama"
    if kind not in TEXTS:
        raise UnknownName(f"text model in {f.file}:", str(kind), TEXTS)
    inner = Fields(given.file, given.given, DEFAULTS[kind], ALIASES.get(kind))
    inner.notes, inner.assumed, inner.place = f.notes, f.assumed, given.place
    text = TEXTS[kind](inner)
    pictures = part(f, "vision_config", LLAVA_VISION if f.value("vision_config") is None else CLIP_VISION)
    tower = pictures.value("model_type") or "clip_vision_model"
    if tower != "clip_vision_model":
        raise UnknownName(f"image tower in {f.file}:", str(tower), ("clip_vision_model",))
    if type(f.value("vision_feature_layer")) is not int:
        raise Impossible(f"{f.file}: vision_feature_layer names several layers, whose features are joined, which "
                         "peakmem does not know; give one number")
    strategy = f.value("vision_feature_select_strategy")
    if strategy not in ("default", "full"):
        raise f.wrong("vision_feature_select_strategy", "give default or full")
    image = read_at(f, clip_vision(pictures))
    switches = text["switches"] | {"sees", f"projector {f.activation('projector_hidden_act')}"}
    switches |= {"projector_bias"} if f.flag("multimodal_projector_bias") else set()
    switches |= {"class_token"} if strategy == "full" else set()
    tied = f.flag("tie_word_embeddings") or text["tied"]
    return together(f, text | {"tied": tied, "switches": frozenset(switches)}, image)


def read_at(f: Fields, image: Model) -> Model:
    """The tower, whose layers behind the hidden states that are read are of a kind of their own, each interpreted by
    itself: they run, and no gradient reaches them."""
    at = f.value("vision_feature_layer")
    if at == 0 or not -image.layers - 1 <= at <= image.layers:  # 0 is taken for no, and nothing is kept
        raise f.wrong("vision_feature_layer", f"the tower has {image.layers} layers; count from -{image.layers + 1} "
                      f"to -1, or from 1 to {image.layers}")
    read = at % (image.layers + 1)
    kinds = ("image",) * read + tuple(f"image, unread {i}" for i in range(read, image.layers))
    return image.changed(layer_kinds=kinds)


def qwen_vl(f: Fields, kind: str, read: Any) -> Sizes:
    """A Qwen with a tower of its own; older files have the text part's fields beside the tower's."""
    given = f.given if f.value("text_config") is None else part(f, "text_config", {}).given
    inner = Fields(f.file, given, QWEN_TEXT[kind])
    inner.notes, inner.assumed = f.notes, f.assumed
    inner.place = "" if f.value("text_config") is None else "text_config"
    text = read(inner)
    f.used |= inner.used
    image = qwen_tower(part(f, "vision_config", QWEN_VISION[kind]), kind)
    seeing = {"tied": f.flag("tie_word_embeddings"), "switches": text["switches"] | {"sees", "any_size"}}
    return together(f, text | seeing, image)


def qwen2_vl(f: Fields) -> Sizes:
    return qwen_vl(f, "qwen2_vl", decoders.qwen2)


def qwen2_5_vl(f: Fields) -> Sizes:
    return qwen_vl(f, "qwen2_5_vl", decoders.qwen2)


def qwen3_vl(f: Fields) -> Sizes:
    return qwen_vl(f, "qwen3_vl", lambda inner: decoders.biased(inner, decoders.decoder(inner, "qk_norm")))


def qwen3_vl_moe(f: Fields) -> Sizes:
    return qwen_vl(f, "qwen3_vl_moe", decoders.qwen3_moe)


def qwen3_5(f: Fields) -> Sizes:
    """Qwen3.5: a text part with a delta net; the tower merges its last layer alone."""
    from peakmem.readers.defaults import DEFAULTS

    inner = part(f, "text_config", DEFAULTS["qwen3_5_text"])
    text = recurrent.qwen3_5(inner)
    image = qwen_tower(part(f, "vision_config", QWEN_VISION["qwen3_5"]), "qwen3_5")
    seeing = {"tied": f.flag("tie_word_embeddings"), "switches": text["switches"] | {"sees", "any_size"}}
    return together(f, text | seeing, image)


def qwen_tower(f: Fields, kind: str) -> Model:
    """Qwen's tower: patches of two frames, merged by squares into tokens as wide as the decoder."""
    first = kind == "qwen2_vl"
    wide, layer_count = "embed_dim" if first else "hidden_size", layers(f, "depth")
    hidden, heads, merged = f.count(wide), f.count("num_heads"), f.count("spatial_merge_size", most=100)
    if hidden % heads:
        raise Impossible(f"{f.file}: {f.said(wide)} is not divisible by {f.said('num_heads')}")
    patch = side(f, "patch_size")
    sizes = {"ho": f.count("hidden_size" if first else "out_hidden_size"),
             "pt": f.count("temporal_patch_size", most=100), "pm": merged**2}
    kinds = ["image"] * layer_count
    if kind == "qwen2_5_vl":
        sizes["wm"] = max(f.count("window_size") // merged // patch, 1)
        whole = listed(f, "fullatt_block_indexes")
        kinds = ["image" if i in whole else "image, windows" for i in range(layer_count)]
    elif not first:
        early = listed(f, "deepstack_visual_indexes") if kind != "qwen3_5" else []
        sizes |= {"pp": f.count("num_position_embeddings"), "nd": len(early)}
        for number, at in enumerate(early):
            if at < layer_count:
                kinds[at] = f"image, merged {number}"
    return Model(
        name="image", architecture=kind, layers=layer_count, hidden=hidden, heads=heads, kv_heads=heads,
        head_size=hidden // heads, activation=f.activation("hidden_act"), patch=patch, sizes=sizes,
        feed_forward=hidden * f.count("mlp_ratio") if first else f.count("intermediate_size"),
        channels=f.count("in_channels"), layer_kinds=tuple(kinds),
    )


def listed(f: Fields, name: str) -> list[int]:
    """A list of numbers of layers. Errors: Unreadable."""
    found = f.value(name)
    if not isinstance(found, list) or not all(type(x) is int and x >= 0 for x in found):
        raise f.wrong(name, "give a list of layer numbers")
    return found
