"""Names of GPUs as people and drivers write them, sizes with units, and what a table row must have."""

from __future__ import annotations

import pytest

from peakmem.errors import Impossible, PeakmemError, UnknownName
from peakmem.tables.device import CONTEXTS, LARGE, SMALL, WORKSPACES, context, cublas_workspace
from peakmem.tables.gpus import GPU, find_gpu, gpus

NAMES = {
    "H100": "H100 SXM 80GB",
    "H100-80GB": "H100 PCIe",
    "NVIDIA H100 80GB HBM3": "H100 PCIe",
    "H100 SXM5": "H100 SXM 80GB",
    "h100 nvl": "H100 NVL",
    "A100-80GB": "A100 SXM 80GB",
    "a100 80 gb": "A100 SXM 80GB",
    "A100-SXM4-40GB": "A100 SXM 40GB",
    "A100 40GB": "A100 PCIe 40GB",
    "NVIDIA A100-SXM4-80GB": "A100 SXM 80GB",
    "H200": "H200 SXM",
    "B200": "B200 SXM",
    "4090": "RTX 4090",
    "RTX 4090": "RTX 4090",
    "rtx4090": "RTX 4090",
    "NVIDIA GeForce RTX 4090": "RTX 4090",
    "3090 Ti": "RTX 3090 Ti",
    "3090": "RTX 3090",
    "4070": "RTX 4070",
    "4070 Ti SUPER": "RTX 4070 Ti SUPER",
    "L4": "L4",
    "L40": "L40",
    "L40S": "L40S",
    "T4": "T4",
    "Tesla T4": "T4",
    "V100-32GB": "V100 SXM2 32GB",
    "A10G": "A10G",
    "RTX 6000 Ada": "RTX 6000 Ada",
    "rtx pro 6000": "RTX PRO 6000 Blackwell",
    "A6000": "RTX A6000",
    "MI300X": "Instinct MI300X",
    "GH200": "GH200 96GB",
    "gb10": "GB10 (DGX Spark, unified)",
}


@pytest.mark.parametrize(("typed", "meant"), NAMES.items())
def test_names_that_people_type(typed: str, meant: str) -> None:
    assert find_gpu(typed).name == meant


@pytest.mark.parametrize("gpu", gpus(), ids=lambda g: g.name)
def test_every_row(gpu: GPU) -> None:
    assert find_gpu(gpu.name) == gpu
    assert gpu.source and gpu.vendor and 8 <= gpu.memory_gb <= 288
    for size in (gpu.torch_gib, gpu.smi_mib and gpu.smi_mib / 1024):
        # two devices of half the memory, or Apple's working set of two thirds: else within 8 % of what is sold
        if size and not gpu.name.startswith(("Instinct MI250", "Data Center GPU Max 1550", "Apple")):
            assert 0.915 < size / gpu.memory_gb < 1.025
    if gpu.torch_gib and gpu.smi_mib:
        # the driver keeps up to 1 GiB for itself; printed GiB have two digits
        assert -0.01 < gpu.smi_mib / 1024 - gpu.torch_gib < 1.0


def test_a_known_total_is_in_bytes() -> None:
    assert find_gpu("H100").capacity == round(79.19 * 2**30)
    assert find_gpu("L40").capacity is None and find_gpu("L40").sold == 48 * 10**9


@pytest.mark.parametrize("typed", ["A100", "V100", "6000", "H100 SXM 16GB or so"])
def test_different_memories_are_listed(typed: str) -> None:
    with pytest.raises(PeakmemError) as error:
        find_gpu(typed)
    if isinstance(error.value, Impossible):
        assert "GB)" in str(error.value)


def test_a_name_taken_for_another_is_said() -> None:
    assert find_gpu("H100").note == "H100 is taken as H100 SXM 80GB"
    assert find_gpu("RTX 4090").note == ""


@pytest.mark.parametrize(
    ("typed", "bytes_"),
    [
        ("24GiB", 24 * 2**30),
        ("24 gib", 24 * 2**30),
        ("24GB", 24 * 10**9),
        ("24 gb", 24 * 10**9),
        ("1.5TiB", 3 * 2**39),
        ("24576MiB", 24 * 2**30),
        ("24000000000B", 24 * 10**9),
        ("1e1GiB", 10 * 2**30),
        ("80gb", 80 * 10**9),
    ],
)
def test_sizes_with_a_unit(typed: str, bytes_: int) -> None:
    gpu = find_gpu(typed)
    assert gpu.capacity == bytes_ and "GiB" in gpu.note


@pytest.mark.parametrize(
    ("typed", "word"),
    [
        ("24", "24GiB"),
        ("80", "no unit"),
        ("24000", "24000MiB"),
        ("24G", "no unit"),
        ("nan", "not a number"),
        ("0GiB", "between"),
        ("-24GiB", "between"),
        ("nanGiB", "between"),
        ("infGB", "between"),
        ("1e30GB", "between"),
        ("1e400GB", "between"),
        ("0", "no unit"),
        ("-1", "no unit"),
        ("24..5GiB", "not a number"),
    ],
)
def test_sizes_that_are_none(typed: str, word: str) -> None:
    with pytest.raises(Impossible) as error:
        find_gpu(typed)
    assert word in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize(
    "typed", ["banana", "", "RTX", "--", "H1000", "\x1b[31m", "x" * 10**6, "²GB", "٣GiB", "24GiB24"]
)
def test_what_is_no_gpu(typed: str) -> None:
    with pytest.raises(UnknownName) as error:
        find_gpu(typed)
    assert str(error.value).isprintable() and len(str(error.value)) < 300


def test_did_you_mean() -> None:
    with pytest.raises(UnknownName, match="Did you mean 'RTX 5090'"):
        find_gpu("RTX 509")


@pytest.mark.parametrize(
    ("capability", "torch", "size"),
    [
        ("9.0", "2.13.0", LARGE),
        ("10.0", "2.13.0+cu128", LARGE),
        ("12.0", "2.13", LARGE),
        ("8.0", "2.13", SMALL),
        ("8.9", "2.13", SMALL),
        ("7.5", "2.13", SMALL),
        ("11.0", "2.13", SMALL),
        ("11.0", "2.14.1", LARGE),
        ("10.0", "2.11", SMALL),
        ("9.0", "2.0", LARGE),
        ("9.0", "2.15", 0),
        ("gfx942", "2.13", 128 * 2**20),
        ("gfx90a", "2.13", 32 * 2**20),
        ("", "2.13", SMALL),
    ],
)
def test_cublas_workspaces(capability: str, torch: str, size: int) -> None:
    assert cublas_workspace(capability, torch)[0] == size
    assert (SMALL, LARGE) == (8_519_680, 33_554_432)


def test_contexts() -> None:
    assert context(find_gpu("T4")).name == "small"
    assert context(find_gpu("4090")).name == "large"
    assert context(find_gpu("H200")).name == "data centre"
    assert context(find_gpu("B200")).name == "data centre Blackwell"
    assert context(find_gpu("24GiB")).name == context(None).name == "any"
    assert context(find_gpu("A100-80GB"), "1.10").name == "eager"
    for row in CONTEXTS.values():
        assert 0 < row.low < row.high < 2048 and row.source


def test_workspace_rows_are_in_order() -> None:
    assert [row.since for row in WORKSPACES] == sorted(row.since for row in WORKSPACES)


@pytest.mark.parametrize("text", ["9" * 5000, "1" * 5000 + "GiB", "0." + "1" * 90])
def test_a_size_of_thousands_of_digits_is_refused(text: str) -> None:
    with pytest.raises(Impossible, match="too long"):
        find_gpu(text)
