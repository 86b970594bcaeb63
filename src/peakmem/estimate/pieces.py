"""How often a loss that goes through the tokens by pieces does so, where every piece is written down."""

from __future__ import annotations

from peakmem.errors import Impossible
from peakmem.setup import Setup

CHUNK, MOST = 128, 512


def pieces_of_loss(setup: Setup) -> int:
    """LitGPT's chunks of 128: of each sequence with LoRA, else of all rows. Errors: Impossible beyond `MOST`."""
    rows = setup.sequence if setup.lora_rank else setup.batch * (setup.sequence - 1)
    pieces = max(-(-rows // CHUNK), 1)
    if pieces > MOST:
        raise Impossible(f"--loss pieces: {rows:,} tokens are more than {MOST} pieces of {CHUNK}; give fewer")
    return pieces
