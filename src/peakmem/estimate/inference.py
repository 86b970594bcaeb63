"""Generation: the same forward code without gradients, once over the prompt, then one token at a time.

Mirrors transformers 5.24: generation/utils.py (prefill, then steps; logits of the last position unless asked for),
cache_utils.py (DynamicLayer grows by concatenation, DynamicSlidingWindowLayer keeps a view of the last tokens).
While a token is decoded the letter s is one, and the keys' positions are counted by t1 or t2 (in layers with a
window u1, u2): what the cache holds after the first and after the last step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from types import ModuleType

from peakmem.estimate.caches import holder, in_buffers, seen, so_far
from peakmem.estimate.layout import dims
from peakmem.estimate.outputs import hand_out_cache
from peakmem.estimate.shapes import piece
from peakmem.estimate.structure import Structure
from peakmem.estimate.tape import Tape, Tensor, current

STEPS = ("first decode", "last decode")
STEPS_OF_ONE = ("1", "2")  # as opposed to a chunk of the prompt


def cached(m: Structure, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """cache.update(): keys and values of all positions so far. In training there is no cache."""
    keys, values = kept(m, {"keys": k, "values": v})
    return keys, values


def cached_alone(m: Structure, x: Tensor, name: str) -> Tensor:
    """The same for one tensor more that a layer caches, of (b, 1, s, size)."""
    return kept(m, {name: x})[0]


def kept(m: Structure, new: Mapping[str, Tensor]) -> tuple[Tensor, ...]:
    """What the current part of the model knows of all positions so far, by name."""
    tape = current()
    if m.run == "training":
        hand_out_cache(m, *new.values())
        return tuple(new.values())
    see(tape.layer_kind)
    if m.cache != "concatenated":
        return in_buffers(m, new)
    key = f"{tape.layer}{tape.scope}"
    windowed = letter_of(tape.layer_kind) == "u"
    if windowed and key not in tape.cache:  # DynamicSlidingWindowLayer.lazy_initialization
        tape.states[f"{key}/window"] = tape.new((), "int64", None, f"{tape.scope}/window")
    old = list(tape.cache.pop(key, ()))
    tape.kind = "kv_cache"
    made = []
    for name, x in new.items():
        made.append(holder(m, x, name, so_far(x)))
        if not windowed:  # a layer with a window puts both in place when both are there
            del old[:1]
    del old
    tape.kind = "temporary"
    tape.cache[key] = tuple(made)
    return tuple(seen(m, held, x) for held, x in zip(made, new.values(), strict=True))


def state(name: str, shape: str, dtype: str = "") -> Tensor:
    """A state of this layer, made in its first forward and overwritten by every later one: its size is constant.

    dtype: of the first; later ones take the one that is there. Source: cache_utils.py, LinearAttentionLayer.
    """
    tape = current()
    key = f"{tape.layer}{tape.scope}/{name}"
    if key not in tape.states:
        tape.kind = "kv_cache"
        made = tape.states[key] = tape.new(dims(shape), dtype, None, f"{tape.scope}/{name}")
        tape.kind = "temporary"
        if made.storage:
            made.storage.record.why.append(f"what {tape.scope} knows of earlier tokens; each overwrites it")
    return tape.states[key]


def read_once(m: Structure, make: Callable[[], tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    """Keys and values of what an encoder gave: made in the decoder's first forward, read by all later ones.

    Source: cache_utils.py, EncoderDecoderCache.is_updated. Blocks of a server hold them once for all beams.
    """
    if m.run == "training":
        return make()
    tape = current()
    key = f"{tape.layer}{tape.scope}"
    if key not in tape.read:
        with as_encoded(m) if m.cache == "paged" else nullcontext():
            k, v = make()
            tape.kind = "kv_cache"
            tape.read[key] = tuple(holder(m, x, name, x.dims[2][0])  # type: ignore[assignment]
                                   for x, name in ((k, "keys"), (v, "values")))
            tape.kind = "temporary"
            k, v = (seen(m, held, x) for held, x in zip(tape.read[key], (k, v), strict=True))
            return k, v
    return tape.read[key]


@contextmanager
def as_encoded(m: Structure) -> Iterator[None]:
    """Inside, b counts sequences and not their beams."""
    tape = current()
    outer = tape.letters, tape.ones
    if m.has("beams"):
        tape.letters = {**tape.letters, "b": "be"}
        tape.ones |= {"b"} if "be" in tape.ones else set()
    yield
    tape.letters, tape.ones = outer


def see(kind: str) -> None:
    """From here on, key positions are counted as in layers of this kind."""
    tape = current()
    if tape.single and tape.grows == "s":
        tape.letters["s'"] = letter_of(kind) + tape.single


def generation(tape: Tape, m: Structure, code: ModuleType, inputs: dict[str, Tensor]) -> None:
    """Prefill, the first token's step, growth of the cache, the last token's step."""
    tape.grad_enabled = False
    tape.phase("prefill")
    if not hasattr(code, "forward"):
        states_alone(tape, m, code)
        return
    tape.autocast = m.autocast
    if m.chunked:
        before_the_last(tape, m, code, inputs)
    encoded = encode(tape, m, code, inputs) if hasattr(code, "encode") else None
    output = run(m, code, inputs, encoded)
    tape.single, tape.letters = "", {}
    if not m.decodes or not (tape.cache or tape.states):
        del output
        tape.besides.clear()
        return
    ids = choose(tape, output)
    del output
    tape.besides.clear()
    for number, step in enumerate(STEPS, 1):
        if number == 2:
            tape.phase("decoding")
            if m.cache == "concatenated":
                grow(tape, m, "2-1")
        tape.phase(step)
        at = tape.grows
        tape.single, tape.ones = str(number), m.ones | {at, f"many {at}'"}
        tape.letters = {at: "1", f"{at}'": f"t{number}"}
        name = "input_ids" if encoded is None else "decoder_input_ids"
        output = run(m.decoding(str(number)), code, {name: ids}, encoded)
        ids = choose(tape, output)
        del output
        tape.single, tape.ones, tape.letters = "", m.ones, {}
    tape.autocast = ""
    tape.phase("end")


def before_the_last(tape: Tape, m: Structure, code: ModuleType, inputs: dict[str, Tensor]) -> None:
    """All chunks of the prompt but the last: the first is run, the others leave their part of the cache."""
    tape.phase("first chunk")
    tape.letters = {"s": "cp", "s'": "cp"}
    run(m, code, inputs, None)
    tape.phase("chunks")
    if m.cache == "concatenated":
        grow(tape, m, "4")
    tape.phase("prefill")
    tape.single = "3"


def states_alone(tape: Tape, m: Structure, code: ModuleType) -> None:
    """What a model whose forward code is not written keeps: caches and states, without what it makes on the way."""
    tape.kind = "kv_cache"
    for layer, kind, count in m.copies():
        with tape.repeated(count):
            for name, shape, dtype in code.states(m, kind):
                tape.states[f"{layer}{name}"] = tape.new(dims(shape), dtype or m.dtype, None, f"layers.*.{name}")
    tape.kind = "temporary"
    tape.phase("end")


def encode(tape: Tape, m: Structure, code: ModuleType, inputs: dict[str, Tensor]) -> Tensor:
    """What the encoder makes of the source, of which transformers gives each beam a copy.

    Source: generation/utils.py, _prepare_encoder_decoder_kwargs_for_generation, _expand_inputs_for_generation.
    """
    tape.grows = "t"
    with as_encoded(m):
        encoded: Tensor = code.encode(m, next(iter(inputs.values())))
    if not m.has("beams") or m.cache == "paged":
        return encoded
    return tape.new(encoded.dims, encoded.dtype, None, "encoder/last hidden states of each beam")


def run(m: Structure, code: ModuleType, inputs: dict[str, Tensor], encoded: Tensor | None) -> Tensor:
    """One forward pass: of what is decoded where an encoder has run, else of all inputs."""
    result: Tensor
    if encoded is not None:
        result = code.decode(m, inputs["decoder_input_ids"], encoded)
    else:
        result = code.forward(m, **inputs) if hasattr(code, "INPUTS") else code.forward(m, inputs["input_ids"])
    return result


def choose(tape: Tape, logits: Tensor) -> Tensor:
    """The next token: the last position's logits in fp32, their largest, and the ids one longer."""
    scores = tape.new((("b",), ("V",)), "fp32", None, "next token/logits in fp32")
    token = tape.new((("b",),), "int64", None, "next token/id")
    del scores, token
    return tape.new((("b",), (tape.grows,)), "int64", None, "input/next token")


def grow(tape: Tape, m: Structure, length: str) -> None:
    """What the steps between the first and the last leave behind: each layer's cache, short of what the last adds."""
    outer = tape.kind
    tape.kind = "kv_cache"
    for key in list(tape.cache):
        old = tape.cache.pop(key)
        records = [x.storage.record for x in old if x.storage]
        letter = letter_of(m.kind_of(key)) + length
        positions = "u5" if letter == "u2-1" else letter  # a full window is replaced by one of its size
        shapes = [((*x.dims[:2], (positions,), x.dims[3]), x.dtype) for x in old]
        with tape.repeated(records[0].fold):
            del old
            grown = [tape.new(*shape, None, record.name) for shape, record in zip(shapes, records, strict=True)]
        for x, record in zip(grown, records, strict=True):
            if x.storage:
                x.storage.record.why += record.why
        tape.cache[key] = tuple(grown)
        del grown, x
    tape.kind = outer


def letter_of(kind: str) -> str:
    """Which letter counts the positions that a layer of this kind keeps."""
    return "u" if kind.startswith(("sliding", "chunked")) else "t"


def last_position(m: Structure, hidden: Tensor) -> Tensor:
    """slice_logits_to_keep: the last position alone, unless the logits of the whole prompt are asked for."""
    if m.run == "training" or m.has("all_logits") or current().single in STEPS_OF_ONE:
        return hidden
    return piece(hidden, 1, ())


