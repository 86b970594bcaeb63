"""Out-of-memory messages of every version: read as they are printed, and what they mean."""

from __future__ import annotations

import time

import pytest

from peakmem import estimate
from peakmem.allocator.out_of_memory import OutOfMemory, human
from peakmem.errors import Unreadable
from peakmem.measured.out_of_memory import read_message
from peakmem.plan.diagnose import diagnose, diagnose_run
from peakmem.tables.models import find_model

GIB, MIB = 2**30, 2**20
# Sizes as in public reports: pytorch 16417 and 35901, kaito 976, IP-Adapter 442, taggui 188, AP-PA 3, TheRock 2118.
SEEN = {
    "1.0": ("RuntimeError: CUDA out of memory. Tried to allocate 12.50 MiB (GPU 0; 10.92 GiB total capacity; 8.57 MiB "
            "already allocated; 9.28 GiB free; 4.68 MiB cached)", 12.5 * MIB, 10.92 * GIB, 8.57 * MIB, 13.25 * MIB),
    "1.13": ("CUDA out of memory. Tried to allocate 2.81 GiB (GPU 0; 23.69 GiB total capacity; 16.12 GiB already "
             "allocated; 374.94 MiB free; 19.00 GiB reserved in total by PyTorch) If reserved memory is >> allocated "
             "memory try setting max_split_size_mb to avoid fragmentation.", 2.81 * GIB, 23.69 * GIB, 16.12 * GIB,
             19 * GIB),
    "2.1": ("CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacty of 4.00 GiB of which 2.35 GiB "
            "is free. Of the allocated memory 825.15 MiB is allocated by PyTorch, and 24.85 MiB is reserved by PyTorch "
            "but unallocated. If reserved but unallocated memory is large try setting max_split_size_mb",
            20 * MIB, 4 * GIB,
            825.15 * MIB, 850 * MIB),
    "2.3": ("CUDA out of memory. Tried to allocate 26.00 MiB. GPU 1 has a total capacity of 23.62 GiB of which 15.88 "
            "MiB is free. Including non-PyTorch memory, this process has 23.41 GiB memory in use. Of the allocated "
            "memory 22.53 GiB is allocated by PyTorch, and 430.38 MiB is reserved by PyTorch but unallocated.",
            26 * MIB, 23.62 * GIB,
            22.53 * GIB, 22.53 * GIB + 430.38 * MIB),
    "container": ("CUDA out of memory. Tried to allocate 546.00 MiB. GPU 0 has a total capacity of 15.77 GiB of which "
                  "514.19 MiB is free. Process 562167 has 15.25 GiB memory in use. Of the allocated memory 13.73 GiB "
                  "is allocated by PyTorch, with 46.00 MiB allocated in private pools (e.g., CUDA Graphs), and 736.86 "
                  "MiB is reserved by PyTorch but unallocated.", 546 * MIB, 15.77 * GIB,
                  13.73 * GIB, 13.73 * GIB + 736.86 * MIB),
    "HIP": ("torch.OutOfMemoryError: HIP out of memory. Tried to allocate 2.00 MiB. GPU 0 has a total capacity of "
            "287.98 GiB of which 275.86 GiB is free. 1.05 GiB allowed; Of the allocated memory 1017.01 MiB is "
            "allocated by PyTorch, with 17.00 MiB allocated in private pools (e.g., HIP Graphs), and 54.99 MiB is "
            "reserved by PyTorch but unallocated.", 2 * MIB, 287.98 * GIB, 1017.01 * MIB, 1072 * MIB),
}


@pytest.mark.parametrize("version", SEEN)
def test_every_version_is_read(version: str) -> None:
    text, tried, capacity, allocated, reserved = SEEN[version]
    for written in (text, "\n".join(f"[rank3]: {part}" for part in text.replace(". ", ".\n").split("\n"))):
        found = read_message(f"Traceback …\n{written}\nmore")
        assert found.tried == round(tried) and found.capacity == round(capacity) and found.allocated == round(allocated)
        assert abs(found.reserved - reserved) < 2**10


def test_who_holds_what_in_a_container_and_beside_others() -> None:
    alone = read_message(SEEN["container"][0])
    assert alone.used == round(15.25 * GIB) and alone.processes == () and 0.75 < (alone.own or 0) / GIB < 0.85
    text = SEEN["2.3"][0].replace("Including", "Process 7 has 1.25 GiB memory in use. Including").replace(
        "has 23.41", "has 22.10").replace("22.53", "21.22")
    shared = read_message(text)
    assert shared.processes == (round(1.25 * GIB),) and abs((shared.foreign or 0) - 1.5 * GIB) < 20 * MIB


@pytest.mark.parametrize("more", [{}, {"allowed": 75 * GIB}])
def test_what_the_simulated_allocator_says_is_read_back(more: dict[str, int]) -> None:
    said = OutOfMemory(requested=3 * GIB, tried=3 * GIB, capacity=80 * GIB, free=GIB, outside=GIB // 2,
                       **{"allowed": None, **more}, allocated=70 * GIB, reserved=77 * GIB, device=5)
    found = read_message(str(said))
    assert (found.tried, found.capacity, found.free, found.allocated, found.reserved, found.allowed, found.device,
            found.own) == (said.tried, said.capacity, said.free, said.allocated, said.reserved, said.allowed, 5,
                           GIB // 2)


def test_exact_sizes_and_the_phase_come_from_what_stands_before() -> None:
    said = str(OutOfMemory(3 * 10**9, 3_001_024_512, 80 * GIB, GIB // 2, GIB, None, 70 * GIB, 78 * GIB))
    log = ("memory allocation failed with OOM on device 0 while trying to allocate 3001024512 bytes (free: "
           "536870912, total: "
           '85899345920)\n  File "/a/torch/nn/modules/module.py", line 9, in _call_impl\n  File "/a/torch/autograd/'
           '__init__.py", line 3, in backward\n')
    assert read_message(log + said).tried == 3_001_024_512 and read_message(log + said).phase == "backward"
    assert read_message(log.split("\n")[0] + said).phase == ""
    assert read_message(said).tried != 3_001_024_512


@pytest.mark.parametrize(("version", "cause"), [
    ("1.0", "limit"), ("1.13", "pieces"), ("2.1", "limit"), ("2.3", "pieces"), ("container", "pieces"),
    ("HIP", "limit")])
def test_the_cause(version: str, cause: str) -> None:
    found = diagnose(read_message(SEEN[version][0]))
    assert found.findings[0].about == cause and found.advice


def test_full_and_shared_gpus() -> None:
    full = diagnose(read_message(SEEN["container"][0].replace("546.00 MiB", "3.00 GiB")))
    assert full.findings[0].about == "capacity" and "fragmentation is not the cause" in full.findings[0].text
    assert not any(one.about == "others" for one in full.findings)
    other = diagnose(read_message("CUDA out of memory. Tried to allocate 384.00 MiB (GPU 0; 14.76 GiB total capacity; "
                                  "11.04 GiB already allocated; 259.75 MiB free; 11.10 GiB reserved in total by "
                                  "PyTorch)"))
    assert "others" in [one.about for one in other.findings] and "nvidia-smi" in other.advice[0]
    whole = diagnose(read_message(SEEN["1.13"][0].replace("2.81 GiB", "55.57 GiB")))
    assert "more than the whole GPU" in whole.findings[0].text


def test_the_gpu_by_its_capacity() -> None:
    at = ("CUDA out of memory. Tried to allocate 1.00 GiB (GPU 0; {} GiB total capacity; 1.00 GiB already allocated; 0 "
          "bytes free; 2.00 GiB reserved in total by PyTorch)")
    assert diagnose(read_message(at.format("23.64"))).gpu == "RTX 4090"
    assert diagnose(read_message(at.format("79.15"))).gpu == "79.15GiB"  # two A100s print it
    assert diagnose(read_message(at.format("79.15")), gpu="A100 PCIe 80GB").gpu == "A100 PCIe 80GB"
    assert diagnose(read_message(at.format("79.15")), gpu="RTX 4090").gpu == "79.15GiB"
    assert diagnose(read_message(at.format("17.31"))).gpu == "17.31GiB"


def test_the_tensor_that_was_asked_for() -> None:
    """Every line of more than 10 MiB is found by the message that its request would be."""
    run = {"sequence": 1536, "batch": 3, "attention": "eager"}
    ledger = estimate("qwen2.5-0.5b", gpu="RTX 4090", **run)
    large = [line for line in ledger.lines if line.bytes > 20 * MIB]
    assert len({line.bytes for line in large}) > 3
    for line in large:
        size = -(-line.bytes // (2 * MIB)) * 2 * MIB
        said = OutOfMemory(line.bytes, size, round(23.64 * GIB), 0, GIB // 2, None, 22 * GIB, 23 * GIB)
        found = diagnose_run(str(said), find_model("qwen2.5-0.5b"), run) if line is large[0] else diagnose(
            read_message(str(said)), ledger)
        assert line.name in found.suspects and found.gpu == "RTX 4090"
        assert set(found.suspects) == {other.name for other in ledger.lines
                                       if human(size) == human(-(-other.bytes // (2 * MIB)) * 2 * MIB)}
    small = diagnose(read_message(SEEN["2.1"][0]), ledger)
    assert small.suspects == () and "any tensor of up to 10 MiB" in small.findings[-1].text
    none = diagnose(read_message(SEEN["1.13"][0]), ledger)
    assert "No tensor of these settings" in none.findings[-1].text and "The nearest is" in none.findings[-1].text


@pytest.mark.parametrize(("text", "word"), [
    ("", "no out-of-memory message"), ("hello", "no out-of-memory message"), ("x" * (2**20 + 1), "longer"),
    ("CUDA out of memory. Tried to allocate 2.81 GiB (GPU 0; 23.69 GiB", "cut"),
    ("MPS backend out of memory (MPS allocated: 1 GB)", "MPS"),
    ("OOM: trying to allocate 4.42GiB with BFC", "no message of PyTorch"),
    (SEEN["1.13"][0].replace("16.12", "99.12"), "contradicts"), (SEEN["1.13"][0].replace("23.69", "0"), "contradicts"),
    (SEEN["1.13"][0].replace("2.81", "9" * 400), "cut"), ("\0\ud800\u202e" * 50, "no out-of-memory message")])
def test_other_texts_are_refused_in_a_line(text: str, word: str) -> None:
    with pytest.raises(Unreadable, match=word) as error:
        read_message(text)
    assert "\n" not in str(error.value) and len(str(error.value)) < 250


@pytest.mark.parametrize("part", ["CUDA out of memory. Tried to allocate ", "Process 1 has 1.00 GiB memory in use. ",
                                  "1.00 GiB " * 9, '  File "a", line 1, in b\n', SEEN["2.3"][0][:-30], "[rank0]: \n"])
def test_a_megabyte_of_anything_is_read_at_once(part: str) -> None:
    began = time.perf_counter()
    with pytest.raises(Unreadable):
        read_message((SEEN["2.3"][0][:140] + part * 2**20)[: 2**20])
    assert time.perf_counter() - began < 2
