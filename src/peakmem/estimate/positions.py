"""What transformers makes before the first layer: position numbers, rotary tables, masks.

Small integer tensors mostly, all dead before the first layer runs, except what layers keep.
"""

from __future__ import annotations

from peakmem.estimate.layout import dims
from peakmem.estimate.node import Node
from peakmem.estimate.ops import add, cast, mul, neg
from peakmem.estimate.shapes import alias, cat, piece
from peakmem.estimate.structure import Structure
from peakmem.estimate.tape import Tensor, current


def made(text: str, dtype: str, name: str) -> Tensor:
    """A tensor that no gradient flows through."""
    tape = current()
    return tape.new(dims(text), dtype, None, f"{tape.scope}/{name}")


def positions() -> Tensor:
    """0 … s-1 as (1, s): an arange, then the number of tokens seen before is added."""
    numbers = made("s", "int64", "arange")
    numbers = made("s", "int64", "position ids")
    return numbers


def position_row() -> Tensor:
    """The same as a row (1, s), which is looked up in a table of positions."""
    return positions().seen_as(dims("1 s"))


def sinusoids(counted: str, width: str, copied: bool = True) -> Tensor:
    """get_timestep_embedding of diffusers: sines and cosines of timesteps, in fp32, then the other way round.

    counted: the shape of the timesteps, which are flattened; copied: they are not in fp32. The scale, one, is
    multiplied with all the same.
    """
    half = f"{width}/2"
    exponent = made(half, "fp32", "arange")
    exponent = made(half, "fp32", "arange, scaled")
    exponent = made(half, "fp32", "exponents")
    emb = made(half, "fp32", "frequencies")
    steps = made(f"{counted} 1", "fp32", "timesteps in fp32") if copied else None
    emb = made(f"{counted} {half}", "fp32", "angles")
    del steps
    emb = made(f"{counted} {half}", "fp32", "angles, scaled")
    sin, cos = made(f"{counted} {half}", "fp32", "sines"), made(f"{counted} {half}", "fp32", "cosines")
    emb = made(f"{counted} {width}", "fp32", "sines and cosines")
    del cos, sin
    emb = made(f"{counted} {width}", "fp32", "cosines and sines")
    del exponent
    return emb


def rows_of_buffer(count: str = "s") -> Tensor:
    """0 … s-1 as (1, s), cut from a buffer that holds all positions."""
    return Tensor(dims(f"1 {count}"), "int64", (count,), None)


def look_for_padding() -> None:
    """warn_if_padding_and_no_attention_mask in modeling_utils.py: whether the first or last tokens are padding."""
    numbers = made("2", "int64", "last and first")
    ends = made("b 2", "int64", "last and first tokens")
    del numbers
    equal = made("b 2", "bool", "which are padding")
    found = made("", "bool", "whether any is padding")
    del ends, equal, found


def packed_sequences(at: str = "s") -> None:
    """find_packed_sequence_indices in masking_utils.py: looks whether positions jump, finds that they do not.

    Only where there is no cache (_preprocess_mask_arguments).
    """
    if not current().grad_enabled:
        return
    first = made("b 1", "int64", "first position")
    joined = made(f"b {at}+1", "int64", "positions with a first")
    steps = made(f"b {at}", "int64", "steps of the positions")
    del joined
    jumps = made(f"b {at}", "bool", "jumps of the positions")
    sums = made(f"b {at}", "int64", "sequence numbers")
    del jumps
    last = made("b", "bool", "one sequence per row")
    every = made("", "bool", "one sequence in all rows")
    del last, every
    del first, steps, sums


def rotary(m: Structure, dtype: str) -> tuple[Tensor, Tensor]:
    """The tables of a model with one kind of layer, and what its frequencies need first."""
    if m.has("longrope"):
        choose_frequencies(m)
    if m.has("dynamic_rope"):
        compare_length()
    size = rotary_size(m)
    return rotary_table(dtype, f"{size}/2", size)


def rotary_size(m: Structure) -> str:
    """How much of a head is turned, as a letter."""
    return "u" if m.has("partial_rotary") else "d"


def choose_frequencies(m: Structure) -> None:
    """longrope_frequency_update in modeling_rope_utils.py: the short or the long set is taken.

    The long one is computed in the first forward and stays with the module.
    """
    remembered = current().remembered
    largest = made("", "int64", "last position")
    length = made("", "int64", "length")
    del largest
    if m.step == "first" and not remembered:
        remembered.append(long_frequencies())
    longer = made("", "bool", "longer than in pretraining")
    chosen = made("u/2", "fp32", "chosen frequencies")
    del longer, chosen, length


def long_frequencies() -> Tensor:
    """1 / (factors · base ** (arange / size)): _compute_longrope_parameters."""
    factors = made("u/2", "fp32", "long factors")
    counted = made("u/2", "int64", "arange")
    counted = made("u/2", "fp32", "arange in fp32")
    shape = made("u/2", "fp32", "exponents")
    del counted
    power = made("u/2", "fp32", "powers")
    product = made("u/2", "fp32", "powers, scaled")
    del power
    inverse = made("u/2", "fp32", "reciprocals")
    result = made("u/2", "fp32", "long frequencies")
    del factors, shape, product, inverse
    if result.record:
        result.record.kind = "weights"
    return result


def compare_length() -> None:
    """dynamic_frequency_update in modeling_rope_utils.py, for sequences within the model's positions."""
    largest = made("", "int64", "last position")
    length = made("", "int64", "length")
    del largest
    for what in ("longer than the longest so far", "shorter than in pretraining"):
        made("", "bool", what)
    del length


def rotary_table(dtype: str, half: str = "d/2", size: str = "d", prefix: str = "1 s") -> tuple[Tensor, Tensor]:
    """cos and sin of every position, made in fp32, then cast: XxxRotaryEmbedding.forward."""
    numbers = made("1 s 1", "fp32", "positions in fp32")
    angles = made(f"{prefix} {half}", "fp32", "angles")
    del numbers
    both = made(f"{prefix} {size}", "fp32", "angles twice")
    cos = made(f"{prefix} {size}", "fp32", "cosine")
    cos = made(f"{prefix} {size}", "fp32", "cosine table")
    sin = made(f"{prefix} {size}", "fp32", "sine")
    sin = made(f"{prefix} {size}", "fp32", "sine table")
    tables = cast(cos, dtype), cast(sin, dtype)
    del both, angles
    return tables


def half_table(dtype: str) -> tuple[Tensor, Tensor]:
    """GptOssRotaryEmbedding.forward: cos and sin of half a head's size, made in fp32, then cast."""
    numbers = made("1 s 1", "fp32", "positions in fp32")
    angles = made("1 s d/2", "fp32", "angles")
    del numbers
    cos = made("1 s d/2", "fp32", "cosine")
    cos = made("1 s d/2", "fp32", "cosine table")
    sin = made("1 s d/2", "fp32", "sine")
    sin = made("1 s d/2", "fp32", "sine table")
    tables = cast(cos, dtype), cast(sin, dtype)
    del angles
    return tables


def rotate(x: Tensor, cos: Tensor, sin: Tensor, half: str = "d/2") -> Tensor:
    """apply_rotary_pos_emb for one tensor: x·cos + rotate_half(x)·sin; Unsloth's kernel turns x where it lies."""
    if current().fused_kernels:
        n = Node("rotary", x)
        n.gradient(0, "pass")
        return n.output(x.seen_as(x.dims, x.memory))
    straight = mul(x, cos, "x·cos")
    return add(straight, mul(rotate_half(x, half), sin, "rotated·sin"), "rotated")


def rotate_part(m: Structure, q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    """apply_rotary_pos_emb that turns the first part of each head; cat puts the rest behind it, head-major.

    It slices and joins even where the part is the whole head and the rest is empty.
    """
    part = rotary_size(m)
    q_part, q_rest = part_and_rest(q, part)
    k_part, k_rest = part_and_rest(k, part)
    q = cat([rotate(q_part, cos, sin, f"{part}/2"), q_rest], q.dims, "rotated and rest")
    k = cat([rotate(k_part, cos, sin, f"{part}/2"), k_rest], k.dims, "rotated and rest")
    return q, k


def rotate_both(m: Structure, q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    """Like rotate_part, but queries and keys are both turned before either is joined with its rest."""
    part = rotary_size(m)
    q_part, q_rest = part_and_rest(q, part)
    k_part, k_rest = part_and_rest(k, part)
    q_out = rotate(q_part, cos, sin, f"{part}/2")
    k_out = rotate(k_part, cos, sin, f"{part}/2")
    q_out = cat([q_out, q_rest], q.dims, "rotated and rest")
    k_out = cat([k_out, k_rest], k.dims, "rotated and rest")
    return q_out, k_out


def part_and_rest(x: Tensor, part: str) -> tuple[Tensor, Tensor]:
    """x[..., :part], x[..., part:]. A slice of everything is the tensor itself under another node."""
    at = len(x.dims) - 1
    if x.dims[at] == (part,):
        return alias(x), piece(x, at, "0")
    return piece(x, at, part), piece(x, at, f"{x.dims[at][0]}-{part}")


def rotate_half(x: Tensor, half: str) -> Tensor:
    """The two halves of each head swapped, the new first one negated; cat makes it contiguous."""
    at = len(x.dims) - 1
    x1 = piece(x, at, half)
    x2 = piece(x, at, half)
    return cat([neg(x2), x1], x.dims, "rotated half")
