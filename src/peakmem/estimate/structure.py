"""What changes the tape, as opposed to what only changes its numbers.

A `Structure` is everything that forward code may ask about: switches of the architecture, which dimensions are
one, which attention kernel runs, which levers are on. It holds no size, so one tape serves every batch,
sequence and width; and it is hashable, so that a tape is made once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from peakmem.estimate.tape import Block, Tensor, current, scope
from peakmem.immutable import immutable, replace
from peakmem.tables.quantised import Stored

MOST_UNLIKE = 512  # layers that are interpreted one by one: keeps every answer within seconds


@immutable
class Segment:
    """A stretch of equal layers, or of equal groups of layers.

    kinds: the layers of one repetition; letter: how many repetitions; copies: which of them are interpreted:
    `first` and `second` (each alone), `body` (all others but a last), `last`.
    """

    kinds: tuple[str, ...]
    letter: str
    copies: tuple[str, ...] = ("first", "body")
    frozen: bool = False  # none of its parameters is trained

    def count(self, copy: str) -> str:
        """How often this copy stands for a repetition, as a letter; empty: once."""
        if copy != "body":
            return ""
        return f"{self.letter}-{len(self.copies) - 1}"


@immutable
class Tower:
    """What a tower beside the main one has of its own."""

    name: str
    kernel: str
    activation: str
    switches: frozenset[str]
    dropouts: frozenset[str]


@immutable
class Structure:
    """One kind of run of one kind of model. Equal structures have equal tapes."""

    architecture: str
    implementation: str = "transformers"
    switches: frozenset[str] = frozenset()
    segments: tuple[Segment, ...] = ()
    ones: frozenset[str] = frozenset()  # letters whose value is one
    counts: tuple[tuple[str, int], ...] = ()  # letters that say how many modules a layer has of a kind
    activation: str = "silu"
    towers: tuple[Tower, ...] = ()
    dtype: str = "bf16"  # of the module
    autocast: str = ""
    kernels: tuple[tuple[str, str], ...] = ()  # attention kernel of each kind of layer
    dropouts: frozenset[str] = frozenset()  # which dropout probabilities are above zero
    checkpoint: str = "none"
    checkpoint_save: tuple[str, ...] = ()
    early_stop: bool = True
    lora: tuple[str, ...] = ()  # patterns of the modules that get adapters
    frozen: tuple[str, ...] = ()  # patterns of the parameters that are not trained
    pieces: int = 1  # how often a loop over parts of the sequence runs, where its steps differ in what they keep
    loss: str = "upcast"
    loss_chunks: str = ""  # "one" | "two" | "many" where the loss runs by pieces
    micro_batches: int = 1  # 2, or 3 where the last differs, stands for any larger number
    optimizer: str = "adamw"
    optimizer_implementation: str = "foreach"
    master: str = ""  # dtype of the master weights, if there are any
    state_dtype: str = ""
    gradient_buffer: str = ""  # dtype of a resident gradient buffer, if there is one
    step: str = "steady"
    set_to_none: bool = True
    clip: bool = False
    shard: str = "none"
    shard_dtype: str = ""  # of the shards of trained parameters, where it is not the module's: a policy's
    reduce_dtype: str = ""  # in which gradients are added up, where it is not their own
    reshard: str = "layers"
    sync_each_batch: bool = True
    offload: str = "none"
    outputs: str = "dropped"  # what the caller still holds of the step before
    run: str = "training"
    cache: str = "concatenated"
    cache_bits: int = 16
    chunked: bool = False  # the prompt runs in pieces
    decodes: bool = True  # more than one token is generated: the first one comes from the prompt's forward
    stored: Stored = Stored()  # how linear weights lie in memory, where they are quantised

    @property
    def buffer_dtype(self) -> str:
        """Of buffers in the module's dtype: FSDP2's policy casts parameters and inputs alone."""
        return self.shard_dtype or self.dtype

    def has(self, switch: str) -> bool:
        """Whether the architecture's switch is on."""
        return switch in self.switches

    def number(self, letter: str) -> int:
        """How many modules of a kind a layer has, where each is one of its own: see `counts`."""
        return dict(self.counts)[letter]

    def drops(self, kind: str) -> bool:
        """Whether this dropout runs: `attention`, `hidden`, `embedding`, `activation`, or `path`, which leaves
        blocks out."""
        return kind in self.dropouts

    def kernel(self, kind: str = "full") -> str:
        """The attention kernel of this kind of layer."""
        return dict(self.kernels)[kind]

    def kinds(self) -> frozenset[str]:
        """Every kind of layer that occurs."""
        return frozenset(kind for segment in self.segments for kind in segment.kinds)

    def is_frozen(self, layer: str) -> bool:
        """Whether a layer, by its key from `copies`, is one of the frozen first ones."""
        return bool(layer) and self.segments[int(layer.partition(".")[0])].frozen

    def tower(self, name: str) -> Structure:
        """The same run as one tower sees it: its own attention kernel, activation, dropouts and switches."""
        for t in self.towers:
            if t.name == name:
                kernels = tuple((kind, t.kernel) for kind, _ in self.kernels)
                switches = t.switches | {"odd_patches"} & self.switches
                return replace(self, kernels=kernels, activation=t.activation, switches=switches, dropouts=t.dropouts)
        return self

    def stack(self, name: str) -> Iterator[tuple[int, Segment]]:
        """The stretches of one stack of layers, numbered: those whose kinds begin with its name; "": all.

        Where there are towers, every other stack is the rest.
        """
        return ((i, segment) for i, segment in enumerate(self.segments) if self.is_in(name, segment.kinds[0]))

    def is_in(self, stack: str, kind: str) -> bool:
        """Whether layers of this kind belong to a stack."""
        towers = tuple(t.name for t in self.towers)
        return kind.startswith(stack) if stack in towers or not towers else not kind.startswith(towers)

    def copies(self, stack: str = "") -> Iterator[tuple[str, str, str]]:
        """Every interpreted layer of a stack: its key, its kind, how often it stands for one."""
        for i, segment in self.stack(stack):
            for copy in segment.copies:
                for j, kind in enumerate(segment.kinds):
                    yield f"{i}.{copy}.{j}:", kind, segment.count(copy)

    def layers(self, name: str, stack: str = "") -> Iterator[str]:
        """Run the layers of a stack: yields the kind of each inside its scope, repeated ones inside their fold."""
        tape = current()
        for i, segment in self.stack(stack):
            path = f"{tape.scope}.{name}" if tape.scope else name
            tape.stacks.setdefault(path, tuple(self.segments[j] for j in sorted(tape.ran) if j < i))
            tape.ran[i] = segment
            for copy in segment.copies:
                with tape.repeated(segment.count(copy)):
                    for j, kind in enumerate(segment.kinds):
                        outer, tape.layer = tape.layer, f"{i}.{copy}.{j}:"
                        tape.events.append(Block(True))
                        tape.layer_kind = kind
                        with scope(f"{name}.*"):
                            yield kind
                        tape.events.append(Block(False))
                        tape.layer = outer


    def kind_of(self, layer: str) -> str:
        """The kind of a layer, by its key from `copies`."""
        segment, _, place = layer.partition(":")[0].split(".")
        return self.segments[int(segment)].kinds[int(place)]

    def decoding(self, step: str) -> Structure:
        """The same run while one token is decoded: `step` is 1 for the first, 2 for the last."""
        changing = {"odd_target"} if self.has("encoder_decoder") else {"narrow_window", "odd_sequence", "odd_window"}
        kept = {switch for switch in self.switches if switch not in changing}
        kernels = {**dict(self.kernels), **{kind.removesuffix(f" {step}"): kernel for kind, kernel in self.kernels
                                            if kind.endswith(f" {step}")}}
        return replace(self, switches=frozenset(kept | {s for s in changing if f"{s}_{step}" in kept}),
                       kernels=tuple(kernels.items()))

    def layer(self, body: Callable[..., Tensor], *inputs: object) -> Tensor:
        """Run one layer the way the levers want it."""
        wrap = current().wrap
        return self.inside(body, *inputs) if wrap is None else wrap(partial(self.inside, body), *inputs)

    def both(self, body: Callable[..., tuple[Tensor, Any]], *inputs: object) -> tuple[Tensor, Any]:
        """Run a layer that also hands something else out, such as its attention's probabilities.

        A later run of it keeps none.
        """
        second: list[Any] = [None]

        def first(m: Structure, *inputs: object) -> Tensor:
            x, other = body(m, *inputs)
            if second:
                second[0] = other
            return x

        return self.layer(first, *inputs), second.pop()

    def inside(self, body: Callable[..., Tensor], *inputs: object) -> Tensor:
        """A layer's forward, recomputed where that is wanted."""
        tape = current()
        if self.checkpoint == "none":
            return body(self, *inputs)
        from peakmem.estimate.recompute import checkpointed

        return checkpointed(tape, body, (self, *inputs), self.early_stop, self.checkpoint_save)


def unfolded(kinds: tuple[str, ...], frozen: int = 0) -> tuple[Segment, ...]:
    """Every layer interpreted by itself; the first ones may be frozen."""
    return tuple(Segment((kind,), "1", ("first",), i < frozen) for i, kind in enumerate(kinds))


def runs_of(kinds: tuple[str, ...]) -> list[tuple[tuple[str, ...], int]]:
    """Patterns that follow each other, and how often each is repeated."""
    runs: list[tuple[tuple[str, ...], int]] = []
    while kinds and len(runs) <= MOST_UNLIKE:
        pattern, times = best_period(kinds)
        runs.append((pattern, times))
        kinds = kinds[len(pattern) * times:]
    return runs


def segments_of(runs: list[tuple[tuple[str, ...], int]], apart: bool, frozen: int = 0,
                partly: bool = False) -> tuple[tuple[Segment, ...], dict[str, int]]:
    """Stretches from patterns and how often each is repeated; a copy that would stand for nothing is left out.

    frozen: how many of the first stretches are not trained. partly: not all parameters are trained, so the first
    layer may keep less than the others, and what all share goes with the second one's backward.
    """
    wanted = ("first", *(("second",) if partly else ()), "body", *(("last",) if apart else ()))
    segments, counts = [], {}
    for i, (pattern, times) in enumerate(runs):
        letter = "n" if len(runs) == 1 and len(pattern) == 1 else f"n{i + 1}"
        copies = wanted if times >= len(wanted) else tuple(copy for copy in wanted if copy != "body")[:times]
        segments.append(Segment(pattern, letter, copies, i < frozen))
        counts[letter] = times
    return tuple(segments), counts


def best_period(kinds: tuple[str, ...]) -> tuple[tuple[str, ...], int]:
    """The pattern at the start that, repeated, covers most; the shortest of those."""
    best, covered = (kinds[:1], 1), 1
    for period in range(1, min(len(kinds) // 2, 12) + 1):
        times = 1
        while kinds[times * period:(times + 1) * period] == kinds[:period]:
            times += 1
        if times > 1 and period * times > covered:
            best, covered = (kinds[:period], times), period * times
    return best if covered > 1 else (kinds[:1], 1)
