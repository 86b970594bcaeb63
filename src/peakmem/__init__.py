"""peakmem: where the memory of a neural-network training step goes, before you rent the GPU."""

from peakmem.estimate import estimate
from peakmem.ledger import Ledger
from peakmem.model import Model
from peakmem.setup import Setup
from peakmem.version import __version__

__all__ = ["Ledger", "Model", "Setup", "__version__", "estimate"]
