"""Tracing a real PyTorch module and optimizer on a fake GPU: every allocation of a step, without the memory.

Needs torch. Import the submodule you use; nothing is imported here, so that ``import peakmem`` stays free of torch.
"""
