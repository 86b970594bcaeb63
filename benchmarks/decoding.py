"""Trace decoders that generate, prompt and single tokens, and compare the engine with them.

    python benchmarks/decoding.py [--only WORD] [--write FILE]

transformers' own classes run on a fake GPU with a cache of their own, without generate()'s small tensors. Every
allocation of the prompt's forward, of the first and of the last decoding step is compared. Exit 1 when any is off.
Needs transformers and peft.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import peft
import torch
import transformers
from torch._subclasses.fake_tensor import FakeTensorMode

sys.path.insert(0, str(Path(__file__).parents[1]))

from generation import PRECISIONS, next_of
from recorded import recorded

from peakmem.tables.kernels import GPU
from peakmem.trace import fake_gpu, hf
from peakmem.trace.patches import gpu_answers
from peakmem.trace.record import DTYPES
from peakmem.trace.tracer import Tracer
from tests.generations import compared, grouped

BASE: Mapping[str, Any] = {
    "vocab_size": 131, "hidden_size": 48, "intermediate_size": 88, "num_hidden_layers": 3, "num_attention_heads": 6,
    "num_key_value_heads": 2, "pad_token_id": 0, "bos_token_id": 0, "eos_token_id": 0}
WIDE = BASE | {"head_dim": 16}
EXPERTS = {"num_experts_per_tok": 2, "moe_intermediate_size": 40}
STATES = {"mamba_n_heads": 6, "mamba_n_groups": 3, "mamba_d_state": 5, "mamba_d_head": 16, "mamba_d_conv": 3,
          "mamba_chunk_size": 16}
WINDOWS = {"sliding_window": 8, "layer_types": ["sliding_attention", "full_attention", "sliding_attention"]}
CONFIGS: Mapping[str, Mapping[str, Any]] = {
    "llama": WIDE | {"model_type": "llama"},
    "qwen3": WIDE | {"model_type": "qwen3"},
    "gemma3": WIDE | WINDOWS | {"model_type": "gemma3_text"},
    "gpt_oss": WIDE | WINDOWS | EXPERTS | {"model_type": "gpt_oss", "num_local_experts": 4, "intermediate_size": 40},
    "mixtral": WIDE | EXPERTS | {"model_type": "mixtral", "num_local_experts": 4},
    "deepseek_v3": BASE | EXPERTS | {
        "model_type": "deepseek_v3", "kv_lora_rank": 16, "qk_nope_head_dim": 8, "qk_rope_head_dim": 8, "v_head_dim": 24,
        "q_lora_rank": 16, "n_routed_experts": 8, "n_group": 2, "topk_group": 1, "first_k_dense_replace": 1,
        "num_key_value_heads": 6},
    "qwen3_next": WIDE | EXPERTS | {
        "model_type": "qwen3_next", "linear_key_head_dim": 6, "linear_value_head_dim": 10, "linear_num_key_heads": 2,
        "linear_num_value_heads": 6, "num_experts": 4, "shared_expert_intermediate_size": 24,
        "layer_types": ["linear_attention", "full_attention", "linear_attention"]},
    "codegen": {"model_type": "codegen", "vocab_size": 131, "n_embd": 64, "n_layer": 3, "n_head": 8, "rotary_dim": 4,
                "n_positions": 64, "pad_token_id": 0, "bos_token_id": 0, "eos_token_id": 0},
    "mamba": BASE | {"model_type": "mamba", "state_size": 5, "expand": 3, "time_step_rank": 7, "conv_kernel": 3},
    "mamba2": BASE | {"model_type": "mamba2", "state_size": 5, "num_heads": 6, "head_dim": 16, "n_groups": 3,
                      "chunk_size": 16, "conv_kernel": 3},
    "granitemoehybrid": BASE | STATES | {
        "model_type": "granitemoehybrid", "num_local_experts": 4, "num_experts_per_tok": 2,
        "shared_intermediate_size": 28, "position_embedding_type": "rope",
        "layer_types": ["linear_attention", "full_attention", "linear_attention"]},
    "bamba": BASE | STATES | {"model_type": "bamba", "attn_layer_indices": [1]},
    "falcon_h1": BASE | STATES | {"model_type": "falcon_h1", "mamba_d_ssm": 96},
    "falcon_h1, norms": BASE | STATES | {"model_type": "falcon_h1", "mamba_d_ssm": 96, "mamba_rms_norm": True},
    "falcon_mamba": BASE | {"model_type": "falcon_mamba", "state_size": 5, "expand": 3, "time_step_rank": 7,
                            "conv_kernel": 3},
    "zamba2": BASE | {
        "model_type": "zamba2", "num_hidden_layers": 4, "layers_block_type": ["mamba", "hybrid", "mamba", "hybrid"],
        "num_key_value_heads": 6, "n_mamba_heads": 6, "mamba_ngroups": 3, "mamba_d_state": 5, "mamba_d_conv": 3,
        "chunk_size": 16, "adapter_rank": 7, "use_shared_attention_adapter": True, "use_mem_rope": True},
    "lfm2_moe": BASE | EXPERTS | {
        "model_type": "lfm2_moe", "layer_types": ["conv", "full_attention", "conv"], "num_experts": 4,
        "num_dense_layers": 1, "conv_L_cache": 4},
    "jamba": BASE | {
        "model_type": "jamba", "num_experts": 3, "num_experts_per_tok": 2, "attn_layer_period": 2,
        "attn_layer_offset": 0, "expert_layer_period": 3, "expert_layer_offset": 1, "mamba_d_state": 5,
        "mamba_dt_rank": 7, "mamba_d_conv": 3, "mamba_expand": 3},
    "nemotron_h": WIDE | EXPERTS | {
        "model_type": "nemotron_h", "num_hidden_layers": 6, "hybrid_override_pattern": "MEM*-M", "n_groups": 3,
        "ssm_state_size": 5, "mamba_num_heads": 6, "mamba_head_dim": 7, "n_routed_experts": 4, "chunk_size": 16,
        "moe_shared_expert_intermediate_size": 28, "conv_kernel": 3, "n_group": 2, "topk_group": 1},
}
RUNS = (("bf16", "sdpa", 2, 21, 6), ("fp32", "eager", 1, 16, 4), ("amp-bf16", "sdpa", 3, 19, 5))
NO_SDPA = ("mamba", "mamba2", "falcon_mamba", "gpt_oss")
ADAPTED = ("mixtral", "deepseek_v3")  # with adapters on everything that peft adapts, experts included


def settings() -> Iterator[dict[str, Any]]:
    """Every model three times: one to three sequences, prompts with and without a factor of 8; under autocast, too."""
    for name, config in CONFIGS.items():
        for precision, attention, batch, sequence, generate in RUNS:
            attention = "eager" if name in NO_SDPA else attention
            setting = {"id": f"{name}/{precision}/{attention}", "config": dict(config), "precision": precision,
                       "attention": attention, "batch": batch, "sequence": sequence, "target": 1, "generate": generate}
            yield setting
            if name in ADAPTED:
                yield setting | {"id": f"{setting['id']}/lora", "lora": 4}


def traced(setting: Mapping[str, Any]) -> dict[str, list[int]]:
    """Allocations, and frees between them as one sum, of prefill, first and last step."""
    device = fake_gpu.set_up(fallback=False).device
    config = transformers.AutoConfig.for_model(**setting["config"])
    dtype, autocast = PRECISIONS[setting["precision"]]
    with torch.device("meta"):
        model: Any = transformers.AutoModelForCausalLM.from_config(
            config, dtype=DTYPES[dtype], attn_implementation=setting["attention"]).eval()
        decodes = model._optimize_model_for_decode
        if "lora" in setting:
            adapters = peft.LoraConfig(r=setting["lora"], target_modules="all-linear", task_type="CAUSAL_LM")
            model = peft.get_peft_model(model, adapters).eval()
    with FakeTensorMode(allow_non_fake_inputs=True), gpu_answers(GPU()) as sdpa:
        hf.move(model, device)
        ids = torch.empty(setting["batch"], setting["sequence"], dtype=torch.int64, device=device)
        tracer = Tracer(device, sdpa)
        for name, tensor in [*model.named_parameters(), *model.named_buffers(), ("ids", ids)]:
            tracer.track(tensor, "parameter", "", name)
        context = torch.autocast("cuda", dtype=DTYPES[autocast]) if autocast else nullcontext()
        with tracer, tracer.watching(model), torch.no_grad(), context:
            tracer.enter("prefill")
            out = model(input_ids=ids, use_cache=True, logits_to_keep=1)
            cache, tokens = out.cache, setting["generate"]
            ids = next_of(out, ids.shape)
            del out
            with decodes():  # experts: batched_mm in place of grouped_mm
                for i in range(1, tokens):
                    tracer.enter("first decode" if i == 1 else "last decode" if i == tokens - 1 else "between")
                    out = model(input_ids=ids[:, -1:], use_cache=True, logits_to_keep=1, cache=cache)
                    ids = next_of(out, ids[:, -1:].shape)
                    del out
            tracer.enter("end")
        with tracer:
            tracer.close()
    found: dict[str, list[int]] = {}
    for (name, _, begin), (_, _, end) in zip(tracer.phases, tracer.phases[1:], strict=False):
        found[name] = grouped([change for _, change in tracer.events[begin:end]])
    return {name: events for name, events in found.items() if name not in ("between", "end")}


def main() -> int:
    """Trace and compare every run."""
    transformers.logging.set_verbosity_error()
    return recorded("Compare the engine with decoders that generate.", settings(),
                    lambda setting: {"events": traced(setting)}, compared)


if __name__ == "__main__":
    sys.exit(main())
