"""From a model and its settings to a structure and the numbers that go into its tape."""

from __future__ import annotations

from typing import Any

from peakmem.errors import Impossible, UnknownName
from peakmem.estimate.dividing import applied, different_batches, fused_update, letters_of
from peakmem.estimate.kernel_choice import dropouts_of, kernels_of
from peakmem.estimate.parameters import check_parts, targets_of
from peakmem.estimate.pieces import pieces_of_loss
from peakmem.estimate.serving import (
    cache_letters,
    cached_tokens,
    check_lengths,
    chosen_tokens,
    compressed_tokens,
    inference_switches,
    served,
    target_of,
    with_cache,
)
from peakmem.estimate.stored import with_stored
from peakmem.estimate.structure import MOST_UNLIKE, Segment, Structure, runs_of, segments_of, unfolded
from peakmem.estimate.towers import counts_of, head_switches, letters_of_towers, looks, refuse_unknown, tower_of
from peakmem.model import Model
from peakmem.quantity import counted
from peakmem.setup import Setup
from peakmem.tables.optimizers import find_optimizer
from peakmem.tables.precisions import PRECISIONS
from peakmem.tables.stacks import find_stack


def structure_of(model: Model, setup: Setup, unfold: bool = False) -> tuple[Structure, dict[str, Any]]:
    """What kind of run this is, and its sizes by letter.

    unfold: interpret every layer by itself (for tests). Errors: Impossible.
    """
    model, setup = served(model, setup)
    check_code(model, setup)
    recipe = PRECISIONS[setup.precision]
    numbers = sizes_of(model, setup)
    kinds = kinds_of(model)
    segments, counts = stretches(model, setup, kinds, unfold)
    numbers |= counts
    optimizer = find_optimizer(setup.optimizer)
    switches = set(model.switches)
    if model.tied:
        switches.add("tied")
    switches |= head_switches(model) | looks(model, setup)
    if model.window:
        switches.add("window")
    if model.experts:
        switches.add("experts")
    narrow = narrow_window(model, setup)
    if narrow:
        switches.add("narrow_window")
    if {"av", "cm"} & set(model.sizes) and setup.sequence % model.sizes.get("cm", 64) == 0:
        switches.add("whole_chunks")
    if setup.sequence % 8:
        switches.add("odd_sequence")
    if numbers.get("t", 0) % 8:
        switches.add("odd_target")
    if numbers.get("tn", 0) % 8:
        switches.add("odd_patches")
    if "position_bias" in switches:
        switches |= {f"uneven_{name}" for name, letter in (("sequence", "s"), ("target", "t")) if numbers[letter] % 16}
    if model.rotary_size:
        switches.add("partial_rotary")
    if "alibi" in switches and model.heads & (model.heads - 1):
        switches.add("uneven_heads")
    if "e" in model.sizes:
        switches.add("narrow_embedding")
    switches |= find_stack(setup.stack).switches
    if setup.run == "inference":
        switches |= inference_switches(model, setup)
    structure = Structure(
        architecture=model.architecture,
        implementation=setup.implementation,
        switches=frozenset(switches),
        segments=segments,
        ones=frozenset(letter for letter, number in numbers.items() if number == 1) | ones_of_groups(model),
        counts=counts_of(model, setup),
        activation=model.activation,
        towers=tuple(tower_of(tower, setup, dropouts_of(tower, setup)) for tower in model.towers),
        dtype=recipe.weights,
        autocast=recipe.autocast or "",
        kernels=kernels_of(model, setup, narrow or {"pictures", "both_ways"} <= switches),
        dropouts=dropouts_of(model, setup),
        checkpoint=setup.checkpoint if setup.run == "training" else "none",
        checkpoint_save=kept_operations(setup),
        lora=targets_of(model.architecture, setup.lora_targets) if setup.lora_rank else (),
        frozen=tuple(part.strip() for part in setup.freeze.split(",") if part.strip()),
        pieces=pieces_of(model, setup, unfold),
        loss=setup.loss,
        micro_batches=min(setup.accumulation, different_batches(setup)),
        optimizer=optimizer.name,
        optimizer_implementation=way_of_step(setup),
        master=recipe.master or "",
        state_dtype=setup.state_dtype if setup.state_dtype != "auto" else recipe.states if recipe.master else "",
        gradient_buffer=recipe.gradient_buffer or "",
        step=setup.step,
        set_to_none=setup.set_to_none,
        clip=setup.clip,
        shard=setup.shard,
        reshard=setup.reshard,
        sync_each_batch=setup.sync_each_batch,
        offload=setup.offload,
        outputs=setup.outputs,
        early_stop="whole_recompute" not in switches,
        run=setup.run,
        decodes=setup.run == "training" or setup.generate > 1,
    )
    structure = applied(with_cache(with_stored(structure, model, setup), setup), setup, recipe)
    check_parts(structure)
    return structure, numbers | letters_of(structure, setup, numbers) | cache_letters(model, setup, numbers)


def ones_of_groups(model: Model) -> frozenset[str]:
    """Where queries, keys and values lie by groups, a group may have one query."""
    alone = model.kv_heads == model.heads > 0
    return frozenset({"a/k"} if alone else ())


SAVED = {"attention": ("flash", "efficient", "cudnn"), "mm": ("mm", "addmm"), "bmm": ("bmm",),
         "every-second-mm": ("every-second-mm",)}
"""What selective checkpointing can keep, and the operations behind each word."""


def kept_operations(setup: Setup) -> tuple[str, ...]:
    """The operations whose results selective checkpointing keeps. Errors: UnknownName."""
    if setup.checkpoint != "selective":
        return ()
    for word in setup.checkpoint_save:
        if word not in SAVED:
            raise UnknownName("operation for --checkpoint-save", word, SAVED)
    return tuple(op for word in setup.checkpoint_save for op in SAVED[word])


def check_code(model: Model, setup: Setup) -> None:
    """Refuse what the architecture's code does not have: LOSSES and RUNS, where it names them. Errors: Impossible."""
    from peakmem.architectures import code_of

    code = code_of(model.architecture, setup.implementation)
    dtype = PRECISIONS[setup.precision].weights
    if dtype not in getattr(code, "DTYPES", (dtype,)):
        raise Impossible(f"--precision {setup.precision}: {model.architecture} clamps its hidden states in {dtype}, "
                         f"which peakmem does not know; give one with weights in {' or '.join(code.DTYPES)}")
    if setup.checkpoint != "none" and not getattr(code, "CHECKPOINTS", True):
        raise Impossible(f"--checkpoint {setup.checkpoint}: transformers' {model.architecture} does not support it; "
                         "give none")
    refuse_unknown(code, model, setup)
    runs = getattr(code, "RUNS", (setup.run,))
    if setup.run not in runs and setup.implementation == "transformers":
        raise Impossible(f"--run {setup.run}: of {model.architecture} peakmem knows "
                         f"{f'--run {runs[0]}' if runs else 'parameters'} only")
    if setup.run not in runs:
        raise Impossible(f"--implementation {setup.implementation} has no --run {setup.run}; give transformers, or "
                         f"--run {' or '.join(code.RUNS)}")
    check_lengths(model, setup)
    known = getattr(code, "LOSSES", (setup.loss,))
    if setup.loss not in known and setup.run == "training":
        raise Impossible(f"--loss {setup.loss} goes with transformers' causal language models, not with "
                         f"{model.architecture} as --implementation {setup.implementation} has it; give "
                         f"{' or '.join(known)}")


def way_of_step(setup: Setup) -> str:
    """How the step runs: fused where the recipe has it so, else as asked, where the optimizer has that form.

    Without a wish, or where the optimizer lacks what is wished, its first form: PyTorch's default.
    """
    fused = fused_update(setup, PRECISIONS[setup.precision].fused_update)
    return find_optimizer(setup.optimizer).form("fused" if fused else setup.optimizer_implementation)


def stretches(model: Model, setup: Setup, kinds: tuple[str, ...],
              unfold: bool) -> tuple[tuple[Segment, ...], dict[str, int]]:
    """Layers as repeated stretches, and how often each is repeated; frozen layers are stretches of their own."""
    frozen = frozen_layers(model, setup)
    if unfold:
        return unfolded(model.layer_kinds or kinds * model.layers, frozen), {}
    apart = (setup.shard != "none" or setup.offload != "none" or setup.checkpoint != "none"
             or bool({"shared_inputs", "norms_after", "sees"} & model.switches))
    partly = bool(setup.freeze) or (setup.lora_rank > 0 and setup.lora_targets != ("all-linear",))
    if model.layer_kinds:
        before, after = runs_of(kinds[:frozen]), runs_of(kinds[frozen:])
    else:
        before, after = ([(kinds, times)] if times else [] for times in (frozen, model.layers - frozen))
    segments, counts = segments_of([*before, *after], apart, len(before), partly)
    if sum(len(s.kinds) * len(s.copies) for s in segments) > MOST_UNLIKE:
        raise Impossible(f"{model.name}: its {model.layers} layers do not repeat; peakmem takes at most {MOST_UNLIKE} "
                         "that differ from their neighbours")
    return segments, counts


def frozen_layers(model: Model, setup: Setup) -> int:
    """How many of the first layers are not trained. Errors: Impossible."""
    if setup.frozen_layers > model.layers:
        raise Impossible(f"--frozen-layers {setup.frozen_layers}: {model.name} has {counted(model.layers, 'layer')}")
    return setup.frozen_layers if setup.run == "training" else 0


def sizes_of(model: Model, setup: Setup) -> dict[str, Any]:
    """Every letter's number."""
    numbers: dict[str, Any] = {
        "b": setup.batch, "s": setup.sequence, "h": model.hidden, "a": model.heads, "k": model.kv_heads,
        "d": model.head_size, "f": model.feed_forward, "V": model.vocabulary,
        "P": model.positions if model.longest or model.image else positions_of(model, setup),
        "E": model.experts, "K": model.experts_per_token, "x": model.expert_feed_forward,
        "r": setup.lora_rank, "w": setup.gpus, "T": model.token_types, "W": model.window,
        "c": model.channels, "p": model.patch, "C": model.classes, "g": setup.generate,
        "u": model.rotary_size or model.head_size, "M": setup.accumulation,
        "A": 1 << model.heads.bit_length() - 1,
    }
    if setup.run == "inference":
        numbers |= {"be": setup.batch // setup.beams} | cached_tokens(model, setup)
    numbers |= loss_pieces(model, setup)
    numbers |= dict(model.sizes)
    numbers |= chosen_tokens(model, numbers) | compressed_tokens(model, numbers, setup)
    if "av" in numbers or "cm" in numbers:
        numbers["nc"] = -(-setup.sequence // numbers.get("cm", 64))
    if "encoder_decoder" in model.switches:
        numbers["t"] = target_of(setup)
    numbers |= letters_of_towers(model, setup)
    if model.image:
        patches = (model.image // model.patch) ** 2
        numbers = {"i": model.image, "N": patches} | numbers
        if not model.vocabulary and "words" not in model.sizes:
            numbers["s"] = patches + model.sizes.get("ct", 1)
    return numbers


def pieces_of(model: Model, setup: Setup, unfold: bool = False) -> int:
    """Chunks of 64 tokens in which the gated delta rule runs; without a graph one step is like another.

    Mamba's scan runs token by token: first, last and one that stands for those between.

    Errors: Impossible beyond `MOST_PIECES`.
    """
    if setup.loss == "pieces":
        return pieces_of_loss(setup)
    if "l" in model.sizes:
        return setup.sequence if unfold else min(setup.sequence, 3)
    if "av" not in model.sizes:
        return 1
    pieces = -(-setup.sequence // 64)
    if setup.run == "inference":
        return min(pieces, 2)
    if pieces > MOST_PIECES:
        raise Impossible(f"--sequence {setup.sequence}: transformers' own code of {model.architecture} trains in a "
                         f"loop over chunks of 64 tokens, of which peakmem takes at most {MOST_PIECES:,}; give "
                         f"{64 * MOST_PIECES:,} tokens or less")
    return pieces


MOST_PIECES = 512
"""Longest loop that is written down step by step."""


def loss_pieces(model: Model, setup: Setup) -> dict[str, int]:
    """How a loss that runs the head itself cuts the tokens: see estimate/fused_loss.py and chunked_loss.py.

    Errors: Impossible.
    """
    if setup.run == "inference":
        return {}
    if setup.loss == "chunked":
        if setup.sequence % setup.loss_chunks:
            raise Impossible(f"--loss-chunks {setup.loss_chunks} does not divide --sequence {setup.sequence}, as "
                             "torchtitan's chunked loss needs it")
        return {"j": setup.loss_chunks}
    if setup.loss != "fused":
        return {}
    tokens = setup.batch * setup.sequence
    wanted = -(-tokens // -(-model.vocabulary // model.hidden))
    rows = min(1 << (wanted - 1).bit_length(), tokens)
    pieces = -(-tokens // rows)
    return {"z": rows, "j": pieces, "m": pieces - 1}


def positions_of(model: Model, setup: Setup) -> int:
    """Rows of a position table that grows with the sequence."""
    return model.positions and model.positions + max(setup.sequence - model.positions, 0)


def kinds_of(model: Model) -> tuple[str, ...]:
    """The kind of every layer; one word where all are alike, however many."""
    return model.layer_kinds or ("sliding" if model.window else "full",)


def narrow_window(model: Model, setup: Setup) -> bool:
    """Whether the window hides tokens, as masking_utils.py sees it: a window as long as the sequence already does."""
    inside = setup.attention == "flash-package"  # it takes the window as a number
    return bool(model.window) and setup.sequence >= model.window and not inside
