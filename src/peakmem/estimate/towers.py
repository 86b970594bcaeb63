"""What a tower beside the main one brings along: switches, a kernel, letters that end in the tower's first one."""

from __future__ import annotations

from types import ModuleType

from peakmem.errors import Impossible
from peakmem.estimate.kernel_choice import kernel_of, of_full_layers
from peakmem.estimate.structure import Tower
from peakmem.model import Model
from peakmem.setup import Setup
from peakmem.tables.pictures import images_of


def head_switches(model: Model) -> set[str]:
    """What attention kernels ask about heads."""
    found = {"grouped_heads": model.kv_heads < model.heads, "wide_heads": model.head_size > 256,
             "odd_heads": model.head_size % 8 > 0}
    own = {name for name, on in found.items() if on}
    if "dg" in model.sizes:
        wide = of_full_layers(model)
        own |= {f"full_{name}" for name in head_switches(wide.changed(sizes={}))}
    return own


def tower_of(model: Model, setup: Setup, dropouts: frozenset[str]) -> Tower:
    """What forward code may ask about a tower beside the main one."""
    switches = set(model.switches) | head_switches(model)
    return Tower(model.name, kernel_of(model, setup, False), model.activation, frozenset(switches),
                 dropouts)


def letters_of_towers(model: Model) -> dict[str, int]:
    """Every letter's number, of all towers."""
    numbers: dict[str, int] = {}
    for tower in model.towers:
        end = tower.name[0]
        numbers |= {"h" + end: tower.hidden, "a" + end: tower.heads, "k" + end: tower.kv_heads,
                    "d" + end: tower.head_size, "f" + end: tower.feed_forward, **tower.sizes}
    return numbers


def counts_of(model: Model) -> tuple[tuple[str, int], ...]:
    """Modules of which a layer, or a tower, has several, each one of its own."""
    if "norm_per_head" in model.switches:
        return ("a", model.heads), ("k", model.kv_heads)
    own = tuple((name, count) for name, count in sorted(model.sizes.items()) if name.startswith("n_"))
    return own or tuple(("nd", tower.sizes["nd"]) for tower in model.towers if "nd" in tower.sizes)


def looks(model: Model, setup: Setup) -> set[str]:
    """The switch that says that the tower looks at pictures. Errors: Impossible."""
    return {"pictures"} if images_of(model, setup) else set()


def refuse_unknown(code: ModuleType, model: Model, setup: Setup) -> None:
    """What is known of a decoder and not of this architecture: its EAGER and SHARDS. Errors: Impossible."""
    if setup.attention == "eager" and not getattr(code, "EAGER", True):
        raise Impossible(f"--attention eager: of {model.architecture} only PyTorch's kernels are known; give auto")
    if (setup.shard, setup.offload) != ("none", "none") and not getattr(code, "SHARDS", True):
        raise Impossible(f"--shard and --offload: peakmem knows {model.architecture} whole, on one GPU")
