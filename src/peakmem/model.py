"""What is trained or served, as dimensions: a `Model` says nothing of how."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from peakmem.immutable import field, immutable, replace

if TYPE_CHECKING:
    from pathlib import Path



@immutable
class Model:
    """The dimensions of one network and the switches of its architecture.

    Sizes are counts (tokens, rows, channels), never bytes. A size that the architecture does not have is 0.
    Errors: `check` raises Impossible when two sizes contradict each other.
    """

    name: str  # what the user called it
    architecture: str  # a key of architectures.ARCHITECTURES
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_size: int
    feed_forward: int  # of the dense layers; of an expert where all layers are experts
    vocabulary: int = 0
    positions: int = 0  # rows of a learned position table (OPT has two more than positions)
    longest: int = 0  # tokens that the position table allows; 0: it grows with the sequence, or there is none
    tied: bool = False  # the head is the embedding matrix
    activation: str = "silu"
    window: int = 0  # sliding attention window in tokens; 0: none
    layer_kinds: tuple[str, ...] = ()  # "full" | "sliding" | "dense" | "moe" … of each layer; (): all alike
    experts: int = 0
    experts_per_token: int = 0
    expert_feed_forward: int = 0
    rotary_size: int = 0  # how much of a head is rotated; 0: all or none, as the architecture has it
    token_types: int = 0
    image: int = 0  # side in pixels
    patch: int = 0
    channels: int = 0
    classes: int = 0
    embedding_dropout: float = 0.0
    attention_dropout: float = 0.0
    hidden_dropout: float = 0.0
    activation_dropout: float = 0.0  # inside the feed-forward
    switches: frozenset[str] = frozenset()  # "attention_bias", "parallel_residual", … : see each architecture
    sizes: Mapping[str, int] = field(default_factory=dict, hash=False)  # letters only this architecture has
    stored: tuple[str, int, int, tuple[tuple[str, bool], ...]] | None = None
    """How the file stores linear weights: scheme, bits, group, and patterns of what it leaves out, each with whether
    it holds in every layer. None: not quantised."""
    towers: tuple[Model, ...] = ()  # what runs before or beside it, such as a tower for pictures; by name
    source: str = ""  # where the dimensions come from
    notes: tuple[str, ...] = ()  # what was assumed or ignored while reading
    in_file: int = 0  # elements of the weights beside the configuration, where none is packed; 0: not known

    @staticmethod
    def read(path: str | Path) -> Model:
        """A model from a config.json or from a folder that holds one.

        Errors: Unreadable when the file is no such thing, UnknownName for an unknown architecture,
        Impossible when its sizes contradict each other.
        """
        from peakmem.readers import read_model

        return read_model(path)

    def changed(self, **sizes: Any) -> Model:
        """The same architecture with other dimensions."""
        return replace(self, **sizes)
