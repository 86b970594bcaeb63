"""What a tower beside the main one brings along: switches, a kernel, letters that end in the tower's first one."""

from __future__ import annotations

from collections.abc import Iterator
from math import isqrt
from types import ModuleType

from peakmem.errors import Impossible
from peakmem.estimate.kernel_choice import kernel_of, of_full_layers
from peakmem.estimate.structure import Tower
from peakmem.model import Model
from peakmem.setup import Setup
from peakmem.tables.pictures import grid_of, images_of


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
    return Tower(model.name, kernel_of(model, setup, "masked" in switches), model.activation, frozenset(switches),
                 dropouts)


def letters_of_towers(model: Model, setup: Setup) -> dict[str, int]:
    """Every letter's number, of all towers and of the pictures that they see."""
    numbers: dict[str, int] = {}
    for tower in model.towers:
        end = tower.name[0]
        numbers |= {"h" + end: tower.hidden, "a" + end: tower.heads, "k" + end: tower.kv_heads,
                    "d" + end: tower.head_size, "f" + end: tower.feed_forward, **tower.sizes}
    return numbers | letters_of_pictures(model, setup)


def counts_of(model: Model, setup: Setup) -> tuple[tuple[str, int], ...]:
    """Modules of which a layer, or a tower, has several, each one of its own; pictures that are looked at one by one.

    Errors: Impossible beyond `MOST_CALLS`.
    """
    if "norm_per_head" in model.switches:
        return ("a", model.heads), ("k", model.kv_heads)
    own = tuple((name, count) for name, count in sorted(model.sizes.items()) if name.startswith("n_"))
    merged = tuple(("nd", tower.sizes["nd"]) for tower in model.towers if "nd" in tower.sizes)
    return own or (*merged, *counts_of_pictures(model, setup))


MOST_CALLS = 1024
"""Most calls of attention in one layer, for pictures or windows of them, each of which is written down."""


def counts_of_pictures(model: Model, setup: Setup) -> Iterator[tuple[str, int]]:
    count = images_of(model, setup) * setup.batch
    if count and "tiles" in model.switches:
        yield "sequences", setup.batch
    if not count or "any_size" not in model.switches:
        return
    yield "pictures", count
    calls = count
    if window := model.towers[0].sizes.get("wm", 0):
        sides = [side // isqrt(model.towers[0].sizes["pm"]) for side in grid_of(model, setup)]
        for way, side in zip(("rows", "columns"), sides, strict=True):
            yield f"whole {way}", side // window
            yield f"part {way}", int(side % window > 0)
            calls *= -(-side // window)
    if calls > MOST_CALLS and setup.attention != "flash-package":
        raise Impossible(f"{calls:,} pictures, or windows of them, in a micro-batch: peakmem writes down at most "
                         f"{MOST_CALLS:,} calls of attention in a layer; give a smaller --batch, --images or "
                         "--image-height, or --attention flash-package, which needs one")


def letters_of_pictures(model: Model, setup: Setup) -> dict[str, int]:
    """N: patches of one picture; nt: tokens of all; wa … wd: patches of a window, whole and at the picture's edges.

    vi: tiles or pictures of a sequence; tn: patches of all; my, mx: rows and columns of tokens.
    """
    count = images_of(model, setup)
    if count and "tiles" in model.switches:
        return {"vi": count}
    if not count or "any_size" not in model.switches:
        return {}
    sizes = model.towers[0].sizes
    rows, columns = grid_of(model, setup)
    numbers = {"N": rows * columns, "nt": setup.batch * count * rows * columns // sizes["pm"]}
    if merged := sizes.get("ms", 0):
        numbers |= {"vi": count, "tn": setup.batch * count * rows * columns, "my": rows // merged,
                    "mx": columns // merged}
    if window := sizes.get("wm", 0):
        down, across = (side // isqrt(sizes["pm"]) % window for side in (rows, columns))
        numbers |= {"wa": window**2 * sizes["pm"], "wb": window * across * sizes["pm"],
                    "wc": down * window * sizes["pm"], "wd": down * across * sizes["pm"]}
    return numbers


def looks(model: Model, setup: Setup) -> set[str]:
    """The switches that say that the tower looks at pictures, and at all in one call. Errors: Impossible."""
    packed = {"packed_pictures"} if setup.attention == "flash-package" else set()
    return {"pictures"} | packed if images_of(model, setup) else set()


def refuse_unknown(code: ModuleType, model: Model, setup: Setup) -> None:
    """What is known of a decoder and not of this architecture: its EAGER and SHARDS. Errors: Impossible."""
    if setup.attention == "eager" and not getattr(code, "EAGER", True):
        raise Impossible(f"--attention eager: of {model.architecture} only PyTorch's kernels are known; give auto")
    if (setup.shard, setup.offload) != ("none", "none") and not getattr(code, "SHARDS", True):
        raise Impossible(f"--shard and --offload: peakmem knows {model.architecture} whole, on one GPU")
    if (setup.shard, setup.offload) != ("none", "none") and images_of(model, setup):
        raise Impossible(f"--shard and --offload: peakmem knows {model.architecture} with pictures whole, on one GPU; "
                         "give --images 0")
