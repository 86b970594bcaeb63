"""PyTorch's CUDA caching allocator, simulated: allocations and frees in, allocated and reserved bytes out.

    settings.py       the knobs of PYTORCH_CUDA_ALLOC_CONF and the GPU's capacity; how sizes are rounded
    blocks.py         a block, and the pool that finds, splits and merges free blocks
    expandable.py     segments that grow page by page (expandable_segments)
    simulation.py     the allocator: allocate, free, empty the cache, what happens when memory runs out
    out_of_memory.py  the message that PyTorch prints then
    layout.py         segments and their blocks, for a picture
    replay.py         a whole event list at once

Checked against the allocator of torch 2.13.0. Needs the standard library alone, and no GPU.
"""

from peakmem.allocator.layout import Piece, Segment
from peakmem.allocator.out_of_memory import OutOfMemory
from peakmem.allocator.replay import Level, Totals, replay
from peakmem.allocator.settings import Settings
from peakmem.allocator.simulation import Allocator

__all__ = ["Allocator", "Level", "OutOfMemory", "Piece", "Segment", "Settings", "Totals", "replay"]
