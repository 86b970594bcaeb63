"""What autograd saves in the real module, on the CPU, is what the forward code says is saved: storage for storage.

A second oracle beside the traces: here PyTorch runs with numbers, and its own hooks tell what each node keeps.
"""

from __future__ import annotations

import weakref
from collections import Counter
from typing import Any

import pytest

from peakmem import estimate
from peakmem.readers import hf_config
from peakmem.readers.hf_config import from_config
from tests.architectures import (
    test_classics,
    test_classifiers,
    test_decoders,
    test_encoder_decoders,
    test_encoders,
    test_kin,
    test_llama_kin,
    test_moe,
    test_newest,
    test_open_models,
    test_recent,
    test_tiles,
    test_towers,
    test_vision_language,
)

FAMILIES: dict[str, dict[str, Any]] = {
    **test_classics.VARIANTS,
    **{name: test_decoders.SIZES | config for name, config in test_decoders.VARIANTS.items()},
    **test_encoder_decoders.VARIANTS,
    **test_encoders.VARIANTS,
    **{name: test_kin.BASE | config for name, config in test_kin.VARIANTS.items()},
    **{name: test_llama_kin.BASE | config for name, config in test_llama_kin.VARIANTS.items()},
    # DeepSeek-V4's training is refused; transformers' own eager attention takes as many key-value heads as heads.
    **{name: config | ({"num_key_value_heads": 4} if "glm" in name else {})
       for name, config in test_newest.VARIANTS.items() if name != "deepseek v4"},
    **{name: test_moe.SIZES | config for name, config in test_moe.VARIANTS.items()},
    **{name: test_open_models.SIZES | config for name, config in test_open_models.VARIANTS.items()},
    **{name: test_recent.BASE | config for name, config in test_recent.VARIANTS.items()},
    **test_classifiers.VARIANTS,
    **{name: config for name, config in test_towers.VARIANTS.items() if name in test_towers.TRAINS},
    **test_vision_language.VARIANTS,
    **test_tiles.VARIANTS,
}
CLASSES = {"bert": "AutoModelForMaskedLM", "roberta": "AutoModelForMaskedLM",
           **dict.fromkeys(("deberta-v2", "distilbert", "electra", "modernbert", "mpnet"), "AutoModelForMaskedLM"),
           **dict.fromkeys(("t5", "mt5", *test_encoder_decoders.BARTS), "AutoModelForSeq2SeqLM"),
           "whisper": "WhisperForConditionalGeneration", "vit": "AutoModelForImageClassification",
           "resnet": "AutoModelForImageClassification", "clip": "CLIPModel", "siglip": "SiglipModel",
           "llava": "AutoModelForImageTextToText",
           **dict.fromkeys(("gemma3", "paligemma"), "AutoModelForImageTextToText"),
           **dict.fromkeys((*test_vision_language.KINDS, *test_tiles.KINDS), "AutoModelForImageTextToText"),
           **{family: hf_config.CLASSES[family] for family in test_classifiers.FAMILIES}}
BATCH, TOKENS = 2, 24


class Kept:
    """What a node holds in place of a tensor: it dies with the node, of which it must not hold the output."""

    def __init__(self, tensor: Any) -> None:
        self.tensor = tensor.detach()


def batch_of(made: Any) -> dict[str, Any]:
    torch = pytest.importorskip("torch")
    ids = torch.randint(3, 90, (BATCH, TOKENS))
    if made.model_type == "whisper":
        return {"input_features": torch.randn(BATCH, made.num_mel_bins, 2 * made.max_source_positions), "labels": ids}
    if made.model_type in ("clip", "siglip"):
        images = made.vision_config
        ids = torch.randint(3, 90, (BATCH, 16))
        return {"input_ids": ids, "return_loss": True,
                "pixel_values": torch.randn(BATCH, images.num_channels, images.image_size, images.image_size)}
    if made.model_type == "llava":
        images = made.vision_config
        patches = (images.image_size // images.patch_size) ** 2 + (made.vision_feature_select_strategy == "full")
        ids[:, 1:patches + 1] = made.image_token_id
        return {"input_ids": ids, "labels": ids.clone(),
                "pixel_values": torch.randn(BATCH, images.num_channels, images.image_size, images.image_size)}
    if made.model_type in ("gemma3", "paligemma"):
        images, places = made.vision_config, torch.zeros_like(ids)
        tokens = getattr(made, "mm_tokens_per_image", (images.image_size // images.patch_size) ** 2)
        places[:, 1:tokens + 1] = 1
        ids = ids.masked_fill(ids == made.image_token_id, 3).masked_fill(places.bool(), made.image_token_id)
        return {"input_ids": ids, "labels": ids.clone(), "token_type_ids": places,
                "pixel_values": torch.randn(BATCH, images.num_channels, images.image_size, images.image_size)}
    if made.model_type in test_tiles.KINDS:
        return test_tiles.batch_of(made, ids)
    if made.model_type in test_vision_language.KINDS:
        return test_vision_language.batch_of(made, ids)
    if made.model_type in {"vit", "resnet", *test_classifiers.FAMILIES}:
        side = getattr(made, "image_size", 224)
        return {"pixel_values": torch.randn(BATCH, made.num_channels, side, side),
                "labels": torch.randint(0, made.num_labels, (BATCH,))}
    return {"input_ids": ids, "labels": ids}


def saved_by_pytorch(config: dict[str, Any]) -> Counter[int]:
    """Sizes of the storages that nodes keep, but for parameters, buffers and the batch, in blocks of 512 bytes."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    made = transformers.AutoConfig.for_model(**config)
    made.use_cache = False
    made.decoder_start_token_id = 1
    for name in [name for name in vars(made) if "drop" in name]:
        setattr(made, name, 0.0)
    kind = getattr(transformers, CLASSES.get(config["model_type"], "AutoModelForCausalLM"))
    make = getattr(kind, "from_config", None) or kind._from_config
    model = make(made, attn_implementation="eager", dtype=torch.float32).train()
    batch = batch_of(made)
    kept: weakref.WeakSet[Kept] = weakref.WeakSet()

    def keep(tensor: Any) -> Kept:
        holder = Kept(tensor)
        kept.add(holder)
        return holder

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda holder: holder.tensor):
        loss = model(**batch).loss
    known = {t.untyped_storage().data_ptr() for t in (*model.parameters(), *model.buffers(), *batch.values())
             if isinstance(t, torch.Tensor)}
    storages = {holder.tensor.untyped_storage().data_ptr(): holder.tensor.untyped_storage() for holder in kept}
    sizes = Counter(-(-storage.nbytes() // 512) * 512 for place, storage in storages.items() if place not in known)
    del loss
    sizes.pop(0, None)
    if made.model_type == "deberta-v2":
        ways = len(made.pos_att_type or ()) if made.relative_attention else 0
        sizes[512] -= made.num_hidden_layers * (1 + ways)  # divisors: numbers of the processor's in a GPU's run, too
    if made.model_type == "siglip":
        sizes[512] -= 1  # log_sigmoid_forward's buffer, which is empty on a GPU
    if made.model_type == "qwen2_5_vl":
        sizes[512] -= 2  # which window each square goes to, there and back: on the CPU in a GPU's run, too
    return sizes


def saved_by_peakmem(config: dict[str, Any]) -> Counter[int]:
    model = from_config(config)
    tokens = {} if not model.vocabulary else {"sequence": 16 if config["model_type"] in ("clip", "siglip") else TOKENS}
    seen = config["model_type"] in test_vision_language.KINDS
    unseen = {"images": 0} if "any_size" in model.switches and config["model_type"] not in test_tiles.KINDS else {}
    size = test_vision_language.SIZE if seen else unseen
    ledger = estimate(model, precision="fp32", attention="eager", batch=BATCH, dropout=0, **tokens, **size)
    found: Counter[int] = Counter()
    for line in ledger.lines:
        if line.kind == "activations" and line.born.startswith("forward") and line.freed.startswith("backward"):
            found[line.bytes] += line.count
    return found


@pytest.mark.parametrize("family", FAMILIES)
def test_saved_tensors_are_those_of_pytorch(family: str) -> None:
    assert saved_by_peakmem(FAMILIES[family]) == saved_by_pytorch(FAMILIES[family])
