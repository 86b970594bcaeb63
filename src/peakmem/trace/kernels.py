"""Kernel choice for the fake GPU: the table that the estimate reads too."""

from peakmem.tables.kernels import GPU, RULES, Attention, choose, order, refusals

__all__ = ["GPU", "RULES", "Attention", "choose", "order", "refusals"]
