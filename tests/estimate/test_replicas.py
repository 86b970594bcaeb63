"""Buckets of DistributedDataParallel against the reducer of PyTorch itself, in a group of one process."""

from __future__ import annotations

from typing import Any

import pytest

from peakmem import estimate
from peakmem.errors import Impossible
from peakmem.readers.hf_config import from_config

MIB = 2**20
LLAMA = {"model_type": "llama", "hidden_size": 512, "intermediate_size": 1408, "num_hidden_layers": 5,
         "num_attention_heads": 8, "num_key_value_heads": 2, "vocab_size": 4099}
RUNS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "llama": (LLAMA, {}),
    "tied, odd sizes": (LLAMA | {"hidden_size": 336, "intermediate_size": 1003, "tie_word_embeddings": True}, {}),
    "biases": (LLAMA | {"attention_bias": True, "mlp_bias": True, "num_hidden_layers": 2}, {}),
    "adapters": (LLAMA | {"num_hidden_layers": 9}, {"lora_rank": 32}),
    "gpt2": ({"model_type": "gpt2", "n_embd": 384, "n_layer": 4, "n_head": 6, "vocab_size": 997}, {}),
}


def buckets_of_pytorch(config: dict[str, Any], rank: int) -> list[int]:
    """Bytes of each bucket after the first step."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    from torch import distributed

    model = transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.for_model(**config))
    if rank:
        peft = pytest.importorskip("peft")
        model = peft.get_peft_model(model, peft.LoraConfig(r=rank, target_modules="all-linear", task_type="CAUSAL_LM"))
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    try:
        replica = torch.nn.parallel.DistributedDataParallel(model)
        ids = torch.zeros(1, 4, dtype=torch.int64)
        for _ in range(2):
            replica(input_ids=ids, labels=ids).loss.backward()
        return [bucket.buffer().nbytes for bucket in replica.reducer._get_zeros_like_grad_buckets()]
    finally:
        distributed.destroy_process_group()


@pytest.mark.parametrize("name", RUNS)
def test_buckets_are_those_of_the_reducer(name: str) -> None:
    config, settings = RUNS[name]
    theirs = buckets_of_pytorch(config, settings.get("lora_rank", 0))
    ledger = estimate(from_config(config), precision="fp32", sequence=16, shard="ddp", gpus=4, **settings)
    (line,) = [line for line in ledger.lines if line.name == "gradient buckets"]
    assert len(theirs) > 1
    assert line.bytes == sum(-(-size // 512) * 512 for size in theirs)
    assert line.kind == "communication"


def test_data_parallel_holds_the_gradients_twice() -> None:
    alone, shared = (estimate("gpt2", sequence=128, shard=shard, gpus=8) for shard in ("none", "ddp"))
    more = shared.phases["step_start"] - alone.phases["step_start"]
    assert 2 * 124_439_808 <= more < 2 * 124_439_808 + 512 * 20
    assert shared.peak.bytes - alone.peak.bytes == more
    assert any("DistributedDataParallel with its defaults" in note for note in shared.notes)


@pytest.mark.parametrize("settings", [{"offload": "optimizer"}, {"precision": "megatron"}, {"run": "inference"}])
def test_what_data_parallel_does_not_do_is_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(Impossible):
        estimate("gpt2", sequence=16, shard="ddp", gpus=2, **settings)
