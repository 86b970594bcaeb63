"""Why a tensor is alive, in sentences: what it names is what the ledger has, and nothing is left in the short form."""

from __future__ import annotations

import re
from typing import Any

import pytest

from peakmem import estimate
from peakmem.ledger import Line
from peakmem.reasons import place, sentence, where

RUNS: list[tuple[str, dict[str, Any]]] = [
    ("mixtral-8x7b", {}), ("mamba-130m", {}), ("whisper-tiny", {"target": 64}), ("vit-base", {}), ("sd-1.5-unet", {}),
    ("qwen3-next-80b-a3b", {}), ("deepseek-v2-lite", {"checkpoint": "selective"}), ("llama-3.1-8b", {"lora_rank": 8}),
    ("gemma-3-1b", {"attention": "eager"}), ("t5-small", {}), ("resnet-18", {}), ("gpt2", {"precision": "amp-bf16"}),
    ("llama-3.1-8b", {"shard": "fsdp2", "gpus": 8, "checkpoint": "full"}), ("bert-base", {"clip": True}),
    ("qwen2.5-0.5b", {"run": "inference"}), ("gpt2", {"optimizer": "adafactor", "loss": "chunked"})]
SHORT = re.compile(r"one tensor, \d+ uses|nothing keeps it longer|its factor|lives from|gradients? of the keys|"
                   r"kept for backward: gradient|\.\*|/ of|of \.|\.\.")


@pytest.mark.parametrize(("model", "settings"), RUNS, ids=lambda x: str(x)[:40])
def test_every_large_tensor_has_a_sentence(model: str, settings: dict[str, Any]) -> None:
    ledger = estimate(model, **{"sequence": 192, **settings})
    lines = [line for line in ledger.lines if not line.scratch and line.at_peak]
    assert lines
    for line in sorted(lines, key=lambda line: -line.bytes_at_peak)[:60]:
        text = sentence(line)
        assert not SHORT.search(text.replace("of model.layers.*", "")), (line.name, line.why, text)
        assert text.endswith(".") and (text[0].isupper() or not text[0].isalpha()), text
        if line.kind == "activations" and text.startswith("Kept for backward"):
            assert f"It goes {where(line.freed)}." in text


@pytest.mark.parametrize(("part", "text"), [
    ("mlp.gate_proj/output", "the slope of silu in mlp of each layer is worked out from it. It goes in backward"),
    ("input_layernorm/output", "the input of self_attn.q_proj, self_attn.k_proj and self_attn.v_proj of each layer: "
     "the gradient of each weight is the error times this input"),
    ("self_attn/rotated", "holds the keys of self_attn of each layer"),
    ("mlp.gate_proj.weight", "Backward reads it, too, to pass the error on through mlp.gate_proj of each layer."),
    ("loss/log-probabilities", "It goes in backward, at the loss (log_softmax)")])
def test_a_student_reads(part: str, text: str) -> None:
    ledger = estimate("llama-3.2-1b", sequence=333)
    found = [sentence(line) for line in ledger.lines if line.name.endswith(part)]
    assert any(text in one for one in found), found


def test_places() -> None:
    assert place("decoder.block.*.layer.0.SelfAttention.q/output") == "layer.0.SelfAttention.q of each layer of decoder"
    assert place("model.layers.*/sum") == "sum of each layer" and place("lm_head/output") == "lm_head"
    assert place("layers.*") == "each layer"
    assert where("backward/loss/nll_loss") == "in backward, at the loss (nll_loss)"


def test_an_unknown_form_is_passed_on() -> None:
    line = Line("x/y", "activations", 512, 1, "", "", "forward/x", "backward/x", "held by a hook", "")
    assert sentence(line) == "Held by a hook. It goes in backward, at x."
