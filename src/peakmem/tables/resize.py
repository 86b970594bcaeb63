"""The same architecture in another size: what is given is taken, the rest follows.

The head size stays; then heads, key/value heads and feed-forward follow the hidden size in proportion. Where heads are
given and head size × heads was the hidden size, it is so again.
"""

from __future__ import annotations

from typing import Any

from peakmem.errors import Impossible, UnknownName
from peakmem.model import Model
from peakmem.setup import LIMIT, checked, number

SIZES = ("layers", "hidden", "heads", "kv_heads", "head_size", "feed_forward", "vocabulary", "positions", "window",
         "experts", "experts_per_token", "expert_feed_forward", "token_types", "image", "patch", "channels", "classes")
"""Fields of `Model` that can be given, and `tied`."""
BARTS = ("bart", "mbart", "marian", "pegasus", "m2m_100")
ENCODERS = ("bert", "roberta", "xlm-roberta", "camembert", "distilbert", "electra", "mpnet", "modernbert",
            "deberta-v2")
UNTURNED = ("mamba", "mamba2", "falcon_mamba", "jamba", "nemotron_h")
MULTIPLES = ("jamba", "granitemoehybrid", "bamba", "zamba2")
"""Whose Mamba is a whole number of times as wide as the model."""


def resize(model: Model, /, **given: Any) -> Model:
    """The model with other sizes; each change that was not asked for is a note.

    given: names of `SIZES`, whole numbers from 1 to 10^9 (text is parsed); tied: yes or no.
    Errors: UnknownName for another name, Impossible in one line for sizes that contradict each other.
    """
    for name in given:
        if name not in (*SIZES, "tied"):
            raise UnknownName("size", name, (*SIZES, "tied"))
    sizes = {name: number(_flag(name), value, int, 1, LIMIT) for name, value in given.items() if name != "tied"}
    absent = [name for name in sizes if not getattr(model, name) and name not in ("window", "layers")]
    if absent or ("window" in sizes and not model.window):
        name = absent[0] if absent else "window"
        raise Impossible(f"{_flag(name)}: {model.name} ({model.architecture}) has no {name.replace('_', ' ')}")
    stuck = {name for name in _stuck(model) & set(sizes) if sizes[name] != getattr(model, name)}
    if stuck:
        raise Impossible(f"{_flag(sorted(stuck)[0])}: {model.name} has several stacks or towers, of which one number "
                         "says too little; write a config.json")
    if model.experts and model.feed_forward == model.expert_feed_forward:
        both = sizes.get("expert_feed_forward", sizes.get("feed_forward"))
        sizes |= {"feed_forward": both, "expert_feed_forward": both} if both else {}
    new: dict[str, Any] = dict(sizes)
    notes: list[str] = []
    _widths(model, sizes, new, notes)
    if "layers" in sizes and model.layer_kinds:
        new["layer_kinds"] = _kinds(model, sizes["layers"])
    if model.positions and model.image and ("image" in sizes or "patch" in sizes):
        more = model.positions - (model.image // model.patch) ** 2
        new["positions"] = (new.get("image", model.image) // new.get("patch", model.patch)) ** 2 + more
    if "tied" in given:
        if not model.vocabulary:
            raise Impossible(f"--tied: {model.name} has no embedding that a head could share")
        new["tied"] = _yes(given["tied"])
    changed = model.changed(**new, notes=(*model.notes, *notes), in_file=0)
    _consistent(changed)
    return changed


def _stuck(model: Model) -> set[str]:
    """What one number cannot change: stages and towers have sizes of their own, and several stacks their layers."""
    if model.architecture in ("resnet", "unet_2d_condition", "convnext", "convnextv2"):
        return {"layers", "hidden", "heads", "kv_heads", "head_size", "patch"}
    if model.architecture == "nemotron-nas":  # each layer has a width of its own
        return {"hidden", "feed_forward"}
    if model.architecture == "dit":
        return {"feed_forward", "kv_heads"}
    return ({"layers", "image", "patch", "channels"} if model.towers else
            {"layers"} if "encoder_decoder" in model.switches else set())


def _widths(model: Model, sizes: dict[str, int], new: dict[str, Any], notes: list[str]) -> None:
    """Heads, key/value heads, head size and feed-forward, as far as they follow."""
    hidden = sizes.get("hidden", model.hidden)
    whole = model.heads * model.head_size == model.hidden

    def follow(name: str, value: int | None, why: str) -> None:
        if name in sizes or not getattr(model, name):
            return
        if value is None:
            raise Impossible(f"{model.name}: not a whole number of {name.replace('_', ' ')} where {why}; "
                             f"give {_flag(name)} too, or sizes that divide")
        if value != getattr(model, name):
            new[name] = value
            notes.append(f"{name.replace('_', ' ')} {value:,}: {why}")

    def share(old: int, part: int, base: int) -> int | None:
        return old * part // base if old * part % base == 0 and old * part else None

    if "heads" in sizes and whole:
        size = hidden // sizes["heads"] if hidden % sizes["heads"] == 0 else None
        follow("head_size", size, f"hidden {hidden:,} over {sizes['heads']:,} heads")
    elif "head_size" in sizes and whole:
        heads = hidden // sizes["head_size"] if hidden % sizes["head_size"] == 0 else None
        follow("heads", heads, f"hidden {hidden:,} over head size {sizes['head_size']:,}")
    else:
        follow("heads", share(model.heads, hidden, model.hidden),
               f"heads of {model.head_size} follow hidden {hidden:,} in proportion")
    heads = new.get("heads", model.heads)
    if "multi_query" not in model.switches:
        follow("kv_heads", share(model.kv_heads, heads, model.heads), f"key/value heads follow {heads:,} heads")
    for name in ("feed_forward", "expert_feed_forward"):
        value = max(1, round(getattr(model, name) * hidden / model.hidden))
        follow(name, value, f"follows hidden {hidden:,} in proportion")
    if "e" in model.sizes:
        new["sizes"] = {**model.sizes, "e": max(1, round(model.sizes["e"] * hidden / model.hidden))}
    if "as" in model.sizes:  # CodeGen's heads of each of four parts
        if heads % 4:
            raise Impossible(f"--heads {heads:,} is no multiple of 4, the parts of {model.name}'s projection")
        new["sizes"] = {**model.sizes, "as": heads // 4}
    if model.architecture in MULTIPLES and hidden != model.hidden:
        new["sizes"] = {**model.sizes, **_wider(model, hidden)}
    if model.rotary_size and "head_size" in new:
        new["rotary_size"] = max(2, model.rotary_size * new["head_size"] // model.head_size // 2 * 2)


def _wider(model: Model, hidden: int) -> dict[str, int]:
    """Mamba's channels, or its heads of the same size, in proportion. Errors: Impossible."""
    letter = "am" if "am" in model.sizes else "l"
    groups = model.sizes.get("Gm", 1)
    count, rest = divmod(model.sizes[letter] * hidden, model.hidden)
    if rest or not count or count % groups:
        raise Impossible(f"{model.name}: --hidden {hidden:,} is no size that {model.sizes[letter]:,} "
                         f"{'heads' if letter == 'am' else 'channels'} of Mamba follow; write a config.json")
    return {letter: count, **({"rm": count // groups} if letter == "am" else {})}


def _kinds(model: Model, layers: int) -> tuple[str, ...]:
    """The kinds of more or fewer layers: the period goes on, else the last kind does."""
    kinds, count = model.layer_kinds, len(model.layer_kinds)
    period = next((p for p in range(1, count // 2 + 1)
                   if all(kinds[i] == kinds[i - p] for i in range(p, count))), 0)
    if layers > 10**6:
        raise Impossible(f"--layers {layers:,}: layers of different kinds are listed one by one, at most 1,000,000")
    if layers <= count:
        return kinds[:layers]
    return tuple(kinds[i % period] if period else kinds[min(i, count - 1)] for i in range(layers))


def _consistent(model: Model) -> None:
    """Errors: Impossible, naming both sizes."""
    def refuse(text: str) -> None:
        raise Impossible(f"{model.name}: {text}")

    if model.kv_heads > model.heads or model.heads % model.kv_heads:
        refuse(f"--kv-heads {model.kv_heads:,} must divide --heads {model.heads:,}")
    pictures = model.image > 0 and not model.vocabulary
    alike = model.architecture in ("gpt2", "gpt_neo", "gpt_neox", "opt", *ENCODERS, *BARTS, "clip", "whisper", "bloom",
                                   "mpt", "gptj", "codegen")
    fixed = alike or model.architecture in ("falcon", "stablelm", "gpt_bigcode")
    if fixed and model.heads * model.head_size != model.hidden:
        refuse(f"--heads {model.heads:,} × --head-size {model.head_size:,} must be --hidden {model.hidden:,}")
    if model.architecture == "zamba2" and model.heads * model.head_size != 2 * model.hidden:
        refuse(f"--heads {model.heads:,} × --head-size {model.head_size:,} must be twice --hidden {model.hidden:,}")
    if "multi_query" in model.switches and model.kv_heads != 1:
        refuse(f"--kv-heads {model.kv_heads:,}: {model.architecture} with multi_query has one")
    alike |= fixed and model.architecture != "stablelm" and not model.switches & {"multi_query", "grouped_qkv"}
    if model.kv_heads != model.heads and (alike or pictures):
        refuse(f"--kv-heads {model.kv_heads:,}: {model.architecture} has as many as --heads {model.heads:,}")
    rotary = model.architecture == "modernbert" or model.architecture not in (
        "gpt2", "gpt_neo", "opt", *ENCODERS, *BARTS, "t5", "mt5", "clip", "whisper", "bloom", "mpt", "gpt_bigcode",
        *UNTURNED)
    if rotary and not pictures and model.head_size % 2 and "unturned" not in model.switches:
        refuse(f"--head-size {model.head_size:,} is odd; rotary positions need an even number")
    if model.experts_per_token > model.experts:
        refuse(f"--experts-per-token {model.experts_per_token:,} is more than --experts {model.experts:,}")
    coarsest = max((size for name, size in model.sizes.items() if name[0] == "p" and name[1:].isdigit()), default=1)
    if model.image % coarsest:
        refuse(f"--image {model.image:,} is no multiple of {coarsest}, the patch of the last stage")
    if 0 < model.image < model.patch:
        refuse(f"--patch {model.patch:,} is larger than --image {model.image:,}")


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _yes(value: Any) -> bool:
    """A truth value as the field table parses it."""
    try:
        return bool(checked("clip", value))
    except Impossible:
        raise Impossible(f"--tied {value!r:.40}: give yes or no") from None
