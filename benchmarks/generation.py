"""Trace forward passes without gradients, and generation, and compare the engine with them.

    python benchmarks/generation.py [--only WORD] [--write FILE]

transformers' own classes run on a fake GPU as generate() runs them, without its own small tensors: the encoder once,
the decoder on its first tokens, then one token at a time. Every allocation of prefill, first and last step is
compared. Exit 1 when any is off. Needs transformers. Gemma 3 makes its masks in the order of a set of words: with
PYTHONHASHSEED=3 that for all tokens comes first, as in the engine.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from itertools import product
from pathlib import Path
from typing import Any

import torch
import transformers
from torch._subclasses.fake_tensor import FakeTensorMode

sys.path.insert(0, str(Path(__file__).parents[1]))

from recorded import recorded

from peakmem.readers.hf_config import CLASSES
from peakmem.tables.kernels import GPU
from peakmem.tables.pictures import grids_of
from peakmem.trace import fake_gpu, hf
from peakmem.trace.patches import gpu_answers
from peakmem.trace.pictures import answered
from peakmem.trace.record import DTYPES
from peakmem.trace.tracer import Tracer
from tests.generations import compared, grouped, model_of, setup_of

T5 = {"model_type": "t5", "d_model": 48, "d_kv": 8, "d_ff": 56, "num_layers": 3, "num_decoder_layers": 4,
      "num_heads": 4, "vocab_size": 97, "relative_attention_num_buckets": 12, "decoder_start_token_id": 0}
VIT = {"model_type": "vit", "hidden_size": 48, "intermediate_size": 56, "num_hidden_layers": 3,
       "num_attention_heads": 6, "image_size": 40, "patch_size": 8}
CONVNEXT = {"model_type": "convnext", "hidden_sizes": [12, 20], "depths": [2, 3], "num_stages": 2, "image_size": 40}
BART = {"d_model": 48, "encoder_layers": 3, "decoder_layers": 4, "encoder_ffn_dim": 56, "decoder_ffn_dim": 56,
        "encoder_attention_heads": 6, "decoder_attention_heads": 6, "vocab_size": 97, "max_position_embeddings": 60,
        "pad_token_id": 1, "decoder_start_token_id": 2}
CONFIGS: Mapping[str, Mapping[str, Any]] = {
    "t5": T5,
    "t5 1.1": T5 | {"d_kv": 10, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False},
    "mt5": T5 | {"model_type": "mt5"},
    "whisper": {"model_type": "whisper", "d_model": 48, "encoder_layers": 3, "decoder_layers": 4, "encoder_ffn_dim": 56,
                "encoder_attention_heads": 6, "decoder_attention_heads": 6, "decoder_ffn_dim": 56, "vocab_size": 97,
                "num_mel_bins": 12, "max_source_positions": 20, "max_target_positions": 30, "pad_token_id": 0},
    **{name: BART | {"model_type": name} for name in ("bart", "mbart", "marian", "pegasus", "m2m_100")},
    "bert": {"model_type": "bert", "hidden_size": 48, "intermediate_size": 56, "num_hidden_layers": 3,
             "num_attention_heads": 6, "vocab_size": 97, "max_position_embeddings": 40,
             "architectures": ["BertForMaskedLM"]},
    "roberta": {"model_type": "roberta", "hidden_size": 48, "intermediate_size": 56, "num_hidden_layers": 3,
                "num_attention_heads": 6, "vocab_size": 97, "max_position_embeddings": 40},
    "deberta v3": {"model_type": "deberta-v2", "hidden_size": 48, "intermediate_size": 56, "num_hidden_layers": 3,
                   "num_attention_heads": 6, "vocab_size": 97, "relative_attention": True, "position_buckets": 8,
                   "norm_rel_ebd": "layer_norm", "share_att_key": True, "pos_att_type": "p2c|c2p",
                   "position_biased_input": False, "architectures": ["DebertaV2ForMaskedLM"]},
    "vit": VIT,
    "clip": {"model_type": "clip", "projection_dim": 24,
             "text_config": {"hidden_size": 48, "intermediate_size": 56, "num_hidden_layers": 3, "vocab_size": 97,
                             "num_attention_heads": 6, "max_position_embeddings": 40},
             "vision_config": {"hidden_size": 40, "intermediate_size": 44, "num_hidden_layers": 2,
                               "num_attention_heads": 4, "image_size": 40, "patch_size": 8}},
    "siglip": {"model_type": "siglip",
               "text_config": {"hidden_size": 48, "intermediate_size": 56, "num_hidden_layers": 3, "vocab_size": 97,
                               "num_attention_heads": 6, "max_position_embeddings": 40, "projection_size": 40},
               "vision_config": {"hidden_size": 40, "intermediate_size": 44, "num_hidden_layers": 2,
                                 "num_attention_heads": 5, "image_size": 40, "patch_size": 8}},
    "deit": VIT | {"model_type": "deit"},
    "dinov2": VIT | {"model_type": "dinov2"},
    "dinov2 with registers": VIT | {"model_type": "dinov2_with_registers", "use_swiglu_ffn": True},
    "convnext": CONVNEXT,
    "convnextv2": CONVNEXT | {"model_type": "convnextv2"},
    "resnet": {"model_type": "resnet", "embedding_size": 12, "hidden_sizes": [20, 24], "depths": [2, 3]},
}
ALONE: dict[str, Any] = {"hidden_size": 48, "intermediate_size": 56, "num_hidden_layers": 4, "vocab_size": 97,
                         "num_attention_heads": 4, "num_key_value_heads": 2, "pad_token_id": 0}
GEMMA4: dict[str, Any] = {
    **ALONE, "model_type": "gemma4_text", "head_dim": 12, "global_head_dim": 20, "sliding_window": 16,
    "layer_types": ["sliding_attention", "full_attention"] * 2, "hidden_size_per_layer_input": 0,
    "vocab_size_per_layer_input": 97}
DECODERS: Mapping[str, Mapping[str, Any]] = {
    "llama": {**ALONE, "model_type": "llama"},
    "mistral": {**ALONE, "model_type": "mistral", "sliding_window": 24},
    "apertus": {**ALONE, "model_type": "apertus"},
    "minimax": {**ALONE, "model_type": "minimax_m2", "intermediate_size": 24, "head_dim": 12, "num_local_experts": 4,
                "num_experts_per_tok": 2, "rotary_dim": 6},
    "glm 5": {**ALONE, "model_type": "glm_moe_dsa", "num_key_value_heads": 4, "kv_lora_rank": 12, "q_lora_rank": 16,
              "qk_nope_head_dim": 6, "qk_rope_head_dim": 4, "v_head_dim": 14, "n_routed_experts": 8, "n_group": 2,
              "num_experts_per_tok": 2, "moe_intermediate_size": 24, "first_k_dense_replace": 1, "index_topk": 20,
              "index_head_dim": 10, "index_n_heads": 3, "index_topk_freq": 2},
    "gemma 4": GEMMA4,
    "gemma 4, experts": GEMMA4 | {
        "num_global_key_value_heads": 1, "attention_k_eq_v": True, "enable_moe_block": True, "num_experts": 6,
        "top_k_experts": 2, "moe_intermediate_size": 16, "global_head_dim": 264},
    "gemma 4 and tower": {
        "model_type": "gemma4", "text_config": GEMMA4, "image_token_id": 90, "video_token_id": 91,
        "audio_token_id": 92, "vision_config": {
            "model_type": "gemma4_vision", "hidden_size": 24, "intermediate_size": 32, "num_hidden_layers": 2,
            "num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 12, "patch_size": 4,
            "position_embedding_size": 50}},
}
WORDS: dict[str, Any] = {
    **ALONE, "head_dim": 12, "bos_token_id": 1, "eos_token_id": 2,
    "rope_parameters": {"rope_type": "default", "mrope_section": [3, 2, 1], "rope_theta": 10000.0}}
QWEN_TOWER: dict[str, Any] = {
    "depth": 4, "hidden_size": 32, "intermediate_size": 44, "num_heads": 4, "patch_size": 14, "spatial_merge_size": 2,
    "temporal_patch_size": 2, "out_hidden_size": 48}
QWEN3_TOWER = QWEN_TOWER | {"patch_size": 40, "num_position_embeddings": 25, "deepstack_visual_indexes": [0, 2]}
PLACES = {"image_token_id": 90, "video_token_id": 91}
SEEING: Mapping[str, Mapping[str, Any]] = {
    "llava": {"model_type": "llava", "image_token_index": 90, "text_config": ALONE | {"model_type": "llama"},
              "vision_config": CONFIGS["clip"]["vision_config"] | {"model_type": "clip_vision_model"}},
    "gemma 3 and tower": {
        "model_type": "gemma3", "image_token_index": 90, "mm_tokens_per_image": 9, "vision_config": {
            **CONFIGS["clip"]["vision_config"], "model_type": "siglip_vision_model", "vision_use_head": False,
            "image_size": 48},
        "text_config": ALONE | {"model_type": "gemma3_text", "num_hidden_layers": 7, "head_dim": 12,
                                "sliding_window": 16}},
    "paligemma": {
        "model_type": "paligemma", "image_token_index": 90, "projection_dim": 48, "vision_config": {
            **CONFIGS["clip"]["vision_config"], "model_type": "siglip_vision_model", "vision_use_head": False},
        "text_config": ALONE | {"model_type": "gemma", "head_dim": 12}},
    "internvl": {"model_type": "internvl", "image_token_id": 90, "text_config": ALONE | {"model_type": "qwen2"},
                 "vision_config": CONFIGS["clip"]["vision_config"] | {"model_type": "internvl_vision",
                                                                      "image_size": 48, "use_mean_pooling": False}},
    "paligemma 2": {
        "model_type": "paligemma", "image_token_index": 90, "projection_dim": 48, "vision_config": {
            **CONFIGS["clip"]["vision_config"], "model_type": "siglip_vision_model", "vision_use_head": False},
        "text_config": ALONE | {"model_type": "gemma2", "head_dim": 12, "sliding_window": 40}},
    "mistral 3": {"model_type": "mistral3", "image_token_index": 90,
                  "text_config": ALONE | {"model_type": "mistral"},
                  "vision_config": CONFIGS["clip"]["vision_config"] | {"model_type": "pixtral",
                                                                       "num_attention_heads": 2}},
    "idefics3": {"model_type": "idefics3", "image_token_id": 90, "text_config": ALONE | {"model_type": "llama"},
                 "vision_config": CONFIGS["clip"]["vision_config"] | {"image_size": 48}},
    "smolvlm": {"model_type": "smolvlm", "image_token_id": 90, "text_config": ALONE | {"model_type": "llama"},
                "vision_config": CONFIGS["clip"]["vision_config"] | {"image_size": 48}},
    "qwen2-vl": {"model_type": "qwen2_vl", "text_config": WORDS, **PLACES, "vision_config": {
        "depth": 3, "embed_dim": 32, "hidden_size": 48, "mlp_ratio": 3, "num_heads": 4, "patch_size": 14}},
    "qwen2.5-vl": {"model_type": "qwen2_5_vl", "text_config": WORDS, **PLACES, "vision_config": QWEN_TOWER | {
        "window_size": 84, "fullatt_block_indexes": [2]}},
    "qwen3-vl": {"model_type": "qwen3_vl", "text_config": WORDS, **PLACES, "vision_config": QWEN3_TOWER},
    "qwen3-vl-moe": {"model_type": "qwen3_vl_moe", **PLACES, "vision_config": QWEN3_TOWER, "text_config": WORDS | {
        "moe_intermediate_size": 24, "num_experts": 4, "num_experts_per_tok": 2}},
    "qwen3.5 and tower": {"model_type": "qwen3_5", **PLACES, "vision_config": QWEN3_TOWER, "text_config": WORDS | {
        "head_dim": 16, "linear_key_head_dim": 6, "linear_value_head_dim": 10, "linear_num_key_heads": 2,
        "linear_num_value_heads": 4, "rope_parameters": {
            "rope_type": "default", "mrope_section": [1, 1, 0], "rope_theta": 10000.0, "partial_rotary_factor": 0.25}}},
}
"""Models that look at a picture in each prompt."""
SIDE, TOKENS, LONGER = 40, 21, 43
PRECISIONS = {"bf16": ("bf16", None), "fp16": ("fp16", None), "fp32": ("fp32", None), "amp-bf16": ("fp32", "bf16")}


def settings() -> Iterator[dict[str, Any]]:
    """Every model in every precision with both attentions; batches, prompts and lengths in turn."""
    configs = {**CONFIGS, **DECODERS, **SEEING}
    turns = product(configs, PRECISIONS, ("sdpa", "eager"))
    for i, (name, precision, attention) in enumerate(turns):
        if name in ("resnet", "convnext", "convnextv2", "deberta v3") and attention == "sdpa":
            continue
        if name not in ("t5", "whisper") and precision[-1] != "6":
            continue
        if name in (DECODERS | SEEING) and precision == "fp16":
            continue
        if name == "paligemma 2" and attention == "sdpa":
            attention = "auto"  # its text knows eager attention alone
        seen = {"pictures": {"images": 1, "image_height": 200, "image_width": 100}} if name in SEEING else {}
        yield {**seen, "id": f"{name}/{precision}/{attention}", "config": dict(configs[name]), "precision": precision,
               "attention": attention, "batch": 1 + i % 2, "sequence": LONGER if seen else TOKENS,
               "target": (1, 8, 3)[i % 3], "generate": (9, 2, 12, 6)[i % 4]}


def inputs_of(config: Mapping[str, Any], batch: int, dtype: torch.dtype, device: str) -> dict[str, torch.Tensor]:
    """What the model's forward, or its encoder, is called with."""
    kind = config["model_type"]
    tokens = {"input_ids": torch.empty(batch, TOKENS, dtype=torch.int64, device=device)}
    if kind == "whisper":
        frames = 2 * config["max_source_positions"]
        return {"input_features": torch.empty(batch, config["num_mel_bins"], frames, dtype=dtype, device=device)}
    if kind not in ("clip", "siglip") and not CLASSES.get(kind, "").endswith("ForImageClassification"):
        return tokens
    pixels = {"pixel_values": torch.empty(batch, 3, SIDE, SIDE, dtype=dtype, device=device)}
    return tokens | pixels if kind in ("clip", "siglip") else pixels


def traced(setting: Mapping[str, Any]) -> dict[str, list[int]]:
    """Allocations, and frees between them as one sum, of prefill, first and last step."""
    device = fake_gpu.set_up(fallback=False).device
    dtype, autocast = PRECISIONS[setting["precision"]]
    config = transformers.AutoConfig.for_model(**setting["config"])
    alone = config.model_type not in CLASSES or setting["id"].partition("/")[0] in DECODERS | SEEING
    if alone:
        model: Any = hf.build(setting["config"], "causal", DTYPES[dtype], setting["attention"]).eval()
    else:
        with torch.device("meta"):
            named = getattr(transformers, CLASSES[config.model_type])
            model = named._from_config(config, dtype=DTYPES[dtype], attn_implementation=setting["attention"]).eval()
    with FakeTensorMode(allow_non_fake_inputs=True), gpu_answers(GPU()) as sdpa, answered(device):
        hf.move(model, device)
        if "pictures" in setting:
            inputs = pictured(setting, model, DTYPES[dtype], device)
        else:
            inputs = inputs_of(setting["config"], setting["batch"], DTYPES[dtype], device)
        start = torch.empty(setting["batch"], setting["target"], dtype=torch.int64, device=device)
        tracer = Tracer(device, sdpa)
        for name, tensor in [*model.named_parameters(), *model.named_buffers(), *inputs.items(), ("start", start)]:
            if tensor.device.type == device:
                tracer.track(tensor, "parameter", "", name)
        context = torch.autocast("cuda", dtype=DTYPES[autocast]) if autocast else nullcontext()
        with tracer, tracer.watching(model), torch.no_grad(), context:
            tracer.enter("prefill")
            if alone:
                generate_alone(tracer, model, inputs, setting["generate"])
            elif config.is_encoder_decoder:
                generate(tracer, model, inputs, start, setting["generate"])
            else:
                model(**inputs)
        with tracer:
            tracer.close()
    found: dict[str, list[int]] = {}
    for (name, _, begin), (_, _, end) in zip(tracer.phases, tracer.phases[1:], strict=False):
        found[name] = grouped([change for _, change in tracer.events[begin:end]])
    return {name: events for name, events in found.items() if name not in ("between", "end")}


def generate(tracer: Tracer, model: Any, inputs: Mapping[str, Any], start: torch.Tensor, tokens: int) -> None:
    """The encoder, the decoder's first tokens, then one at a time."""
    encoded = model.get_encoder()(**inputs, return_dict=True)
    out = model(encoder_outputs=encoded, decoder_input_ids=start, use_cache=True)
    cache = out.cache
    ids = next_of(out, start.shape)
    del out
    for i in range(1, tokens):
        tracer.enter("first decode" if i == 1 else "last decode" if i == tokens - 1 else "between")
        out = model(encoder_outputs=encoded, decoder_input_ids=ids[:, -1:], cache=cache, use_cache=True)
        ids = next_of(out, ids[:, -1:].shape)
        del out
    tracer.enter("end")


def pictured(setting: Mapping[str, Any], model: Any, dtype: torch.dtype, device: str) -> dict[str, torch.Tensor]:
    """A prompt with pictures."""
    grid = grids_of(model_of(setting), setup_of(setting)) or ()
    made = hf.batch(model.config, "image-text", dtype, setting["batch"], setting["sequence"], device, grid=grid)
    return {name: tensor for name, tensor in made.items() if name != "labels"}


def generate_alone(tracer: Tracer, model: Any, inputs: Mapping[str, torch.Tensor], count: int) -> None:
    """A decoder's prompt, then one token at a time."""
    cache = transformers.DynamicCache(config=model.config)
    out = model(**inputs, cache=cache, use_cache=True, logits_to_keep=1)
    ids = next_of(out, inputs["input_ids"].shape)
    del out
    with model._optimize_model_for_decode():  # experts: batched_mm in place of grouped_mm
        for i in range(1, count):
            tracer.enter("first decode" if i == 1 else "last decode" if i == count - 1 else "between")
            out = model(ids[:, -1:], cache=cache, use_cache=True, logits_to_keep=1)
            ids = next_of(out, ids[:, -1:].shape)
            del out
    tracer.enter("end")


def next_of(out: Any, shape: torch.Size) -> torch.Tensor:
    """The last position's logits in fp32, their largest, then ids of this shape to go on with."""
    scores = out.logits[:, -1].to(copy=True, dtype=torch.float32)
    token = torch.argmax(scores, dim=-1)
    del scores, token
    return torch.empty(shape, dtype=torch.int64, device=out.logits.device)


def main() -> int:
    """Trace and compare every run."""
    transformers.logging.set_verbosity_error()
    return recorded("Compare the engine with traced forward passes and generation.", settings(),
                    lambda setting: {"events": traced(setting)}, compared)


if __name__ == "__main__":
    sys.exit(main())
