"""Where keys and values lie: in tensors that grow, or in buffers; in 16, 8 or 4 bit. See serving.py."""

from __future__ import annotations

from collections.abc import Mapping

from peakmem.estimate.layout import flat
from peakmem.estimate.structure import Structure
from peakmem.estimate.tape import Tensor, current


def holder(m: Structure, new: Tensor, name: str, positions: str) -> Tensor:
    """The memory for keys or values of so many positions."""
    tape = current()
    b, k, _, d = new.dims
    dtype = new.dtype if m.cache_bits == 16 else "uint8"
    if m.cache_bits == 4:
        d = (f"{'*'.join(d)}/2",)
    made = tape.new((b, k, (positions,), d), dtype, None, f"{tape.scope}/cached {name}")
    if made.storage:
        what = f"{name} of every position" if new.dims[2][0] == tape.grows else f"{name} of what the encoder gave"
        made.storage.record.why.append(f"{what}, read by each later token in {tape.scope}")
    return made


def seen(m: Structure, held: Tensor, new: Tensor) -> Tensor:
    """What attention reads: all positions so far, in the dtype that it computes in."""
    b, k, _, d = new.dims
    shape = b, k, (so_far(new),), d
    return Tensor(shape, new.dtype, flat(shape), held.storage)


def so_far(new: Tensor) -> str:
    """The letter of all positions that are known once these new ones are: where tokens are added, s' for s."""
    tape, letter = current(), new.dims[2][0]
    return f"{letter}'" if tape.single and letter == tape.grows else letter


def in_buffers(m: Structure, new: Mapping[str, Tensor]) -> tuple[Tensor, ...]:
    """A layer's buffers, made when it first runs."""
    tape = current()
    key = f"{tape.layer}{tape.scope}"
    if key not in tape.cache:
        narrow = m.cache == "static" and tape.layer_kind.startswith(("sliding", "chunked"))
        tape.kind = "kv_cache"
        tape.cache[key] = tuple(holder(m, x, name, "ub" if narrow else "tb") for name, x in new.items())
        tape.kind = "temporary"
    return tuple(seen(m, held, x) for held, x in zip(tape.cache[key], new.values(), strict=True))
