"""RoBERTa, encoder-decoders, and models of several towers: the rows of `models.presets`, continued."""

from __future__ import annotations

from typing import Any

from peakmem.tables.models import DEFAULT, HUB, MLC, Preset, encoder

Config = dict[str, Any]


def t5(layers: int, hidden: int, heads: int, wide: int, flan: bool = False, head: int = 64) -> Config:
    """A T5, or a T5 1.1 as Flan-T5 is one: with a gate, and a head that once was a matrix of its own."""
    config = {"model_type": "t5", "num_layers": layers, "d_model": hidden, "num_heads": heads, "d_kv": head,
              "d_ff": wide, "vocab_size": 32128}
    return {**config, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False} if flan else config


def roberta(layers: int, hidden: int, heads: int) -> Config:
    return {**encoder("roberta", layers, hidden, heads), "vocab_size": 50265, "max_position_embeddings": 514,
            "type_vocab_size": 1}


def whisper(layers: int, hidden: int, heads: int, decoder: int = 0, **more: int) -> Config:
    return {"model_type": "whisper", "encoder_layers": layers, "decoder_layers": decoder or layers, "d_model": hidden,
            "encoder_attention_heads": heads, "decoder_attention_heads": heads, "encoder_ffn_dim": 4 * hidden,
            "decoder_ffn_dim": 4 * hidden, "vocab_size": 51865, **more}


def tower(layers: int, hidden: int, heads: int, **more: Any) -> Config:
    """A tower of CLIP: for captions or for pictures."""
    return {"num_hidden_layers": layers, "hidden_size": hidden, "num_attention_heads": heads,
            "intermediate_size": 4 * hidden, **more}


SO400M: Config = {"num_hidden_layers": 27, "hidden_size": 1152, "num_attention_heads": 16, "intermediate_size": 4304}


def clip(text: Config, pictures: Config, width: int) -> Config:
    return {"model_type": "clip", "projection_dim": width, "text_config": text, "vision_config": pictures}


def llava(layers: int, hidden: int, heads: int, wide: int) -> Config:
    text = {"model_type": "llama", "num_hidden_layers": layers, "hidden_size": hidden, "num_attention_heads": heads,
            "num_key_value_heads": heads, "intermediate_size": wide, "vocab_size": 32064}
    pictures = tower(24, 1024, 16, image_size=336, patch_size=14, model_type="clip_vision_model")
    return {"model_type": "llava", "text_config": text, "vision_config": pictures}


def qwen_vl(kind: str, text: Config, pictures: Config, tied: bool = False) -> Config:
    return {"model_type": kind, "text_config": text, "vision_config": pictures, "tie_word_embeddings": tied}


def words(layers: int, hidden: int, heads: int, kv: int, wide: int, vocabulary: int, **more: Any) -> Config:
    """The text part of a Qwen-VL."""
    return {"num_hidden_layers": layers, "hidden_size": hidden, "num_attention_heads": heads,
            "num_key_value_heads": kv, "intermediate_size": wide, "vocab_size": vocabulary, **more}


def resnet(depths: list[int], widths: list[int], layer: str = "bottleneck") -> Config:
    return {"model_type": "resnet", "depths": depths, "hidden_sizes": widths, "layer_type": layer, "num_labels": 1000}


WIDE, NARROW = [256, 512, 1024, 2048], [64, 128, 256, 512]
OLD_TOWER: Config = {"depth": 32, "hidden_size": 1280, "intermediate_size": 3420, "num_heads": 16}
LARGE_TOWER = tower(24, 1024, 16, patch_size=14)
LARGE_TEXT = tower(12, 768, 12)
AIC = "aiconfigurator-core 0.12.0 model_configs"

ROWS: tuple[Preset, ...] = (
    Preset("t5-small", t5(6, 512, 8, 2048), 60506624, DEFAULT),
    Preset("t5-base", t5(12, 768, 12, 3072), 222903552, f"{HUB}google-t5/t5-base"),
    Preset("t5-large", t5(24, 1024, 16, 4096), 737668096, f"{HUB}google-t5/t5-large"),
    Preset("t5-3b", t5(24, 1024, 32, 16384, head=128), 2851598336, f"{HUB}google-t5/t5-3b"),
    Preset("t5-11b", t5(24, 1024, 128, 65536, head=128), 11307321344, f"{HUB}google-t5/t5-11b"),
    Preset("flan-t5-small", t5(8, 512, 6, 1024, True), 60511616, f"{HUB}google/flan-t5-small", ("t5-v1_1-small",)),
    Preset("flan-t5-base", t5(12, 768, 12, 2048, True), 222903552, f"{HUB}google/flan-t5-base",
           ("t5-v1_1-base", "flan-t5")),
    Preset("flan-t5-large", t5(24, 1024, 16, 2816, True), 750251008, f"{HUB}google/flan-t5-large", ("t5-v1_1-large",)),
    Preset("flan-t5-xl", t5(24, 2048, 32, 5120, True), 2783959040, f"{HUB}google/flan-t5-xl", ("t5-v1_1-xl",)),
    Preset("flan-t5-xxl", t5(24, 4096, 64, 10240, True), 11003736064, f"{HUB}google/flan-t5-xxl", ("t5-v1_1-xxl",)),
    Preset("roberta-base", roberta(12, 768, 12), 124697433, f"{HUB}FacebookAI/roberta-base", ("roberta",)),
    Preset("roberta-large", roberta(24, 1024, 16), 355412057, f"{HUB}FacebookAI/roberta-large"),
    Preset("clip-vit-base-patch32", clip({}, {}, 512), 151277313, DEFAULT, ("clip", "clip-vit-b-32")),
    Preset("clip-vit-base-patch16", clip({}, {"patch_size": 16}, 512), 149620737, f"{HUB}openai/clip-vit-base-patch16",
           ("clip-vit-b-16",)),
    Preset("clip-vit-large-patch14", clip(LARGE_TEXT, LARGE_TOWER, 768), 427616513,
           f"{HUB}openai/clip-vit-large-patch14", ("clip-vit-l-14",)),
    Preset("clip-vit-large-patch14-336", clip(LARGE_TEXT, {**LARGE_TOWER, "image_size": 336}, 768), 427944193,
           f"{HUB}openai/clip-vit-large-patch14-336", ("clip-vit-l-14-336",)),
    Preset("siglip-base", {"model_type": "siglip", "text_config": {}, "vision_config": {}}, 203155970, DEFAULT,
           ("siglip", "siglip-base-patch16-224")),
    Preset("siglip-so400m", {"model_type": "siglip", "text_config": SO400M,
                             "vision_config": {**SO400M, "image_size": 384, "patch_size": 14}}, 877960498,
           f"{HUB}google/siglip-so400m-patch14-384", ("siglip-so400m-patch14-384",)),
    Preset("whisper-tiny", whisper(4, 384, 6), 37760640, f"{HUB}openai/whisper-tiny"),
    Preset("whisper-base", whisper(6, 512, 8), 72593920, f"{HUB}openai/whisper-base"),
    Preset("whisper-small", whisper(12, 768, 12), 241734912, f"{HUB}openai/whisper-small"),
    Preset("whisper-medium", whisper(24, 1024, 16), 763857920, f"{HUB}openai/whisper-medium"),
    Preset("whisper-large-v2", whisper(32, 1280, 20), 1543304960, f"{HUB}openai/whisper-large-v2", ("whisper-large",)),
    Preset("whisper-large-v3", whisper(32, 1280, 20, num_mel_bins=128, vocab_size=51866), 1543490560,
           f"{HUB}openai/whisper-large-v3"),
    Preset("whisper-large-v3-turbo", whisper(32, 1280, 20, 4, num_mel_bins=128, vocab_size=51866), 808878080,
           f"{HUB}openai/whisper-large-v3-turbo"),
    Preset("resnet-18", resnet([2, 2, 2, 2], NARROW, "basic"), 11689512, f"{HUB}microsoft/resnet-18", ("resnet18",)),
    Preset("resnet-34", resnet([3, 4, 6, 3], NARROW, "basic"), 21797672, f"{HUB}microsoft/resnet-34", ("resnet34",)),
    Preset("resnet-50", resnet([3, 4, 6, 3], WIDE), 25557032, f"{HUB}microsoft/resnet-50", ("resnet50", "resnet")),
    Preset("resnet-101", resnet([3, 4, 23, 3], WIDE), 44549160, f"{HUB}microsoft/resnet-101", ("resnet101",)),
    Preset("resnet-152", resnet([3, 8, 36, 3], WIDE), 60192808, f"{HUB}microsoft/resnet-152", ("resnet152",)),
    Preset("llava-1.5-7b", llava(32, 4096, 32, 11008), 7063427072, f"{MLC} [llava]", ("llava", "llava-7b")),
    Preset("llava-1.5-13b", llava(40, 5120, 40, 13824), 13351494656, f"{HUB}llava-hf/llava-1.5-13b-hf", ("llava-13b",)),
    Preset("qwen2.5-vl-3b", qwen_vl("qwen2_5_vl", words(36, 2048, 16, 2, 11008, 151936),
                                    {**OLD_TOWER, "out_hidden_size": 2048}, True), 3754622976,
           f"{HUB}Qwen/Qwen2.5-VL-3B-Instruct"),
    Preset("qwen2.5-vl-7b", qwen_vl("qwen2_5_vl", words(28, 3584, 28, 4, 18944, 152064), OLD_TOWER), 8292166656,
           f"{HUB}Qwen/Qwen2.5-VL-7B-Instruct", ("qwen-vl",)),
    Preset("qwen3-vl-4b", qwen_vl("qwen3_vl", words(36, 2560, 32, 8, 9728, 151936), {
        "depth": 24, "hidden_size": 1024, "intermediate_size": 4096, "out_hidden_size": 2560,
        "deepstack_visual_indexes": [5, 11, 17]}, True), 4437815808, f"{AIC} Qwen--Qwen3-VL-4B-Instruct"),
    Preset("qwen3-vl-30b-a3b", qwen_vl("qwen3_vl_moe", {
        "num_hidden_layers": 48, "hidden_size": 2048, "num_attention_heads": 32, "num_key_value_heads": 4,
        "vocab_size": 151936, "head_dim": 128, "moe_intermediate_size": 768, "num_experts": 128,
        "num_experts_per_tok": 8, "norm_topk_prob": True}, {"out_hidden_size": 2048}), 31070754032,
           f"{AIC} Qwen--Qwen3-VL-30B-A3B-Instruct"),
)
