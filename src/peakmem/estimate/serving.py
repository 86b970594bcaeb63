"""Serving: kinds of cache, beams, chunks of the prompt; what is assumed of them.

- concatenated: transformers' DynamicCache: every step makes a new tensor beside the old one (estimate/inference.py).
- static: one buffer for prompt and generated tokens, made by the first forward (cache_utils.py, StaticLayer).
- paged: the same in whole blocks; layers with a window get blocks for every token, as vLLM counts without its hybrid
  manager (vllm/v1/core/kv_cache_utils.py). Kernels read buffers and fewer bits as they lie.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from peakmem.errors import Impossible
from peakmem.estimate.chosen_experts import COPY
from peakmem.estimate.experts import SORTED
from peakmem.estimate.interpret import interpret
from peakmem.estimate.replay import Level
from peakmem.estimate.server import bytes_in_states, bytes_per_token, bytes_read, notes_on_server
from peakmem.estimate.structure import Structure
from peakmem.estimate.tensor_parallel import divided, undivided
from peakmem.immutable import replace
from peakmem.model import Model
from peakmem.quantity import counted, exact
from peakmem.setup import Setup
from peakmem.tables.quantised import SCHEMES

RECURRENT = frozenset({"av", "am", "l", "o", "q", "zc"})


def served(model: Model, setup: Setup) -> tuple[Model, Setup]:
    """One GPU's part of the model, and the batch with its beams. Errors: Impossible."""
    if setup.run != "inference":
        for name, usual in (("tensor_parallel", 1), ("beams", 1), ("prefill_chunk", 0), ("kv_bits", 16)):
            if getattr(setup, name) != usual:
                raise Impossible(f"--{name.replace('_', '-')} goes with --run inference")
        return model, setup
    if not generates(model, setup):
        if setup.tensor_parallel > 1:
            raise Impossible(undivided(model))
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


def keeps_tokens(model: Model) -> bool:
    """Whether any layer has keys and values of every token, not a state alone."""
    return not RECURRENT & set(model.sizes) or any(kind.startswith("full") for kind in model.layer_kinds)


def notes_on_serving(m: Structure, numbers: Mapping[str, Any], setup: Setup,
                     levels: Mapping[str, Level]) -> Iterator[str]:
    """Assumptions about the cache, and what the server would reserve beside what the load needs."""
    if setup.run != "inference":
        return
    per_token, read, states = (found(m, numbers) for found in (bytes_per_token, bytes_read, bytes_in_states))
    if not per_token + read + states:
        return
    if per_token:
        yield CACHES[setup.kv_cache]
        yield f"cache: {exact(per_token)} a token in all layers on one GPU"
    if states:
        yield f"states: {exact(states // numbers['b'])} a sequence in all layers{LENGTH['zcn' in numbers]}"
    if read:
        yield from notes_on_reading(m, numbers, setup)
    if setup.kv_bits < 16 and per_token + read:
        other = "q8_0 34 bytes for 32 values" if setup.kv_bits == 8 else "q4_0 18 bytes for 32 values"
        yield (f"keys and values in {setup.kv_bits} bit, scales not counted: vLLM's fp8 has one for a layer, "
               f"llama.cpp's {other}")
    if setup.tensor_parallel > 1:
        tower = "; the tower beside the decoder is whole on each" if m.towers else ""
        yield (f"one of {setup.tensor_parallel} GPUs: its part of heads, feed-forward and vocabulary; parameters are "
               f"this GPU's; buffers of communication are not counted{tower}")
    if m.chunked:
        yield "the prompt in chunks: the last one is counted, with the cache of all before it; its kernel needs no mask"
    if setup.beams > 1 and per_token + read:
        yield "beams: each has its own cache, as transformers does it; paged servers share the blocks of the prompt"
    elif setup.beams > 1:
        yield "beams: each has its own states"
    yield from notes_on_experts(m, setup)
    yield from notes_on_server(m, numbers, setup, levels)


LENGTH = {False: ", whatever its length", True: ": a window and the compressed tokens before it"}


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
    yield (f"cross-attention: keys and values of {counted(numbers['s'], 'position')} of the encoder are made once and "
           f"do not grow: {exact(held)} in all layers; the decoder begins with {counted(numbers['t'], 'token')} of its "
           "own (--target)")
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


def check_lengths(model: Model, setup: Setup) -> None:
    """Refuse sequences, both of an encoder-decoder's, that are longer than the positions. Errors: Impossible."""
    both = "encoder_decoder" in model.switches
    begun, flag = (target_of(setup), "--target" if setup.target else "--sequence") if both else (
        setup.sequence, "--sequence")
    more = setup.generate - 1 if setup.run == "inference" else 0
    if both and "s" not in model.sizes and setup.sequence > begun + more:
        begun, flag, more = setup.sequence, "--sequence", 0
    if model.longest and begun + more > model.longest and (model.vocabulary or not model.image):
        raise Impossible(f"{begun + more:,} tokens are more than the {counted(model.longest, 'position')} of "
                         f"{model.name}; give a {shorter(flag, begun, more, model.longest)}")


def shorter(flag: str, begun: int, more: int, longest: int) -> str:
    """What makes `begun` tokens, given by `flag`, and `more` generated after the first no more than `longest`."""
    generated = f"--generate of at most {longest - begun + 1:,}"
    if more >= longest:
        return generated if begun <= longest else f"{flag} and a --generate of at most {longest + 1:,} together"
    given = f"{flag} of at most {longest - more:,}"
    return f"{given}, or a {generated}" if more and begun <= longest else given
