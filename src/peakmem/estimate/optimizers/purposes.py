"""What each state and temporary of an optimizer is for, in the words that the ledger prints."""

from __future__ import annotations

from collections.abc import Mapping

PURPOSES: Mapping[str, str] = {
    "master": "the weight in fp32: the optimizer updates it, the module holds a 16-bit copy",
    "step": "how many steps the fused kernel has made, on the device",
    "exp_avg": "running mean of the gradient, read and written by every step",
    "exp_avg_sq": "running mean of the squared gradient, read and written by every step",
    "max_exp_avg_sq": "largest running mean of the squared gradient so far, divided by in every step",
    "momentum_buffer": "the gradient with all earlier ones, fading: the direction of the next step",
    "square_avg": "running mean of the squared gradient, divided by in every step",
    "sum": "sum of all squared gradients, divided by in every step",
    "acc_delta": "running mean of squared updates, which scales the next one",
    "exp_inf": "largest gradient so far, fading, divided by in every step",
    "gradient without sign": "size of the gradient, compared with the largest so far",
    "row_var": "mean squared gradient of each row: with that of the columns, an estimate for every element",
    "col_var": "mean squared gradient of each column: with that of the rows, an estimate for every element",
    "variance": "running mean of the squared gradient of a vector",
    "state1": "running mean of the gradient, as 8-bit codes where the tensor is large enough",
    "state2": "running mean of the squared gradient, as 8-bit codes where the tensor is large enough",
    "state1 scales": "one number for each block of codes of state1",
    "state2 scales": "one number for each block of codes of state2",
    "exp_avg scales": "one number for each block of codes of exp_avg",
    "exp_avg_sq scales": "one number for each block of codes of exp_avg_sq",
    "exp_avg code table": "what each 4-bit code of exp_avg stands for",
    "exp_avg_sq code table": "what each 4-bit code of exp_avg_sq stands for",
    "code table, signed": "what each 8-bit code of state1 stands for, for all tensors",
    "code table, unsigned": "what each 8-bit code of state2 stands for, for all tensors",
    "gradient buffer": "all gradients in one: each is added when it arrives; resident from step to step",
    "square root": "square root of the second moment, until it has been divided",
    "denominator": "what the step is divided by: a square root and a small number",
    "scaled gradient": "gradient times learning rate, for all tensors of the group at once",
    "gradient with momentum": "what Nesterov's step takes in place of the gradient",
    "scaled momentum": "a copy of the momentum, on its way to the update",
    "update": "what is added to the weight",
    "update in bf16": "the update as the orthogonalisation reads it",
    "orthogonal update": "the update after one more Newton-Schulz step",
    "gram matrix": "the update times its transpose, on the smaller side",
    "gram update": "polynomial of the Gram matrix that the update is multiplied with",
    "row mean": "this step's squared gradient over each row",
    "column mean": "this step's squared gradient over each column",
    "mean of rows": "mean of the row states, which the estimate is divided by",
    "squared gradient": "this step's squared gradient",
    "variance estimate": "estimate of the squared gradient for every element, then the update, in place",
    "norm": "one number on its way to the host",
    "norm, clamped": "one number that the update is divided by",
    "gradient norm": "length of one gradient, for the length of all",
    "gradient norms": "lengths of all gradients in one vector",
    "total gradient norm": "length of all gradients together, as long as the caller holds it",
}


def purpose_of(name: str) -> str:
    """The purpose of a tensor by the last part of its name; empty: none to tell."""
    return PURPOSES.get(name, "")
