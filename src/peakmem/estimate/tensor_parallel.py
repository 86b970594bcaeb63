"""What one of several GPUs holds of a decoder: its part of heads, feed-forward and vocabulary.

Key/value heads below one for each GPU are replicated (vllm/model_executor/layers/linear.py, QKVParallelLinear). Whole
on every GPU are the latent of MLA and an indexer (vllm/model_executor/models/deepseek_v2.py), and a tower beside the
decoder, as vLLM has it with --mm-encoder-tp-mode data.
"""

from __future__ import annotations

from peakmem.errors import Impossible
from peakmem.model import Model

KEYS = {"kg": "key/value heads of full layers", "kw": "key/value heads of sliding layers"}
WIDTHS = {"y": "shared experts' feed-forward size"}
WHOLE = frozenset({"G", "Kg", "lq", "lk", "dn", "dr", "dv", "dg", "ai", "di", "Ti"})
"""Letters of an architecture's own by what becomes of them; of any other it is not known, and it is refused."""


def divided(model: Model, gpus: int, vocabulary: bool = True) -> Model:
    """What one of `gpus` GPUs holds; vocabulary: embeddings and head are divided, too (litgpt generate/tp.py leaves
    them whole). Errors: Impossible where heads or widths do not divide, or where it is not known what would."""
    own = {letter: fate(letter) for letter in model.sizes}
    if None in own.values() or model.image or model.positions or "encoder_decoder" in model.switches:
        raise Impossible(undivided(model))
    for name, count in (("heads", model.heads), ("feed-forward size", model.feed_forward),
                        ("experts' feed-forward size", model.expert_feed_forward),
                        *((WIDTHS.get(letter, "feed-forward size of a layer"), model.sizes[letter])
                          for letter, what in own.items() if what == "width")):
        if count % gpus:
            raise Impossible(f"--tensor-parallel {gpus} does not divide the {name}, {count}")
    for name, count in (("key/value heads", model.kv_heads),
                        *((KEYS.get(letter, "key/value heads of a layer"), model.sizes[letter])
                          for letter, what in own.items() if what == "keys")):
        if count % gpus and gpus % count:
            raise Impossible(f"--tensor-parallel {gpus} and {count} {name}: neither divides the other")
    parts = {"width": lambda n: n // gpus, "keys": lambda n: max(n // gpus, 1), "whole": lambda n: n}
    return model.changed(heads=model.heads // gpus, kv_heads=max(model.kv_heads // gpus, 1),
                         feed_forward=model.feed_forward // gpus,
                         vocabulary=-(-model.vocabulary // gpus) if vocabulary else model.vocabulary,
                         expert_feed_forward=model.expert_feed_forward // gpus,
                         sizes={letter: parts[what or "whole"](model.sizes[letter]) for letter, what in own.items()})


def undivided(model: Model) -> str:
    """Why a model is refused."""
    return f"--tensor-parallel: peakmem divides decoders like Llama, not {model.architecture}; leave it out"


def fate(letter: str) -> str | None:
    """`width`, `keys` or `whole`; None: not known. Layers of sizes of their own have them as k8 and f14336."""
    if letter in WIDTHS or letter[:1] == "f" and letter[1:].isdigit():
        return "width"
    if letter in KEYS or letter[:1] == "k" and letter[1:].isdigit():
        return "keys"
    return "whole" if letter in WHOLE else None
