"""A trace on fake CPU tensors equals a real run under the profiler, scalars of up to 16 bytes left out."""

from __future__ import annotations

import pytest
from operations import OPERATIONS, UNLIKE, unlike_the_cpu, unlike_with_composites
from steps import BERT, GPT2, LLAMA, MIXTRAL, module_differences, record_differences, setting

from peakmem.trace.process import Worker, in_process

RECORDS = {
    "llama bf16": setting(LLAMA),
    "llama fp32, three micro-batches": setting(LLAMA, dtype="fp32", accumulation=3),
    # Adapters are fp32; on the CPU, not on a GPU, adding them to a bf16 tensor makes a copy of it.
    "llama fp32, checkpointing and adapters": setting(
        LLAMA, dtype="fp32", checkpointing=True, lora={"r": 4, "alpha": 8}
    ),
    "llama bf16, fused attention": setting(LLAMA, attention="sdpa"),
    "gpt2 bf16": setting(GPT2),
    "gpt2 fp32, a loop": setting(GPT2, dtype="fp32", optimizer_impl="loop"),
    "gpt2 autocast": setting(GPT2, dtype="fp32", autocast="bf16", checkpointing=True),
    "bert bf16": setting(BERT),
    "bert fp32": setting(BERT, dtype="fp32", optimizer_impl="fused"),
    "mixtral bf16": setting(MIXTRAL),
    "mixtral fp32": setting(MIXTRAL, dtype="fp32", checkpointing=True),
}


@pytest.mark.parametrize("name", RECORDS)
def test_a_transformers_model_equals_its_real_run(worker: Worker, name: str) -> None:
    assert worker.call(record_differences, RECORDS[name]) == []


@pytest.mark.parametrize("name", ["mlp", "shared", "gather", "losses"])
def test_a_module_equals_its_real_run(worker: Worker, name: str) -> None:
    assert worker.call(module_differences, name) == []


@pytest.mark.parametrize("optimizer", ["SGD-momentum", "Adam-amsgrad", "RMSprop", "Adagrad", "NAdam", "Lion"])
def test_an_optimizer_equals_its_real_run(worker: Worker, optimizer: str) -> None:
    small = LLAMA | {"num_hidden_layers": 1}
    implementation = "loop" if optimizer == "Lion" else "foreach"
    assert worker.call(record_differences, setting(small, optimizer=optimizer, optimizer_impl=implementation)) == []


def test_convolutions_equal_their_real_run_at_the_ends_of_phases(worker: Worker) -> None:
    # In between, the CPU's kernels take memory for unfolded pictures.
    assert [off for off in worker.call(module_differences, "pictures") if off[2]] == []


@pytest.mark.parametrize("name", ["resnet", "resnet, channels last", "unet"])
def test_a_convolution_network_equals_its_real_run_at_the_ends_of_phases(worker: Worker, name: str) -> None:
    off = worker.call(convolutions, name)
    assert all(peak <= 0 and not end for _, peak, end in off), off


def convolutions(name: str) -> list[tuple[str, int, int]]:
    """In the worker: torch is loaded there."""
    from convolutions import differences

    return differences(name)


def test_operations_on_the_fake_gpu_allocate_what_real_kernels_do(worker: Worker) -> None:
    assert len(OPERATIONS) > 80
    assert set(worker.call(unlike_the_cpu)) == set(UNLIKE)


def test_a_composite_in_place_of_a_kernel_would_be_seen() -> None:
    assert set(in_process(unlike_with_composites)) == {"silu", "mish"}
