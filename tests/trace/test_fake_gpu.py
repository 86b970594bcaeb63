"""The fake GPU in the process that set it up."""

from __future__ import annotations

import subprocess
import sys

# What the interpreter does at its end, before C++ does: forget the module, and give its memory to others.
ENDS = """
import ctypes, gc
from peakmem.trace import fake_gpu
print(fake_gpu.set_up(fallback=False).device)
vars(fake_gpu).clear()
gc.collect()
others = [(ctypes.c_void_p * size)() for size in range(80, 120) for _ in range(200)]
"""


def test_a_process_with_a_fake_gpu_ends_as_any_other() -> None:
    done = subprocess.run([sys.executable, "-c", ENDS], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "cuda\n", "")
