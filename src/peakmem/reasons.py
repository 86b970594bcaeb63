"""Why a tensor is alive, as sentences for whoever has not read PyTorch: from a line's reason, birth and death.

The engine writes reasons in short forms (estimate/reasons.py); a form that is not known here is passed on as it is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from peakmem.ledger import Line

PHASES: Mapping[str, str] = {
    "start": "before the step", "forward": "in forward", "backward": "in backward",
    "optimizer": "in the optimizer's step", "step": "in the optimizer's step", "clear": "when gradients are cleared",
    "load": "when the model is loaded", "prefill": "while the prompt is read", "decode": "while a token is generated",
    "first decode": "at the first generated token", "last decode": "at the last generated token"}
OTHER: Mapping[str, str] = {"keys": "queries", "queries": "keys", "attention probabilities": "values"}
"""What attention multiplies with the error to find a gradient."""


def sentence(line: Line) -> str:
    """What the tensor is there for, who reads it, and when it goes."""
    why = line.why.removeprefix(line.name).lstrip(" :")
    why = re.sub(r": one tensor, \d+ uses(?= \(|$)", "", why)
    if line.kind == "weights":
        return weight(why)
    if re.match(r"lives from .* to .*: nothing keeps it longer", why):
        return passing(line)
    if line.kind == "gradients" and why.startswith("what backward found"):
        return ("Backward adds up here how the loss follows each weight. The optimizer reads it in its step; zero_grad "
                "then drops it.")
    said = kept(why)
    if line.kind not in ("activations", "temporary") or not line.freed:
        return said
    return f"{said} It goes {where(line.freed)}."


def kept(why: str) -> str:
    """Reasons of a saved tensor, those of one form together."""
    groups: dict[str, list[str]] = {}
    forms: dict[str, Callable[[list[str]], str]] = {}
    note = re.search(r" \(([^()]*)\)$", why)
    for part in (why[: note.start()] if note else why).split("; "):
        for form, said in FORMS.items():
            found = re.fullmatch(form, part)
            if found:
                key = form + "".join(filter(None, found.groups()[1:]))
                groups.setdefault(key, []).append(place(found[1]))
                forms[key] = lambda all, said=said, found=found: said(all, *found.groups()[1:])  # type: ignore[misc]
                break
        else:
            groups[part] = []
            forms[part] = lambda _, part=part: named(part)  # type: ignore[misc]
    text = "; ".join(forms[key](all) for key, all in groups.items())
    known = any(groups.values())
    return f"Kept for backward: {text}." if known else f"{text[:1].upper()}{text[1:]}."


FORMS: Mapping[str, Callable[..., str]] = {
    r"slope of ((?:the )?[\w -]+?) in (.+?)(?:: (.+))?": lambda all, at, how=None: (
        f"the slope of {joined(all)} in {place(at)} is worked out from it" + (f" ({how})" if how else "")),
    r"gradient of (.+?), (?:its factor|its divisor|which it divides)": lambda all: (
        f"it was multiplied with {joined(all)}, whose gradient is the error times this"),
    r"gradient of the (keys|queries|attention probabilities) in (.+)": lambda all, at: (
        f"it holds the {joined([OTHER[one] for one in all])} of {place(at)}, and its backward needs them again"),
    r"gradient of the (first factor|second factor) in (.+)": lambda all, at: (
        f"it is a factor of a product in {place(at)}: the gradient of the other factor is the error times this"),
    r"gradient of the input of (.+)": lambda all: f"backward passes the error on through {joined(all)}",
    r"gradients of the division in (.+)": lambda all: f"{joined(all)} divides with it, and its backward needs it again",
    r"gradients of (.+)": lambda all: (
        f"it is what {joined(all)} {'normalise' if len(all) > 1 else 'normalises'}, and the backward of that needs it "
        "again"),
    r"gradient of the (logits): (.+)": lambda all, how: f"the gradient of the {all[0]} is made from it ({how})",
    r"nll_loss keeps (its input)": lambda _: "nll_loss keeps what it is given",
    r"gradient of ((?!the ).+)": lambda all: (
        f"it is the input of {joined(all)}: the gradient of {'each' if len(all) > 1 else 'its'} weight is the error "
        "times this input"),
    r"(.+) is computed again from it": lambda all: (
        f"checkpointing kept only this of {joined(all)}: in backward, forward is computed again from it"),
    r"which elements (.+) dropped": lambda all: f"backward must drop the same elements as {joined(all)} did",
    r"the backward of (.+) rebuilds the probabilities row by row": lambda all: (
        f"the scores of {joined(all)} are not stored, and backward rebuilds their probabilities with this"),
    r"the backward of (.+) repeats the softmax with it": lambda all: (
        f"the scores of {joined(all)} are not stored, and backward repeats their softmax with this"),
    r"(.+) is normalised again in backward": lambda all: f"{joined(all)} normalises once more in backward, with this",
}


def weight(why: str) -> str:
    """A parameter, a buffer or a copy."""
    note = re.search(r" \(([^()]*)\)$", why)
    use, _, later = (why[: note.start()] if note else why).partition("; kept for backward: ")
    if use == "is read in every forward":
        return "A weight, there all the time: every forward reads it."
    if use != "is read in every forward and backward":
        use = named(use)
        return f"{use[:1].upper()}{use[1:]}." + (f" {kept(later)}" if later else "")
    inputs = [place(name) for name in re.findall(r"gradient of the input of ([^;]+)", later)]
    again = f" Backward reads it, too, to pass the error on through {joined(inputs)}." if inputs else (
        f" {kept(later)}" if later else "")
    return f"A weight, there all the time: every forward reads it.{again}"


def passing(line: Line) -> str:
    """What nobody keeps: from the operation that makes it to the one that reads it last."""
    born, freed = where(line.born), where(line.freed)
    if line.name.endswith(" gradient"):
        whole = f"The error on its way back through {place(line.name.removesuffix(' gradient'))}. "
    else:
        whole = "On its way from one operation to the next. "
    return whole + (f"Made and gone {born}." if born == freed else f"Made {born}, gone {freed}.")


def where(moment: str) -> str:
    """`backward/layers.*/mlp.silu` as "in backward, at mlp.silu of each layer"."""
    phase, _, rest = moment.partition("/")
    said = PHASES.get(phase) or PHASES.get(phase.split(".")[0]) or phase
    if not rest:
        return said
    if rest.split("/")[0] == "loss":
        step = rest.partition("/")[2]
        return f"{said}, at the loss" + (f" ({step})" if step else "")
    return f"{said}, at {place(rest.replace('/', '.'))}"


def place(name: str) -> str:
    """`model.layers.*.mlp.gate_proj/output` as "mlp.gate_proj of each layer"; what is not an output keeps its name."""
    module, _, made = name.partition("/")
    made = "" if made in ("", "output") else f"/{made}"
    head, star, tail = module.rpartition(".*")
    if not star:
        return (module + made).lstrip("/")
    stack, _, last = head.removeprefix("model.").rpartition(".")
    short = re.search(r"(layers?|blocks?|^h)$", last)
    whose = f" of {stack}" if short and ("." in stack or stack in ("encoder", "decoder")) else ""
    each = f"each layer{whose}" if short else f"each of {head}"
    within = tail.lstrip(".") + made
    return f"{within.lstrip('/')} of {each}" if within else each


def named(text: str) -> str:
    """A text whose names of folded modules are told as places."""
    return re.sub(r"[\w.-]+\.\*[\w.*-]*", lambda found: place(found[0]), text)


def joined(all: list[str]) -> str:
    """`a, b and c`; what they end in alike is said once."""
    unique = list(dict.fromkeys(all))
    ends = {one.partition(" of each layer")[2] for one in unique if " of each layer" in one}
    if len(unique) > 1 and len(ends) == 1 and all_of(unique):
        heads = [one.partition(" of each layer")[0] for one in unique]
        return f"{joined(heads)} of each layer{ends.pop()}"
    return unique[0] if len(unique) == 1 else f"{', '.join(unique[:-1])} and {unique[-1]}"


def all_of(names: list[str]) -> bool:
    return all(" of each layer" in one for one in names)
