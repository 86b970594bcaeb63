"""Attention on the fake GPU allocates what the chosen kernel and the code around it allocate."""

from __future__ import annotations

import torch
from steps import LLAMA, events_of, setting, trace
from torch.nn.functional import scaled_dot_product_attention

from peakmem.trace.process import Worker

B, H, S = 2, 4, 40


def attend(head: int, dtype: str = "bfloat16", masked: bool = False, sequence: int = S, key_heads: int = H) -> None:
    """Call attention on fresh tensors in training."""
    options = {"dtype": getattr(torch, dtype), "device": "cuda"}
    q = torch.empty(B, H, sequence, head, requires_grad=True, **options)
    k, v = (torch.empty(B, key_heads, sequence, head, **options) for _ in range(2))
    mask = torch.empty(B, 1, sequence, sequence, dtype=torch.bool, device="cuda") if masked else None
    # The module's attribute is what users call and what the stand-in replaces.
    torch.nn.functional.scaled_dot_product_attention(
        q, k, v, attn_mask=mask, is_causal=not masked, enable_gqa=key_heads != H
    )


def born(worker: Worker, *args: object, **kwargs: object) -> list[int]:
    """Return the sizes that one call allocates, its inputs left out."""
    sizes = [change for change in worker.call(_attend_events, args, kwargs) if change > 0]
    return sizes[4 if kwargs.get("masked") else 3 :]


def _attend_events(args: tuple[object, ...], kwargs: dict[str, object]) -> list[int]:
    return events_of(lambda: attend(*args, **kwargs))  # type: ignore[arg-type]


def test_flash_makes_an_output_and_a_logsumexp(worker: Worker) -> None:
    assert born(worker, 16)[:2] == [2 * B * H * S * 16, 4 * B * H * S]


def test_flash_pads_a_head_that_is_no_multiple_of_eight(worker: Worker) -> None:
    padded = 2 * B * H * S * 24
    assert born(worker, 20)[:4] == [padded, padded, padded, padded]


def test_efficient_turns_a_boolean_mask_into_numbers(worker: Worker) -> None:
    assert 2 * B * S * S in born(worker, 16, masked=True)


def test_efficient_pads_a_mask_whose_rows_are_not_aligned(worker: Worker) -> None:
    sizes = born(worker, 16, masked=True, sequence=33)
    assert 2 * B * 33 * 33 in sizes
    assert 2 * B * 33 * 40 in sizes


def test_efficient_rounds_the_logsumexp_up_to_32(worker: Worker) -> None:
    assert 4 * B * H * 64 in born(worker, 16, dtype="float32", sequence=33)


def test_grouped_heads_in_fp32_take_math_and_its_scores_once(worker: Worker) -> None:
    scores = 4 * B * H * S * S
    # Scores and their softmax: the mask is added in place, as on ordinary tensors.
    assert born(worker, 16, dtype="float32", key_heads=1).count(scores) == 2


def test_recomputed_layers_take_the_same_kernel(worker: Worker) -> None:
    record = worker.call(trace, setting(LLAMA, attention="sdpa", checkpointing=True))
    assert record["sdpa_kernels"] == {"flash": 2 * LLAMA["num_hidden_layers"]}


def test_outside_a_trace_attention_is_torchs_own() -> None:
    assert torch.nn.functional.scaled_dot_product_attention is scaled_dot_product_attention


def test_cudnn_makes_an_output_and_a_logsumexp(worker: Worker) -> None:
    sizes = worker.call(_on_a_hopper)
    assert sizes[3:5] == [2 * B * H * S * 16, 4 * B * H * S]


def _on_a_hopper() -> list[int]:
    from peakmem.tables.kernels import GPU

    return [change for change in events_of(lambda: attend(16), GPU("H100", (9, 0), 92000)) if change > 0]
