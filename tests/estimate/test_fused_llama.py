"""Llama with fused kernels, against torchtitan's and Liger's code in plain torch, allocation by allocation."""

from __future__ import annotations

from typing import Any

import pytest

from peakmem.setup import Setup
from tests.estimate.test_losses import CONFIG


@pytest.mark.parametrize(("batch", "sequence", "tied", "kv_heads"),
                         [(2, 40, False, 2), (1, 33, True, 6), (3, 64, False, 1)])
@pytest.mark.parametrize("checkpoint", ["none", "full"])
@pytest.mark.parametrize("precision", ["bf16", "fp32", "amp-bf16"])
@pytest.mark.parametrize("implementation", ["torchtitan", "fused"])
def test_every_allocation(implementation: str, precision: str, checkpoint: str, batch: int, sequence: int, tied: bool,
                          kv_heads: int) -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("transformers")
    from tests.estimate.plain_llama import Llama
    from tests.estimate.traced_module import DTYPES, estimated, traced

    def build(model: Any) -> Any:
        with torch.device("meta"):
            plain = Llama(model.config, sequence, implementation == "fused", checkpoint == "full")
        for p in plain.parameters():
            p.data = p.data.to(DTYPES[precision][0])
        return plain

    config = CONFIG | {"tie_word_embeddings": tied, "num_key_value_heads": kv_heads}
    setup = Setup.of(implementation=implementation, precision=precision, batch=batch, sequence=sequence,
                     checkpoint=checkpoint, optimizer_implementation="foreach", accumulation=2 if batch == 3 else 1)
    ours = estimated(config, setup)
    for phase, want in traced(config, setup, build).items():
        assert ours.get(phase, []) == want, phase


@pytest.mark.parametrize(("implementation", "per_f"), [("transformers", 8), ("torchtitan", 8), ("fused", 6)])
def test_what_one_more_layer_keeps(implementation: str, per_f: int) -> None:
    """20 + 4r + 8f + 4/D + 8/h bytes per token and hidden unit; fused norms and rotary 12; Liger's SwiGLU 6f."""
    from peakmem.estimate.interpret import interpret
    from peakmem.estimate.replay import compiled, replay
    from peakmem.estimate.settings import structure_of
    from peakmem.readers.hf_config import from_config

    h, f, a, k, s = 4096, 14336, 32, 8, 2048
    ends = []
    for layers in (1, 2):
        model = from_config(CONFIG | {"hidden_size": h, "intermediate_size": f, "num_attention_heads": a,
                                      "num_key_value_heads": k, "num_hidden_layers": layers})
        structure, numbers = structure_of(model, Setup.of(implementation=implementation, precision="bf16", sequence=s))
        levels = replay(compiled(interpret(structure)), numbers)
        ends.append(levels["forward"].end - levels["forward"].start)
    fixed = 20 if implementation == "transformers" else 12
    kept = fixed + 4 * k / a + per_f * f / h + 4 / (h // a) + 8 / h
    small = 1024  # random seed and offset of the attention kernel
    assert ends[1] - ends[0] == round(kept * h * s) + small
