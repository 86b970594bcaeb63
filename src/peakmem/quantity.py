"""A count that remembers its formula.

A tensor's size is one product: bytes per element × letters. `Size` is that product (or a sum of such
products, where one buffer holds many tensors), `Quantity` is a count with its formula, the same formula
with numbers put in, and the unit. Letters: see `LEGEND`.
"""

from __future__ import annotations

from collections.abc import Mapping

from peakmem.immutable import immutable

LEGEND: Mapping[str, str] = {
    "b": "micro-batch (sequences per GPU)",
    "s": "sequence length in tokens",
    "t": "target length in tokens",
    "h": "hidden size",
    "a": "attention heads",
    "k": "key/value heads",
    "d": "head size",
    "f": "feed-forward size",
    "n": "layers",
    "V": "vocabulary",
    "P": "rows of the position table",
    "E": "experts",
    "K": "experts per token",
    "x": "feed-forward size of one expert",
    "z": "tokens in one piece of the fused loss",
    "j": "pieces of the loss",
    "m": "pieces of the loss but the last",
    "r": "LoRA rank",
    "w": "GPUs that share the states",
    "T": "token types",
    "W": "sliding window",
    "hi": "hidden size of the image tower",
    "ai": "attention heads of the image tower",
    "ki": "key/value heads of the image tower",
    "di": "head size of the image tower",
    "fi": "feed-forward size of the image tower",
    "si": "patches of an image and a class token",
    "i": "image side in pixels",
    "N": "patches of an image",
    "ct": "tokens before the patches of an image",
    "D": "width on which towers are projected",
    "ho": "width of what the image tower hands over",
    "pt": "frames in one patch",
    "pm": "patches that are merged into one token",
    "pp": "rows of the image tower's position table",
    "nd": "further mergers of the image tower",
    "mel": "bins of the spectrogram",
    "c": "image channels",
    "p": "patch side in pixels",
    "C": "classes",
    "g": "generated tokens",
    "y": "feed-forward size of shared experts",
    "B": "buckets of relative positions",
    "G": "groups of experts",
    "Kg": "groups of experts that a token may choose from",
    "lq": "rank of the latent of the queries",
    "lk": "rank of the latent of keys and values",
    "lx": "width of the latent that experts work on",
    "dn": "part of a head that no position turns",
    "dr": "part of a head that positions turn",
    "dv": "head size of the values",
    "ak": "key heads of linear attention",
    "av": "value heads of linear attention",
    "ek": "key head size of linear attention",
    "ev": "value head size of linear attention",
    "rv": "value heads for each key head of linear attention",
    "cc": "channels of the convolution",
    "nc": "chunks of 64 tokens",
    "q": "taps of the convolution",
    "l": "inner size of a Mamba layer",
    "o": "state size of a Mamba channel",
    "R": "rank of the time steps",
    "am": "heads of a Mamba layer",
    "em": "head size of a Mamba layer",
    "Gm": "groups of a Mamba layer",
    "cm": "chunk of a Mamba layer",
    "cp": "tokens of one chunk of the prompt",
    "tb": "positions that a cache has room for",
    "ub": "the same in a layer with a window",
    "be": "sequences that an encoder reads for all their beams",
    "te": "width of the embedded timestep",
    "cr": "width of the text that a UNet reads",
    "co": "channels that are predicted",
    "Gn": "groups of a group norm",
    "ad": "width of what is added to the timestep",
    "at": "width of each embedded number of a picture",
}

NUMBERED: Mapping[str, str] = {"ch": "channels of stage", "a": "attention heads of stage", "d": "head size of stage",
                               "n": "layers of stretch"}
"""What letters with a number stand for: those of a model with stages."""


def meaning(letter: str) -> str:
    """What a letter of a formula stands for; empty where nothing is known."""
    base = letter.rstrip("0123456789")
    if letter in LEGEND or base == letter:
        return LEGEND.get(letter, "")
    return f"{NUMBERED[base]} {letter[len(base):]}" if base in NUMBERED else ""


GIB = 2**30


@immutable
class Quantity:
    """A count with its rule.

    value: the count; formula: in letters, `2·b·s·f`; substituted: the same with numbers, `2·1·8192·14336`.
    """

    value: int
    formula: str
    substituted: str
    unit: str = "bytes"

    def __str__(self) -> str:
        return f"{self.formula} = {self.substituted} = {self.value:,} {self.unit}"


def gib(size: float, digits: int = 2) -> str:
    """Bytes as GiB (2^30) with the unit, the way every view prints them; small ones as MiB or KiB, large as TiB."""
    for power, unit in ((40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")):
        if abs(size) >= 2**power:
            return f"{size / 2**power:,.{digits}f} {unit}"
    return f"{size:,.0f} B"


def exact(size: int) -> str:
    """Bytes to the last one; large amounts in GiB or MiB as well."""
    said = counted(size, "byte")
    return f"{said} ({gib(size)})" if size >= 2**20 else said


def counted(count: int, one: str) -> str:
    """`1 token`, `2 tokens`: a count with its noun."""
    return f"{count:,} {one}" if count == 1 else f"{count:,} {one}s"
