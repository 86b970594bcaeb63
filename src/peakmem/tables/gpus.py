"""The GPU that a person names: how much memory it has, as sold, as the driver and as PyTorch see it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache

from peakmem.errors import Impossible, UnknownName, printable
from peakmem.immutable import immutable
from peakmem.tables.gpu_rows import ROWS


@immutable
class GPU:
    """One device. Unknown values are None.

    memory_gb: as sold, in GB; smi_mib: MiB in nvidia-smi; torch_gib: GiB that PyTorch reports as the total;
    capability: "9.0", or AMD's "gfx942"; bandwidth_gbs, bf16_tflops, interconnect_gbs; source; note: how a name or
    a size was understood, to be printed.
    """

    name: str
    vendor: str = ""
    memory_gb: float = 0
    smi_mib: int | None = None
    torch_gib: float | None = None
    capability: str = ""
    bandwidth_gbs: float | None = None
    bf16_tflops: float | None = None
    interconnect_gbs: float | None = None
    source: str = ""
    note: str = ""

    @property
    def capacity(self) -> int | None:
        """Bytes that PyTorch reports as the device's total, or None where nobody has printed them."""
        return None if self.torch_gib is None else round(self.torch_gib * 2**30)

    @property
    def sold(self) -> int:
        """Bytes as sold, read as GB of 10^9: the cautious reading, since drivers keep up to 8 % of 2^30."""
        return round(self.memory_gb * 10**9)

    @property
    def major(self) -> int | None:
        """Major compute capability of an NVIDIA GPU."""
        head = self.capability.split(".")[0]
        return int(head) if head.isdigit() else None


@cache
def gpus() -> tuple[GPU, ...]:
    """Every row."""
    return tuple(GPU(*row) for row in ROWS)


COMMON: Mapping[str, str] = {"h100": "H100 SXM 80GB", "h100 sxm": "H100 SXM 80GB", "gh200": "GH200 96GB"}
"""What a bare name stands for where several memory sizes were built and one is meant by nearly everybody."""

_FORM = frozenset({"sxm", "pcie"})
_BRANDS = "nvidia geforce rtx gtx tesla quadro instinct amd intel radeon rx gpu hbm2 hbm2e hbm3 hbm3e"
_BRAND = frozenset(_BRANDS.split())
_SIZE = re.compile(r"([+-]?[\d.]+(?:e[+-]?\d+)?|nan|[+-]?inf(?:inity)?)\s*([kmgt]i?b?|b)?", re.I | re.A)
_UNITS = {"kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40, "kb": 10**3, "mb": 10**6, "gb": 10**9,
          "tb": 10**12, "b": 1}
MOST = 2**50
"""Largest memory of one GPU that is believed, in bytes."""


def find_gpu(text: str) -> GPU:
    """The GPU of a name ("RTX 4090", "a100-80gb", "T4") or of a size with its unit ("24GiB", "24 GB").

    Errors: UnknownName with the nearest name; Impossible for a name that stands for different memories (lists
    them), for a size without unit, not a number, not above 0 or beyond reason.
    """
    words = _words(text)
    found = _candidates(words)
    if found:
        return _one(text, found)
    if _SIZE.fullmatch(text.strip()):
        return _sized(text.strip())
    raise UnknownName("GPU", text, [g.name for g in gpus()], "peakmem list gpus", about=["gpu"],
                      instead="give a size: 24GiB")


def _words(text: str) -> frozenset[str]:
    """A name as words; "rtx4090" and "RTX 4090", "80 GB" and "80gb" are the same."""
    text = re.sub(r"(\d)\s*(?:gib|gb|g)\b", r"\1gb", text.lower()[:100])
    text = re.sub(r"\b(rtx|gtx|rx)(?=\d)", r"\1 ", text)
    text = re.sub(r"(?<=\d)(ti|super|xtx)\b", r" \1", text)
    text = re.sub(r"\bsxm\d\b", "sxm", text)
    return frozenset(re.findall(r"[a-z0-9.]+", text)) - {"with", "memory"}


@cache
def _keys() -> tuple[tuple[GPU, frozenset[str], frozenset[str]], ...]:
    """Each GPU with the words that make it, and all words that may be said of it."""
    rows = []
    for gpu in gpus():
        memory = f"{gpu.memory_gb:g}gb"
        said = _words(gpu.name) | {memory, f"{gpu.memory_gb:g}", gpu.vendor.lower()} | _BRAND
        core = _words(gpu.name) - _BRAND - _FORM - {memory}
        rows.append((gpu, core, frozenset(said)))
    return tuple(rows)


def _candidates(words: frozenset[str]) -> list[GPU]:
    """Rows of which every word is true: first those that have no other name, then those with a longer one."""
    if not words - _BRAND - _FORM or all(re.fullmatch(r"[\d.]+(gb)?", w) and len(w) < 4 for w in words):
        return []
    true = [(gpu, core) for gpu, core, said in _keys() if words <= said]
    exact = [gpu for gpu, core in true if core <= words]
    return exact or [gpu for gpu, core in true if core & words]


def _one(text: str, found: list[GPU]) -> GPU:
    """The row that is meant. Errors: Impossible when the candidates have different memories."""
    if len({gpu.memory_gb for gpu in found}) > 1:
        common = COMMON.get(" ".join(sorted(_words(text) - _BRAND)))
        meant = [gpu for gpu in found if gpu.name == common]
        if not meant:
            listed = ", ".join(f"{gpu.name} ({gpu.memory_gb:g} GB)" for gpu in found)
            raise Impossible(f"--gpu {printable(text)} may be: {listed}; name one")
        found = meant
    gpu = min(found, key=lambda g: g.torch_gib or float("inf"))
    if _words(text) - _BRAND == _words(gpu.name) - _BRAND:
        return gpu
    return _noted(gpu, f"{printable(text)[1:-1]} is taken as {gpu.name}")


def _noted(gpu: GPU, note: str) -> GPU:
    from peakmem.immutable import replace

    return replace(gpu, note=note)


def _sized(text: str) -> GPU:
    """A GPU of which only the memory is given."""
    match = _SIZE.fullmatch(text)
    assert match
    if len(text) > 40:  # Python refuses to read some thousand digits
        raise Impossible(f"--gpu {printable(text)} is too long; give 24GiB")
    number, unit = match[1], (match[2] or "").lower()
    if unit not in _UNITS and not number[-1].isalpha():
        large = number.isdigit() and int(number) >= 1000
        hint = f"{number}MiB" if large else f"{number}GiB (2^30) or {number}GB (10^9)"
        raise Impossible(f"--gpu {printable(text)} has no unit; give {hint}, or the name of a GPU")
    try:
        size = float(number) * _UNITS[unit]
    except (ValueError, KeyError):
        raise Impossible(f"--gpu {printable(text)} is not a number with a unit; give 24GiB") from None
    if not 2**20 <= size <= MOST:
        raise Impossible(f"--gpu {printable(text)} is not between 1MiB and 1024TiB")
    gib = round(size) / 2**30
    note = f"{text} is read as {gib:.2f} GiB that PyTorch can use" + (
        f"; for 2^30 write {number}{unit[0].upper()}iB" if "i" not in unit and unit != "b" else "")
    return GPU(text, memory_gb=size / 10**9, torch_gib=gib, source="given as a size", note=note)
