"""What the tracer sees of a step, and what it makes of it."""

from __future__ import annotations

import gc

import pytest
import torch
from steps import GPT2, LLAMA, events_of, setting, trace, traced_module
from torch._subclasses.fake_tensor import FakeTensorMode

from peakmem.trace import fake_gpu
from peakmem.trace.optimizers import make
from peakmem.trace.process import TraceError, Worker, in_process
from peakmem.trace.tracer import Tracer


def views_and_updates() -> None:
    """Allocate 400 bytes, look at them, change them, and allocate 100 more."""
    x = torch.empty(100, device="cuda")
    x.view(10, 10).t()[2:].add_(1)
    y = x > 0
    del x
    del y


def host_tensors() -> None:
    """Allocate on the host only."""
    torch.empty(1000)


def allocation_of(function_name: str) -> list[int]:
    """Return a function's events."""
    return events_of(globals()[function_name])


def test_views_and_updates_allocate_nothing(worker: Worker) -> None:
    assert worker.call(allocation_of, "views_and_updates") == [400, 100, -400, -100]


def test_host_memory_is_not_counted(worker: Worker) -> None:
    assert worker.call(allocation_of, "host_tensors") == []


def dropped_results() -> list[int]:
    """Return the events of results that their own nodes save, each dropped at once, with no garbage collector."""
    fake_gpu.set_up(fallback=False)
    gc.disable()
    try:
        with FakeTensorMode(), Tracer("cuda") as tracer, tracer.watching(torch.nn.Identity()):
            tracer.enter("forward")
            x = torch.empty(100, device="cuda", requires_grad=True)
            for operation in (torch.exp, torch.tanh, torch.sigmoid, torch.rsqrt):
                y = operation(x)
                del y
            return [change for _, change in tracer.events]
    finally:
        gc.enable()


def test_a_saved_result_and_its_node_do_not_hold_one_another(worker: Worker) -> None:
    assert worker.call(dropped_results) == [400, *4 * [400, -400]]


def strides_of_views(device: str) -> list[tuple[int, ...]]:
    """Return the strides of a view and of gradients, all of tensors whose dimensions lie in another order."""
    heads = torch.empty(2, 6, 1, 16, device=device).transpose(1, 2)
    turned, straight = torch.empty(3, 5, 7, device=device).transpose(1, 2), torch.empty(3, 7, 5, device=device)
    made = (
        heads.view(2, 1, 96),
        heads[:, :, :1].view(2, 16),
        torch.ops.aten.softplus_backward(turned, straight, 1, 20),
        torch.ops.aten.softplus_backward(straight, turned, 1, 20),
        torch.ops.aten._log_softmax_backward_data(turned, straight, -1, torch.float32),
    )
    return [tensor.stride() for tensor in made]


def traced_strides() -> list[tuple[int, ...]]:
    """Return the same of fake tensors."""
    with FakeTensorMode(), Tracer("cuda"):
        return strides_of_views("cuda")


def test_results_lie_in_memory_as_kernels_write_them(worker: Worker) -> None:
    assert worker.call(traced_strides) == strides_of_views("cpu")


def test_a_steady_step_ends_where_it_began(worker: Worker) -> None:
    levels = worker.call(traced_module, "mlp")["bytes"]
    assert levels["step_start"] == levels["step_end"]
    assert levels["grads"] == levels["params"] and levels["optimizer_state"] >= 2 * levels["params"]


def test_kinds_add_up(worker: Worker) -> None:
    record = worker.call(traced_module, "mlp")
    assert sum(record["by_kind_after_forward"].values()) == record["bytes"]["after_forward"]
    assert sum(record["by_kind_at_peak"].values()) == record["bytes"]["peak"]


def test_every_byte_allocated_is_released_or_alive(worker: Worker) -> None:
    record = worker.call(traced_module, "mlp")
    assert sum(sum(part["bytes"]) for part in record["events"]) == 0


def test_the_first_step_makes_the_optimizer_state(worker: Worker) -> None:
    levels = worker.call(trace, setting(LLAMA, step="first"))["bytes"]
    steady = worker.call(trace, setting(LLAMA))["bytes"]
    assert levels["step_end"] - levels["step_start"] == steady["optimizer_state"]
    assert levels["after_backward"] == steady["after_backward"] - steady["optimizer_state"]


def test_keeping_gradients_keeps_their_memory(worker: Worker) -> None:
    cleared = worker.call(trace, setting(LLAMA))["bytes"]
    kept = worker.call(trace, setting(LLAMA, set_to_none=False))["bytes"]
    assert kept["step_start"] - cleared["step_start"] == cleared["grads"]


def test_keeping_the_output_keeps_the_logits(worker: Worker) -> None:
    without = worker.call(trace, setting(LLAMA))["bytes_unrounded"]
    kept = worker.call(trace, setting(LLAMA, keep_output=True))["bytes_unrounded"]
    assert kept["after_forward"] - without["after_forward"] == 2 * 2 * 33 * LLAMA["vocab_size"]


def test_selective_recomputation_keeps_the_named_products(worker: Worker) -> None:
    all_again = worker.call(trace, setting(LLAMA, checkpointing=True))["bytes"]
    some = worker.call(trace, setting(LLAMA, checkpointing=True, selective=["aten.mm.default"]))["bytes"]
    none = worker.call(trace, setting(LLAMA))["bytes"]
    assert all_again["after_forward"] < some["after_forward"] < none["after_forward"]


def test_beside_checkpointed_layers_a_bias_is_added_in_place(worker: Worker) -> None:
    """SigLIP's pooling head reads what lies patch by patch; the mode that keeps products is on in layers alone."""
    layers = {"num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 36}
    config = {"model_type": "siglip", "text_config": layers | {"hidden_size": 40, "vocab_size": 97},
              "vision_config": layers | {"hidden_size": 40, "image_size": 32, "patch_size": 8}}
    usual = setting(config, task="contrastive", checkpointing=True)
    found = [worker.call(trace, usual | more, events=True)["events"][0]["bytes"].count(2 * 2 * 16 * 2 * 40)
             for more in ({}, {"selective": ["aten.bmm.default"]})]
    assert found == [2, 2]  # keys and values of 16 patches: as projected, and contiguous


def test_an_unknown_optimizer_is_named(worker: Worker) -> None:
    with pytest.raises(ValueError, match="no optimizer 'Adamw'"):
        make(torch.nn.Linear(2, 2), "Adamw")


def vanish() -> None:
    """End the process at once."""
    import os

    os._exit(3)


def test_a_process_that_dies_is_reported() -> None:
    with pytest.raises(TraceError, match="exit code 3"):
        in_process(vanish)


def test_muon_without_a_matrix_is_adamw(worker: Worker) -> None:
    held = setting(GPT2, freeze=["attn", "mlp"])
    muon, adamw = (worker.call(trace, held | {"optimizer": name})["bytes"] for name in ("Muon", "AdamW"))
    assert muon == adamw
