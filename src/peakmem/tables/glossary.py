"""Words that the page and the documentation explain, each once. docs/glossary.md says the same; a test compares.

What every precision recipe holds stands in precisions.py; what a setting does in setup.py.
"""

from __future__ import annotations

from collections.abc import Mapping

WORDS: Mapping[str, str] = {
    "token": "A word or a piece of one: what a text is cut into before a network reads it.",
    "loss": "One number that says how wrong the output is. Training makes it smaller.",
    "logits": "For each token a score for every word that might follow: the last tensor before the loss, and with "
              "large vocabularies a large one.",
    "micro-batch": "One forward and one backward pass. `batch` is the number of its sequences on one GPU.",
    "accumulation": "Several micro-batches before one optimizer step: their gradients are added up, so that a large "
                    "batch needs the activations of a small one.",
    "AdamW": "The usual optimizer: Adam, with weight decay set apart. Of each parameter it keeps two running means, of "
             "the gradient and of its square. Adam holds the same.",
    "SGD": "The plainest optimizer: a weight moves against its gradient, and nothing is kept.",
    "master weights": "An fp32 copy of the parameters that the optimizer updates and owns.",
    "mixed precision": "Computing in 16 bits and keeping in 32 what must be exact. Here `mixed`: bf16 weights and "
                       "gradients, fp32 master weights and states.",
    "autocast": "PyTorch's automatic mixed precision: weights stay in fp32, and each operation that is safe in 16 bits "
                "gets a 16-bit copy of its inputs. The recipes `amp-bf16` and `amp-fp16`.",
    "bf16": "A number of 16 bits with the range of fp32 and fewer digits. fp16 has more digits and less range; fp32 "
            "takes four bytes.",
    "megatron": "The recipe of Megatron-LM, NVIDIA's training code: as `mixed`, with a buffer of fp32 gradients that "
                "is there all the time.",
    "transformers": "Hugging Face's library of models: the code that most people fine-tune with.",
    "torchtitan": "PyTorch's own code for training large language models on many GPUs.",
    "litgpt": "Lightning's code for training and fine-tuning language models.",
    "paper": "The block that Korthikanti et al. count, 34sbh + 5as²b bytes a layer: a GPT as Megatron-LM wrote it.",
    "fused": "Kernels that do several operations at once and keep less between them, as Liger's.",
    "checkpointing": "Dropping activations in the forward pass and computing them again in the backward pass. Also "
                     "*recomputation*.",
    "FlashAttention": "Attention in one kernel that goes over the scores piece by piece: the square of sequence × "
                      "sequence never exists.",
    "LoRA": "Training small matrices of rank r beside the model's own, which stay as they are: gradients and optimizer "
            "state are those of the small ones.",
    "QLoRA": "LoRA beside weights that are stored in 4 bits and do not learn.",
    "quantised weights": "Weights stored in 8 or 4 bits with a scale for each block; unpacked to multiply.",
    "offload": "Keeping optimizer state or weights in the host's memory or on a disk, and moving them when due.",
    "sharding": "Dividing weights, gradients or optimizer state over GPUs: each keeps its part and gathers the others' "
                "for a moment. ZeRO and FSDP are two names of it.",
    "KV cache": "Keys and values of the tokens that inference has seen.",
    "fragmentation": "Free memory in pieces, none of which is as large as what is asked for.",
    "CUDA context": "What the process holds on the device beside PyTorch's allocator: CUDA itself and loaded kernels.",
    "reserved": "`torch.cuda.max_memory_reserved`: what the allocator has taken from the device.",
}
