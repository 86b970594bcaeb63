"""An out-of-memory message on the page: pasted anywhere, read by the engine, and what it does to the rest."""

from __future__ import annotations

import json
from typing import Any

import pytest

from peakmem.web.answer import estimate_json
from tests.web.conftest import START, until

# 3,072 tokens of logits in fp32: 4·1·3072·128256 bytes are 1503 MiB, for which 1504 are asked
MESSAGE = ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.47 GiB. GPU 0 has a total capacity of "
           "23.64 GiB of which 1.12 GiB is free. Process 4242 has 3.00 GiB memory in use. Including non-PyTorch "
           "memory, this process has 19.50 GiB memory in use. Of the allocated memory 18.20 GiB is allocated by "
           "PyTorch, and 0.90 GiB is reserved by PyTorch but unallocated.")
PASTE = """(text) => { const data = new DataTransfer(); data.setData("text/plain", text);
document.body.dispatchEvent(new ClipboardEvent("paste", { clipboardData: data, bubbles: true, cancelable: true })); }"""
READY = "document.querySelector('.findings')"


def test_pasted_anywhere_it_is_read_and_taken(opened: Any, address: str) -> None:
    page = opened(address + START + "&sequence=3072&precision=bf16&lora_rank=16")
    page.evaluate(PASTE, MESSAGE)
    until(page, READY)
    until(page, "document.querySelector('form.form [name=gpu]').value === 'RTX 4090'")
    until(page, "document.querySelector('.fits').textContent.includes('RTX 4090')")
    words = page.inner_text(".findings")
    assert "Other processes hold 3.02 GiB" in words and "Fragmentation had a part" in words
    assert "log-probabilities" in words and "4·b·s·V = 4·1·3072·128256" in words
    assert page.evaluate("document.activeElement.name") == "message"
    assert [page.input_value(f"[name=measured-{name}]") for name in ("allocated", "reserved", "device")] == [
        "18.20", "19.10", "19.50"]
    assert "18.20 GiB" in page.inner_text(".check-bars")
    found = json.loads(estimate_json(json.dumps({
        "ask": "diagnose", "message": MESSAGE, "model": "llama-3.1-8b",
        "settings": {"sequence": 3072, "precision": "bf16", "lora_rank": 16, "gpu": "RTX 4090"}})))
    assert all(one["text"] in words for one in found["findings"])


def test_it_follows_the_settings_and_leaves_the_gpu_to_the_reader(page: Any) -> None:
    page.fill("[name=message]", MESSAGE.replace("23.64", "79.17"))
    until(page, READY)
    until(page, "document.querySelector('form.form [name=gpu]').value === 'H100 SXM 80GB'")
    page.locator("#oom button", has_text="A100 PCIe 80GB").click()
    until(page, "document.querySelector('form.form [name=gpu]').value === 'A100 PCIe 80GB'")
    until(page, "document.querySelector('#oom button[aria-pressed=true]')?.textContent === 'A100 PCIe 80GB'")
    page.fill("form.form [name=sequence]", "3072")
    until(page, "document.querySelector('.findings').textContent.includes('4·1·3072·128256')")
    page.fill("[name=message]", "")
    until(page, "!document.querySelector('.findings')")
    assert page.input_value("[name=measured-allocated]") == ""


def test_by_its_button_and_on_a_phone(opened: Any, address: str) -> None:
    page = opened(address + START, viewport={"width": 320, "height": 700})
    page.locator(".doors a", has_text="Out of memory").click()
    page.get_by_role("button", name="Show an example").click()
    until(page, READY)
    assert page.evaluate("document.documentElement.scrollWidth") <= 320
    assert "1,050,673,152 bytes" in page.inner_text(".findings")


@pytest.mark.parametrize("text", [
    "hello", "<img src=x onerror=alert(1)>", "CUDA out of memory. Tried to allocate <b>9 GiB</b>", "\u202e\0" * 99,
    MESSAGE.replace("23.64 GiB", "<script>document.title='x'</script> GiB"),
    "Process 1 has 1.00 GiB memory in use. " * 9999,
    "x" * 1_100_000, "x" * 1_100_000 + "CUDA out of memory. Tried"])
def test_hostile_text_is_refused_in_one_line(page: Any, text: str) -> None:
    title = page.title()
    page.evaluate("""(text) => { const box = document.querySelector('[name=message]'); box.value = text;
        box.dispatchEvent(new Event('input')); }""", text)
    until(page, "document.querySelector('.diagnosis .bad')")
    said = page.inner_text(".diagnosis .bad")
    assert len(said) < 300 and "\n" not in said and page.locator(".diagnosis :is(img, script, b)").count() == 0
    assert page.title() == title and page.get_attribute("[name=message]", "aria-invalid") == "true"


def test_text_that_is_no_message_is_pasted_as_ever(page: Any) -> None:
    page.evaluate(PASTE, "just words")
    assert page.input_value("[name=message]") == ""
