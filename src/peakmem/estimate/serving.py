"""Serving: kinds of cache, beams, chunks of the prompt, one GPU's part of the heads; what a server would reserve.

- concatenated: transformers' DynamicCache: every step makes a new tensor beside the old one (estimate/inference.py).
- static: one buffer for prompt and generated tokens, made by the first forward (cache_utils.py, StaticLayer).
- paged: the same in whole blocks; layers with a window get blocks for every token, as vLLM counts without its hybrid
  manager (vllm/v1/core/kv_cache_utils.py). Kernels read buffers and fewer bits as they lie.
- tensor parallel: heads, feed-forward and vocabulary are divided; key/value heads below one for each GPU are
  replicated (vllm/model_executor/layers/linear.py, QKVParallelLinear). The latent of MLA is whole on every GPU.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from peakmem.errors import Impossible
from peakmem.estimate.chosen_experts import COPY
from peakmem.estimate.experts import SORTED
from peakmem.estimate.interpret import interpret
from peakmem.estimate.replay import Level, size, value
from peakmem.estimate.structure import Structure
from peakmem.immutable import replace
from peakmem.model import Model
from peakmem.quantity import exact
from peakmem.setup import Setup
from peakmem.tables.device import context
from peakmem.tables.gpus import find_gpu
from peakmem.tables.quantised import SCHEMES

RECURRENT = frozenset({"av", "am", "l", "o", "zc"})


def served(model: Model, setup: Setup) -> tuple[Model, Setup]:
    """One GPU's part of the model, and the batch with its beams. Errors: Impossible."""
    if setup.run != "inference":
        for name, usual in (("tensor_parallel", 1), ("beams", 1), ("prefill_chunk", 0), ("kv_bits", 16)):
            if getattr(setup, name) != usual:
                raise Impossible(f"--{name.replace('_', '-')} goes with --run inference")
        return model, setup
    if not generates(model, setup):
        return model, replace(setup, beams=1, prefill_chunk=0, generate=1)
    if setup.kv_bits not in (16, 8, 4):
        raise Impossible(f"--kv-bits {setup.kv_bits}: give 16, 8 or 4")
    if setup.prefill_chunk and "encoder_decoder" in model.switches:
        raise Impossible(f"--prefill-chunk: the source of {model.architecture} is encoded at once, and its decoder "
                         "begins with a token; leave it out")
    if setup.prefill_chunk and RECURRENT & set(model.sizes):
        raise Impossible(f"--prefill-chunk: peakmem does not know how {model.architecture} carries its states from "
                         "chunk to chunk")
    if setup.beams > 1:
        setup = replace(setup, batch=setup.batch * setup.beams)
    if setup.tensor_parallel > 1:
        model = divided(model, setup.tensor_parallel, setup.implementation != "litgpt")
    return model, setup


def generates(model: Model, setup: Setup) -> bool:
    """Whether tokens come out one by one; an encoder's only forward is that of its input."""
    from peakmem.architectures import code_of

    return getattr(code_of(model.architecture, setup.implementation), "GENERATES", True)


def divided(model: Model, gpus: int, vocabulary: bool = True) -> Model:
    """What one of `gpus` GPUs holds; vocabulary: embeddings and head are divided, too (litgpt generate/tp.py leaves
    them whole). Errors: Impossible where heads or widths do not divide."""
    if RECURRENT & set(model.sizes) or model.image or model.positions or "encoder_decoder" in model.switches:
        raise Impossible(f"--tensor-parallel: peakmem divides decoders with rotary positions, not {model.architecture}")
    for name, count in (("heads", model.heads), ("feed-forward size", model.feed_forward),
                        ("experts' feed-forward size", model.expert_feed_forward)):
        if count % gpus:
            raise Impossible(f"--tensor-parallel {gpus} does not divide the {name}, {count}")
    if model.kv_heads % gpus and gpus % model.kv_heads:
        raise Impossible(f"--tensor-parallel {gpus} and {model.kv_heads} key/value heads: neither divides the other")
    return model.changed(heads=model.heads // gpus, kv_heads=max(model.kv_heads // gpus, 1),
                         feed_forward=model.feed_forward // gpus,
                         vocabulary=-(-model.vocabulary // gpus) if vocabulary else model.vocabulary,
                         expert_feed_forward=model.expert_feed_forward // gpus,
                         sizes={**model.sizes, **({"y": model.sizes["y"] // gpus} if "y" in model.sizes else {})})


def with_cache(m: Structure, setup: Setup) -> Structure:
    """The structure with its kind of cache."""
    if m.run != "inference":
        return m
    return replace(m, cache=setup.kv_cache, cache_bits=setup.kv_bits,
                   chunked=0 < setup.prefill_chunk < setup.sequence)


def cache_letters(model: Model, setup: Setup, numbers: Mapping[str, Any]) -> dict[str, int]:
    """Positions that buffers have room for, and of a prompt in chunks."""
    if setup.run != "inference":
        return {}
    longest, window = numbers["t2"], numbers["u2"]
    if setup.kv_cache == "paged":
        longest = window = -(-longest // setup.block_size) * setup.block_size
    before = max(setup.sequence - setup.prefill_chunk, 1)
    return {"tb": longest, "ub": window, "cp": setup.prefill_chunk, "t3": setup.sequence,
            "t4": before, "u3": min(setup.sequence, model.window or setup.sequence),
            "u4": min(before, model.window or before)}


def cached_tokens(model: Model, setup: Setup) -> dict[str, int]:
    """Positions in the cache after the first and after the last decoding step; u: in layers with a window.

    The last token that is generated is not run through the model again.
    """
    prompt = target_of(setup) if "encoder_decoder" in model.switches else setup.sequence
    t1, t2 = prompt + 1, prompt + max(setup.generate - 1, 1)
    window = model.window or t2
    return {"t1": t1, "t2": t2, "u1": min(t1, window), "u2": min(t2, window), "u5": min(t2 - 1, window)}


def target_of(setup: Setup) -> int:
    """Tokens of the target, where a model has an encoder and a decoder; generation begins with one."""
    return setup.target or (1 if setup.run == "inference" else setup.sequence)


def chosen_tokens(model: Model, numbers: Mapping[str, Any]) -> dict[str, int]:
    """How many tokens an indexer chooses of those that are there: in a prompt, its last chunk, each decoding step."""
    if "Ti" not in model.sizes:
        return {}
    seen = {"it": "s", "it3": "s", "it1": "t1", "it2": "t2"}
    return {letter: min(model.sizes["Ti"], numbers[tokens]) for letter, tokens in seen.items() if tokens in numbers}


def compressed_tokens(model: Model, numbers: Mapping[str, Any], setup: Setup) -> dict[str, int]:
    """What is left of all tokens where layers compress them: those in the window, entries, those that wait for theirs.

    Source: models/deepseek_v4, DeepseekV4HCACache and DeepseekV4CSACache of transformers 5.24.
    """
    if "zc" not in model.sizes:
        return {}
    tokens = numbers["t2"] if setup.run == "inference" and setup.generate > 1 else setup.sequence
    found = {"zw": min(tokens, max(model.window - 1, 0)),
             "zco": model.sizes["zc"] if tokens >= model.sizes["zc"] else 0}
    for letter in ("zc", "zh"):
        found |= {f"{letter}n": tokens // model.sizes[letter], f"{letter}r": tokens % model.sizes[letter]}
    return found


def inference_switches(model: Model, setup: Setup) -> set[str]:
    """What changes between prefill, the first and the last decoding step."""
    tokens = cached_tokens(model, setup)
    switches = {"all_logits"} if setup.logits == "all" else set()
    switches |= {"beams"} if setup.beams > 1 and "encoder_decoder" in model.switches else set()
    switches |= {"chosen_experts"} if model.experts and setup.beams == 1 and setup.kv_cache != "paged" else set()
    for step in "12":
        if model.window and tokens[f"t{step}"] >= model.window:
            switches.add(f"narrow_window_{step}")
        if tokens[f"t{step}"] % 8:
            switches.add(f"odd_{'target' if 'encoder_decoder' in model.switches else 'sequence'}_{step}")
        if tokens[f"u{step}"] % 8:
            switches.add(f"odd_window_{step}")
    return switches


class Server(NamedTuple):
    """What a server with paged blocks makes of one GPU's memory."""

    reserved: int  # bytes: the fraction of the GPU that it takes
    cache: int  # bytes left for blocks
    blocks: int
    tokens: int
    sequences: int  # of prompt and generated tokens


def blocks_of(room: int, per_token: int, block: int) -> int:
    """How many blocks of `block` tokens lie in `room` bytes."""
    return max(room // (block * per_token), 0) if per_token else 0


def bytes_per_token(m: Structure, numbers: Mapping[str, Any]) -> int:
    """Cache bytes of one token in all layers; those with a window count as long as it lies in the window."""
    total = 0
    for pair in interpret(m).cache.values():
        for x in pair:
            if x.storage:
                record = x.storage.record
                letters = tuple(letter for letter in record.key[1] if not is_position(letter) and letter != "b")
                fold = int(value(record.fold, numbers)) if record.fold else 1
                total += int(size((record.key[0], letters), numbers)) * fold
    return total


def is_position(letter: str) -> bool:
    return letter[:2] in ("t1", "t2", "t3", "t4", "tb", "u1", "u2", "u3", "u4", "u5", "ub", "s")


def server_of(m: Structure, numbers: Mapping[str, Any], setup: Setup, levels: Mapping[str, Level]) -> Server | None:
    """The blocks that a server like vLLM makes. None: no GPU named, or its memory not known.

    It takes --utilization of the GPU; weights, the peak of a prefill beside the cache, and the context come first.
    """
    row = find_gpu(setup.gpu) if setup.gpu else None
    if row is None or row.capacity is None:
        return None
    per_token = bytes_per_token(m, numbers)
    reserved = int(setup.utilization * row.capacity)
    load = levels["load"].end
    cached = bytes_in_cache(m, numbers)
    work = max(levels["prefill"].peak - load - cached, 0)
    room = reserved - load - work - context(row).high * 2**20
    each = -(-numbers["t2"] // setup.block_size)
    blocks = blocks_of(room, per_token, setup.block_size)
    read = bytes_read(m, numbers) // numbers["be"]  # of one sequence: each needs it beside its blocks
    sequences = max(room, 0) // (each * setup.block_size * per_token + read) if read else blocks // each
    blocks = sequences * each if read else blocks
    return Server(reserved, max(room, 0), blocks, blocks * setup.block_size, sequences)


def bytes_in_cache(m: Structure, numbers: Mapping[str, Any]) -> int:
    """Keys and values at the end of the prompt."""
    length = numbers["tb"] if m.cache != "concatenated" else numbers["t" if m.has("encoder_decoder") else "s"]
    return int(bytes_per_token(m, numbers) * numbers["b"] * length) + bytes_read(m, numbers)


def bytes_read(m: Structure, numbers: Mapping[str, Any]) -> int:
    """Keys and values of what an encoder gave, in all layers."""
    records = [x.storage.record for pair in interpret(m).read.values() for x in pair if x.storage]
    return int(sum(size(r.key, numbers) * (value(r.fold, numbers) if r.fold else 1) for r in records))


def notes_on_serving(m: Structure, numbers: Mapping[str, Any], setup: Setup,
                     levels: Mapping[str, Level]) -> Iterator[str]:
    """Assumptions about the cache, and what the server would reserve beside what the load needs."""
    if setup.run != "inference":
        return
    per_token = bytes_per_token(m, numbers)
    if per_token:
        yield CACHES[setup.kv_cache]
        yield f"cache: {exact(per_token)} a token in all layers on one GPU"
    if bytes_read(m, numbers):
        yield from notes_on_reading(m, numbers, setup)
    if setup.kv_bits < 16:
        other = "q8_0 34 bytes for 32 values" if setup.kv_bits == 8 else "q4_0 18 bytes for 32 values"
        yield (f"keys and values in {setup.kv_bits} bit, scales not counted: vLLM's fp8 has one for a layer, "
               f"llama.cpp's {other}")
    if setup.tensor_parallel > 1:
        yield (f"one of {setup.tensor_parallel} GPUs: its part of heads, feed-forward and vocabulary; parameters are "
               "this GPU's; buffers of communication are not counted")
    if m.chunked:
        yield "the prompt in chunks: the last one is counted, with the cache of all before it; its kernel needs no mask"
    if setup.beams > 1:
        yield "beams: each has its own cache, as transformers does it; paged servers share the blocks of the prompt"
    yield from notes_on_experts(m, setup)
    server = server_of(m, numbers, setup, levels) if per_token else None
    if server:
        needed = max(level.peak for level in levels.values())
        yield (f"needed for this load: {exact(needed)} of tensors; reserved by a server with --utilization "
               f"{setup.utilization:g}: {exact(server.reserved)}, of which {exact(server.cache)} for "
               f"{server.blocks:,} blocks of {setup.block_size} tokens: {server.tokens:,} tokens, or "
               f"{server.sequences:,} sequences of {numbers['t2']:,}")


def notes_on_experts(m: Structure, setup: Setup) -> Iterator[str]:
    """Which kernel runs the experts of decoded tokens, where transformers' own interface chooses it."""
    names = {record.name.rpartition("/")[2] for record in interpret(m).records}
    if any(name.endswith(COPY) for name in names):
        yield ("experts: grouped_mm for the prompt; for decoding batched_mm, as transformers' generate() switches on a "
               "GPU: it copies the matrices of each row's experts; --kv-cache paged counts a server, which does not")
    elif SORTED in names and m.decodes and not (m.stored.scheme and SCHEMES[m.stored.scheme].experts):
        yield f"experts: grouped_mm for prompt and decoding; {STAYS['paged' if m.cache == 'paged' else 'beams']}"


STAYS = {
    "paged": "the kernels of servers copy no expert's matrices, as transformers' generate() does for decoding on a GPU",
    "beams": "transformers' beam search does not switch to batched_mm, as its generate() does otherwise",
}


def notes_on_reading(m: Structure, numbers: Mapping[str, Any], setup: Setup) -> Iterator[str]:
    """What a decoder keeps of the encoder's output, and who shares it."""
    held = bytes_read(m, numbers)
    yield (f"cross-attention: keys and values of {numbers['s']} positions of the encoder are made once and do not "
           f"grow: {exact(held)} in all layers; the decoder begins with {numbers['t']} of its own tokens (--target)")
    if setup.beams > 1 and m.cache == "paged":
        yield (f"all {setup.beams} beams read the same keys and values of the encoder; transformers copies its output "
               f"for each: {exact(held * setup.beams)}")
    elif setup.beams > 1:
        yield (f"transformers copies the encoder's output for each of {setup.beams} beams; --kv-cache paged holds its "
               f"keys and values once: {exact(held // setup.beams)}")


CACHES = {
    "concatenated": "cache concatenated, as transformers' DynamicCache: one layer's old and new tensor lie side by "
                    "side in each step; a server's blocks: --kv-cache paged",
    "static": "cache static: room for prompt and generated tokens from the first forward on; kernels read what is "
              "filled",
    "paged": "cache in blocks: every layer holds every token; vLLM's hybrid manager gives layers with a window fewer",
}
