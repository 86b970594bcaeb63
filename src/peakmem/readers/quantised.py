"""quantization_config, or its sidecar hf_quant_config.json -> how the file stores its linear weights.

Sources: transformers 5.24 utils/quantization_config.py; NVIDIA TensorRT Model Optimizer's hf_quant_config.json;
compressed-tensors' config_groups.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from peakmem.errors import printable
from peakmem.setup import LIMIT

Stored = tuple[str, int, int, tuple[tuple[str, bool], ...]]
BITS = (2, 4, 8)
MOST_PATTERNS = 256  # different ones, layer numbers aside; no file has a tenth of that
LAYER = re.compile(r"(?<=\.)\d{1,6}(?=\.|$)")


def stored_of(config: Any, layers: int) -> tuple[Stored | None, str]:
    """Scheme, bits, group and what is left out; or None and why it is not used, in words."""
    if not isinstance(config, Mapping):
        return None, f"quantization_config ({printable(config, 30)}) is ignored: weights as in --precision"
    method = str(config.get("quant_method") or config.get("quant_algo") or "").lower()
    found = scheme_of(method, config)
    kept = left_out(config, layers)
    if found is None or kept is None:
        what = printable(method or "without quant_method", 30)
        because = "" if found else grouped(method, config)
        return None, f"quantization_config ({what}{because}) is ignored: weights as in --precision"
    return (*found, kept), ""


def grouped(method: str, config: Mapping[str, Any]) -> str:
    """What is odd in the bits and groups of a method that is known."""
    if method not in ("gptq", "awq"):
        return ""
    bits, group = config.get("bits", 4), config.get("group_size", 128)
    odd = [f"bits {printable(bits, 20)}, not 2, 4 or 8"] * (whole(bits) not in BITS)
    odd += [f"group_size {printable(group, 20)}, not positive or -1"] * (not grouping(group))
    return ": " + " and ".join(odd) if odd else ""


def grouping(size: Any) -> int:
    """The inputs that share a scale, -1 for all of them; 0 for what is no such number."""
    return group if (group := whole(size)) > 0 or group == -1 else 0


def scheme_of(method: str, config: Mapping[str, Any]) -> tuple[str, int, int] | None:
    """Scheme, bits, group: None where peakmem does not know the layout."""
    if method == "bitsandbytes":
        if config.get("load_in_8bit") is True or config.get("_load_in_8bit") is True:
            return "int8", 8, 0
        kind = config.get("bnb_4bit_quant_type", "fp4")
        double = "-double" if config.get("bnb_4bit_use_double_quant") is True else ""
        return (f"{kind}{double}", 4, 0) if kind in ("nf4", "fp4") else None
    if method in ("gptq", "awq"):
        bits, group = whole(config.get("bits", 4)), grouping(config.get("group_size", 128))
        return (method, bits, group) if bits in BITS and group else None
    if method == "fp8":
        block = config.get("weight_block_size")
        size = whole(block[0]) if isinstance(block, list) and len(block) == 2 and block[0] == block[1] else 0
        return ("fp8", 8, size) if size >= 0 else None
    if method == "mxfp4":
        return "mxfp4", 4, 32
    nested = config.get("quantization")
    algo = str(nested.get("quant_algo") if isinstance(nested, Mapping) else config.get("quant_algo") or "").upper()
    entry = group_of(config)
    if algo == "NVFP4" or entry == (4, "float", 16):
        return "nvfp4", 4, 16
    if algo == "FP8" or entry is not None and entry[:2] == (8, "float"):
        return "fp8", 8, 0
    return None


def group_of(config: Mapping[str, Any]) -> tuple[int, str, int] | None:
    """Bits, type and group of the weights of the one entry of config_groups."""
    groups = config.get("config_groups")
    if not isinstance(groups, Mapping) or len(groups) != 1:
        return None
    entry = next(iter(groups.values()))
    weights = entry.get("weights") if isinstance(entry, Mapping) else None
    if not isinstance(weights, Mapping):
        return None
    return whole(weights.get("num_bits")), str(weights.get("type"))[:20], whole(weights.get("group_size") or 0)


def whole(value: Any) -> int:
    """A whole number within limits, else 0."""
    return value if isinstance(value, int) and not isinstance(value, bool) and -1 <= value <= LIMIT else 0


def left_out(config: Mapping[str, Any], layers: int) -> tuple[tuple[str, bool], ...] | None:
    """Patterns of what is not quantised, layer numbers as `*`, each with whether it holds in every layer."""
    nested = config.get("quantization")
    lists = [source.get(name) for source in (config, nested if isinstance(nested, Mapping) else {})
             for name in ("modules_to_not_convert", "llm_int8_skip_modules", "ignore", "exclude_modules",
                          "ignored_layers")]
    seen: dict[str, set[str]] = {}
    for words in lists:
        for word in words if isinstance(words, list) else ():
            if not isinstance(word, str) or len(word) > 200:
                return None
            word = word.removeprefix("re:.*").removeprefix("re:").replace("language_model.", "").rstrip("$")
            numbers = LAYER.findall(word)
            seen.setdefault(LAYER.sub("*", word), set()).add(numbers[0] if numbers else "*")
            if len(seen) > MOST_PATTERNS:
                return None
    return tuple((word, "*" in numbers or len(numbers) >= layers) for word, numbers in seen.items())
