"""What a server with paged blocks, such as vLLM, makes of one GPU's memory: blocks of tokens, states of sequences.

A recurrent layer keeps a state for each running sequence, whatever its length; blocks get what the states of as many
sequences as fit leave. vLLM moreover pads a state to a whole block (vllm/model_executor/models/config.py,
HybridAttentionMambaModelConfig), which is not counted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from peakmem.estimate.interpret import interpret
from peakmem.estimate.replay import Level, size, value
from peakmem.estimate.structure import Structure
from peakmem.estimate.tape import Record
from peakmem.quantity import counted, exact
from peakmem.setup import Setup
from peakmem.tables.device import context
from peakmem.tables.gpus import find_gpu


class Server(NamedTuple):
    """One GPU's memory, as a server divides it."""

    reserved: int  # bytes: the fraction of the GPU that it takes
    cache: int  # bytes left for blocks and states
    held: int  # bytes of each running sequence beside its blocks: states, what an encoder gave
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


def bytes_in_cache(m: Structure, numbers: Mapping[str, Any]) -> int:
    """Keys, values and states at the end of the prompt."""
    length = numbers["tb"] if m.cache != "concatenated" else numbers["t" if m.has("encoder_decoder") else "s"]
    return (int(bytes_per_token(m, numbers) * numbers["b"] * length) + bytes_read(m, numbers)
            + bytes_in_states(m, numbers))


def bytes_read(m: Structure, numbers: Mapping[str, Any]) -> int:
    """Keys and values of what an encoder gave, in all layers."""
    return summed((x.storage.record for pair in interpret(m).read.values() for x in pair if x.storage), numbers)


def bytes_in_states(m: Structure, numbers: Mapping[str, Any]) -> int:
    """States that each token overwrites, of all sequences in all layers."""
    records = (x.storage.record for x in interpret(m).states.values() if x.storage)
    return summed((record for record in records if record.kind == "kv_cache"), numbers)


def summed(records: Iterator[Record], numbers: Mapping[str, Any]) -> int:
    return int(sum(size(r.key, numbers) * (value(r.fold, numbers) if r.fold else 1) for r in records))


def server_of(m: Structure, numbers: Mapping[str, Any], setup: Setup, levels: Mapping[str, Level]) -> Server | None:
    """The blocks that a server like vLLM makes. None: no GPU named, or its memory not known.

    It takes --utilization of the GPU; weights, the peak of a prefill beside the cache, and the context come first.
    """
    row = find_gpu(setup.gpu) if setup.gpu else None
    if row is None or row.capacity is None:
        return None
    per_token = bytes_per_token(m, numbers)
    held = bytes_read(m, numbers) // numbers["be"] + bytes_in_states(m, numbers) // numbers["b"]
    reserved = int(setup.utilization * row.capacity)
    load = levels["load"].end
    work = max(levels["prefill"].peak - load - bytes_in_cache(m, numbers), 0)
    room = max(reserved - load - work - context(row).high * 2**20, 0)
    each = -(-numbers["t2"] // setup.block_size)
    sequences = room // (each * setup.block_size * per_token + held)
    left = room - max(sequences, 1) * held
    blocks = blocks_of(left, per_token, setup.block_size)
    return Server(reserved, room, held, blocks, blocks * setup.block_size, sequences)


def notes_on_server(m: Structure, numbers: Mapping[str, Any], setup: Setup,
                    levels: Mapping[str, Level]) -> Iterator[str]:
    """What the server would reserve beside what the load needs."""
    from peakmem.architectures import code_of

    server = server_of(m, numbers, setup, levels)
    if not server:
        return
    if not hasattr(code_of(m.architecture, m.implementation), "forward"):
        yield "what a server has room for is not said: what this model's layers make on the way is not known"
        return
    needed = max(level.peak for level in levels.values())
    begin = (f"needed for this load: {exact(needed)} of tensors; reserved by a server with --utilization "
             f"{setup.utilization:g}: {exact(server.reserved)}, of which {exact(server.cache)} for ")
    what = "what the encoder gave" if bytes_read(m, numbers) else "states"
    sequences = counted(server.sequences, "sequence")
    if not server.blocks and not bytes_per_token(m, numbers):
        yield f"{begin}{what} of {exact(server.held)} a sequence: {sequences} of any length"
        return
    blocks = f"{counted(server.blocks, 'block')} of {counted(setup.block_size, 'token')}"
    if server.held:
        running = counted(max(server.sequences, 1), "running sequence")
        blocks = f"the {what} of {running}, {exact(server.held)} each, and {blocks}" if what == "states" else (
            f"{what} to {running}, {exact(server.held)} each, and {blocks}")
    yield f"{begin}{blocks}: {counted(server.tokens, 'token')}, or {sequences} of {numbers['t2']:,}"
