"""How quantised weights lie in memory: one row a scheme, each part of a matrix with its dtype and its rule.

A matrix has `out` rows and `in` columns; an expert bank is E such matrices. A part's shape names what it counts:
`in`, `out`, `all` (in·out, in one row), `groups` (in over the group, rounded up), `one`; a number after a slash
divides and rounds up.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from peakmem.errors import UnknownName
from peakmem.immutable import immutable


class Stored(NamedTuple):
    """How a run stores its linear weights. scheme "": as the recipe says.

    group: weights that share a scale, 0 where the scheme knows it; kept: patterns of modules that stay as they are;
    prepared: "yes", prepare_model_for_kbit_training has made the rest fp32; "trl", and TRL has made embeddings and head
    16-bit again (trl 0.12 trainer/utils.py, peft_module_casting_to_bf16); packed_from: the dtype that matrices had when
    they were packed and have when dequantised, where it is not the run's own.
    """

    scheme: str = ""
    bits: int = 4
    group: int = 0
    kept: tuple[str, ...] = ()
    prepared: str = "no"
    packed_from: str = ""


class Part(NamedTuple):
    """One tensor of a quantised matrix."""

    name: str
    shape: tuple[str, ...]
    dtype: str


@immutable
class Scheme:
    """A layout. experts: also expert banks; linear: also linear layers; trains: its backward is known."""

    name: str
    title: str
    parts: tuple[Part, ...]
    experts: bool
    linear: bool
    trains: bool
    source: str


_PACKED = Part("packed", ("all/2",), "uint8")
_TABLE = Part("code", ("16",), "fp32")
_BNB = "bitsandbytes 0.50.2 functional.py, quantize_4bit and QuantState; quantize_blockwise copies the code for each"
_SINGLE = (_PACKED, Part("absmax", ("all/64",), "fp32"), _TABLE)
_DOUBLE = (_PACKED, Part("absmax in 8 bit", ("all/64",), "uint8"), _TABLE,
           Part("absmax of absmax", ("all/16384",), "fp32"), Part("offset", ("one",), "fp32"),
           Part("code of absmax", ("256",), "fp32"))
_GROUPS = (Part("qweight", ("in", "out/pack"), "int32"), Part("qzeros", ("groups", "out/pack"), "int32"),
           Part("scales", ("groups", "out"), "fp16"))

SCHEMES: Mapping[str, Scheme] = {row.name: row for row in (
    Scheme("nf4", "4-bit NormalFloat, a scale for 64 weights", _SINGLE, False, True, True, _BNB),
    Scheme("nf4-double", "nf4 whose scales are quantised again", _DOUBLE, False, True, True, _BNB),
    Scheme("fp4", "4-bit float, a scale for 64 weights", _SINGLE, False, True, True, _BNB),
    Scheme("fp4-double", "fp4 whose scales are quantised again", _DOUBLE, False, True, True, _BNB),
    Scheme("int8", "LLM.int8: a scale for each row", (Part("CB", ("all",), "uint8"), Part("SCB", ("out",), "fp32")),
           False, True, True, "bitsandbytes 0.50.2 nn/modules.py, Int8Params"),
    Scheme("fp8", "8-bit float, a scale for the matrix or for blocks of it",
           (Part("weight", ("all",), "uint8"), Part("scale", ("blocks",), "fp32")), True, True, False,
           "transformers 5.24 integrations/finegrained_fp8.py, FP8Linear"),
    Scheme("awq", "AWQ: packed weights, scales and zero points for each group", _GROUPS, True, True, False,
           "AutoAWQ modules/linear/gemm.py, WQLinear_GEMM"),
    Scheme("gptq", "GPTQ: AWQ's parts and the group of each input", (*_GROUPS, Part("g_idx", ("in",), "int32")), True,
           True, True, "GPTQModel nn_modules/qlinear, PackableQuantLinear"),
    Scheme("mxfp4", "MXFP4: experts alone, a scale byte for 32 weights",
           (Part("blocks", ("in/2", "out"), "uint8"), Part("scales", ("in/32", "out"), "uint8")), True, False, False,
           "transformers 5.24 integrations/mxfp4.py, Mxfp4GptOssExperts"),
    Scheme("nvfp4", "NVFP4: an 8-bit scale for 16 weights, two for the matrix",
           (Part("weight", ("in/2", "out"), "uint8"), Part("weight_scale", ("groups", "out"), "uint8"),
            Part("weight_scale_2", ("one",), "fp32"), Part("input_scale", ("one",), "fp32")), True, True, False,
           "NVIDIA TensorRT Model Optimizer 0.37, hf_quant_config.json of its checkpoints"),
)}

GROUP = {"awq": 128, "gptq": 128, "nvfp4": 16}
"""Weights that share a scale, where the file does not say: what the checkpoints people publish have."""
BNB_4BIT = ("nf4", "nf4-double", "fp4", "fp4-double")
FEW_ROWS = 128
"""gemm_4bit: rows up to which packed weights may be read directly; an A100's limit for large matrices. From 5 on it
depends on the GPU and the shape (an H100 stops at 64, a 4090 at 256), for small matrices up to 1536."""
PLAIN = ("fp32", "bf16", "fp16")
WORDS = ("auto", *PLAIN, *SCHEMES)
"""What --weights takes."""


def find_scheme(name: str) -> Scheme:
    """The row of a scheme. Errors: UnknownName."""
    if name not in SCHEMES:
        raise UnknownName("way to store weights", name, SCHEMES)
    return SCHEMES[name]
