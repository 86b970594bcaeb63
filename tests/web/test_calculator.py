"""The calculator: every control changes what it should, and what is drawn is what the engine said."""

from __future__ import annotations

import csv
import json
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import peakmem
from peakmem.setup import FIELDS
from peakmem.web.answer import estimate_json
from peakmem.web.link import from_url
from tests.web.conftest import START, choose, until

OTHER: dict[str, Any] = {
    "sequence": "4096", "batch": "3", "optimizer": "lion", "gpu": "H200 SXM", "gpus": "8", "lora_rank": "8",
    "shard": "fsdp2", "checkpoint_save": "mm", "dropout": "0.1", "lora_dropout": "0.1", "lora_targets": "q_proj",
    "freeze": "embed_tokens",
    "images": "0", "generate": "32", "kv_bits": "8", "utilization": "0.8",
}
"""What a setting is changed to where the last of its choices, or one more, would not do."""
NEEDS = {
    "lora_targets": "lora_rank=8", "lora_dropout": "lora_rank=8", "checkpoint_save": "checkpoint=selective",
    "loss_chunks": "loss=chunked", "kbit_prepare": "precision=bf16&weights=nf4&lora_rank=8",
    "weights": "precision=bf16&lora_rank=8", "images": "model=llava-1.5-7b",
    **dict.fromkeys(("image_height", "image_width"), "model=qwen3-vl-4b"),
    "target": "model=t5-small", "reshard": "shard=fsdp2&gpus=8", "sync_each_batch": "shard=fsdp2&gpus=8",
    "reduce_dtype": "shard=fsdp2&gpus=8", "reduce_bucket": "shard=zero2&gpus=8",
    "block_size": "run=inference&kv_cache=paged", "utilization": "run=inference&kv_cache=paged",
    **dict.fromkeys(("logits", "kv_cache", "kv_bits", "beams", "prefill_chunk", "generate", "tensor_parallel"),
                    "run=inference"),
}
"""What must be set for a setting to mean something; else its control cannot be touched."""


def other(name: str, refused: Mapping[str, str]) -> Any:
    """A value that is not the default, and that this run has room for."""
    row = FIELDS[name]
    if name in OTHER:
        return OTHER[name]
    if row["type"] is bool:
        return not row["default"]
    if row["type"] in (int, float):
        return str(min(row["most"], row["default"] + 1))
    return next(choice for choice in reversed(row["choices"]) if choice != row["default"] and choice not in refused)


def drawn(page: Any) -> dict[str, dict[str, int]]:
    """Bytes of the chart's segments by moment and kind."""
    found: dict[str, dict[str, int]] = {}
    for moment, kind, size in page.eval_on_selector_all(
            ".picture rect.seg", "all => all.map((x) => [x.dataset.moment, x.dataset.kind, Number(x.dataset.bytes)])"):
        found.setdefault(moment, {})[kind] = size
    return found


def said(request: dict[str, Any]) -> dict[str, dict[str, int]]:
    chart = json.loads(estimate_json(json.dumps(request)))["ledger"]["chart"]
    return {row["moment"]: {kind: size for kind, size in row["peak_by_kind"].items() if size} for row in chart}


def settle(page: Any) -> None:
    """Wait for the answer to the last change."""
    until(page, "!('busy' in document.documentElement.dataset)")
    page.wait_for_timeout(260)  # the address line follows


@pytest.mark.parametrize("name", list(FIELDS))
def test_every_setting_is_asked_for(opened: Any, address: str, name: str) -> None:
    need = NEEDS.get(name, "")
    link = (START if "model=" not in need else START.replace("model=llama-3.1-8b&", "")) + f"&{need}".rstrip("&")
    asked = json.dumps({**from_url(link), "ask": "refused"})
    wanted = other(name, json.loads(estimate_json(asked))["refused"].get(name, {}))
    page = opened(address + link)
    settle(page)
    page.eval_on_selector_all("details", "all => all.forEach((one) => { one.open = true; })")
    control = page.locator(f"form.form [name={name}]").first
    if name == "run":
        page.check("form.form [name=run][value=inference]")
    elif isinstance(wanted, bool):
        control.set_checked(wanted)
    elif control.evaluate("x => x.tagName") == "SELECT":
        control.select_option(wanted)
    else:
        control.fill(wanted)
        control.press("Tab")
    settle(page)
    request = from_url(page.evaluate("location.hash"))
    assert str(request["settings"][name]).lower() == str(wanted).lower()
    answer = json.loads(estimate_json(json.dumps(request)))
    if "error" in answer:
        shown = page.inner_text(".error")
        words = [part for part in answer["parts"] if isinstance(part, str)]
        assert "--" not in shown and [part for part in words if part not in shown] == []
    else:
        assert drawn(page) == said(request)


@pytest.mark.parametrize("request_", [
    {"model": "gpt2", "settings": {"sequence": "1024", "batch": "5"}},
    {"model": "llama-3.2-1b", "settings": {"run": "inference", "generate": "77"}},
    {"model": "custom", "sizes": {"layers": "7", "hidden": "512", "heads": "8"},
     "settings": {"implementation": "paper"}},
])
def test_the_chart_is_the_json(opened: Any, address: str, request_: dict[str, Any]) -> None:
    words = {"v": "1", "model": request_["model"], **request_.get("sizes", {}), **request_["settings"]}
    page = opened(address + "#" + "&".join(f"{name}={value}" for name, value in words.items()))
    settle(page)
    assert drawn(page) == said(request_)
    page.get_by_role("button", name="Numbers", exact=True).click()
    row = page.locator(".numbers tbody tr").nth(2).locator("td[data-bytes]")
    want = list(said(request_).values())[2]
    assert sum(int(row.nth(i).get_attribute("data-bytes")) for i in range(row.count())) == sum(want.values())


def test_a_config_is_dropped(page: Any, tmp_path: Path) -> None:
    config = {"model_type": "llama", "num_hidden_layers": 4, "hidden_size": 512, "num_attention_heads": 8,
              "num_key_value_heads": 8, "intermediate_size": 1024, "vocab_size": 1000}
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    page.evaluate("""(text) => {
        const data = new DataTransfer();
        data.items.add(new File([text], "config.json", { type: "application/json" }));
        document.body.dispatchEvent(new DragEvent("drop", { dataTransfer: data, bubbles: true, cancelable: true }));
    }""", json.dumps(config))
    until(page, "location.hash.includes('config=')")
    settle(page)
    assert drawn(page) == said({"model": "config.json", "config": config, "settings": {"gpu": "H100 SXM 80GB"}})
    page.set_input_files("input[type=file]", path)
    page.set_input_files("input[type=file]", {"name": "no.json", "mimeType": "text/plain", "buffer": b"{"})
    until(page, "document.querySelector('.error').textContent.includes('not JSON')")


def test_links_round_trip(opened: Any, address: str, page: Any) -> None:
    page.fill("form.form [name=sequence]", "3000")
    page.select_option("form.form [name=checkpoint]", "full")
    page.locator("summary", has_text="Its size").click()
    page.fill("[name=size-layers]", "10")
    settle(page)
    again = opened(page.evaluate("location.href"))
    assert drawn(again) == drawn(page)
    assert again.input_value("form.form [name=sequence]") == "3000"
    assert again.inner_text(".headline") == page.inner_text(".headline")
    page.go_back()
    until(page, "!location.hash.includes('checkpoint=full')")
    until(page, "document.querySelector('form [name=checkpoint]').value === 'none'")


def test_what_is_copied_runs(page: Any, capsys: pytest.CaptureFixture[str]) -> None:
    from peakmem.cli import main

    page.fill("form.form [name=sequence]", "3000")
    page.eval_on_selector_all("details", "all => all.forEach((one) => { one.open = true; })")
    page.uncheck("form.form [name=set_to_none]")
    page.fill("[name=size-layers]", "10")
    settle(page)
    page.get_by_role("button", name="command line").click()
    words = shlex.split(page.inner_text(".copied"))
    assert words[0] == "peakmem"
    assert main([*words[1:], "--json"]) == 0
    mine = json.loads(capsys.readouterr().out)
    assert {row["moment"]: {k: v for k, v in row["peak_by_kind"].items() if v} for row in mine["chart"]} == drawn(page)
    page.get_by_role("button", name="Python").click()
    space: dict[str, Any] = {}
    exec(page.inner_text(".copied"), space)
    assert isinstance(space["ledger"], peakmem.Ledger) and space["ledger"].peak.bytes == mine["peak"]["bytes"]


@pytest.mark.parametrize("name", ["PNG", "SVG", "CSV"])
def test_exports_open(opened: Any, page: Any, name: str, tmp_path: Path, address: str) -> None:
    with page.expect_download() as download:
        page.get_by_role("button", name=name, exact=True).click()
    path = tmp_path / download.value.suggested_filename
    download.value.save_as(path)
    if name == "CSV":
        rows = list(csv.DictReader(path.open()))
        weights = {moment: kinds.get("weights", 0) for moment, kinds in drawn(page).items()}
        assert {row["moment"]: int(row["weights"]) for row in rows} == weights
    elif name == "PNG":
        assert path.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n" and path.stat().st_size > 10_000
    else:
        text = path.read_text()
        assert text.startswith("<svg") and "var(" not in text and text.count("<rect") > 30


def test_pinned_and_compared(page: Any) -> None:
    page.get_by_role("button", name="Pin this").click()
    page.fill("form.form [name=batch]", "4")
    settle(page)
    assert page.locator(".picture .behind").count() == 9
    assert "batch: default → 4" in page.inner_text(".pinned")
    assert "+" in page.locator(".pinned tbody tr").first.inner_text()


def test_the_largest_batch(opened: Any, address: str) -> None:
    page = opened(address + "#v=1&model=gpt2&gpu=24GiB")
    until(page, "document.querySelector('.fits').textContent.includes('Largest batch')")
    found = json.loads(estimate_json('{"ask":"fit","model":"gpt2","settings":{"gpu":"24GiB"}}'))
    assert f"Largest batch that fits: {found['batch']}" in page.inner_text(".fits")


def test_a_setting_of_the_readers_own_is_the_command_lines(page: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """What lies in no answer made beforehand: typed into the page, and asked of the command line by the page's link."""
    from peakmem.cli import main

    page.fill("form.form [name=sequence]", "3217")
    page.fill("form.form [name=batch]", "7")
    page.select_option("form.form [name=checkpoint]", "full")
    settle(page)
    assert main(["estimate", "--from-url", page.evaluate("location.href"), "--json"]) == 0
    mine = json.loads(capsys.readouterr().out)
    assert drawn(page) == {row["moment"]: {kind: size for kind, size in row["peak_by_kind"].items() if size}
                           for row in mine["chart"]}
    assert page.inner_text(".peak") == f"{mine['peak']['bytes'] / 2**30:,.2f} GiB"
    assert str(mine["run"]["batch"]) == "7" and "7·3217" in page.inner_text(".rule.activations")


def test_what_has_no_effect_cannot_be_touched_and_says_why(opened: Any, address: str) -> None:
    page = opened(address + "#v=1&model=vit-base")
    until(page, "document.querySelector('form [name=sequence]').disabled")
    assert "No effect in a model that reads 224 × 224 pixels" in page.inner_text("[data-field=sequence]")
    assert page.is_disabled("[data-field=sequence] [type=range]") and page.is_enabled("form.form [name=batch]")
    page.locator("summary", has_text="Its size").click()
    assert page.is_disabled("[name=size-vocabulary]") and page.is_enabled("[name=size-layers]")
    choose(page, "gpt2")
    until(page, "!document.querySelector('form [name=sequence]').disabled")
    page.check("form.form [name=run][value=inference]")
    until(page, "document.querySelector('[data-field=optimizer]').hidden")
    assert page.locator("summary", has_text="inference").is_visible()
    assert not page.locator("summary", has_text="optimizer").is_visible()


def test_what_a_setting_means_is_said(page: Any) -> None:
    page.hover("form.form [name=checkpoint]")
    assert "each layer keeps its input" in page.inner_text(".help")
    page.focus("form.form [name=batch]")
    assert "per GPU" in page.inner_text(".help")


def test_links_within_the_page_keep_the_state(page: Any) -> None:
    page.fill("form.form [name=sequence]", "3000")
    settle(page)
    there = page.evaluate("location.href")
    page.locator("header nav a", has_text="Check").click()
    assert page.evaluate("location.href") == there and page.evaluate("scrollY") > 1000
    page.locator("a.ref").first.click()
    assert page.input_value("form.form [name=sequence]") == "3000" and page.evaluate("location.href") == there


def test_over_time(page: Any) -> None:
    page.get_by_role("button", name="Over time").click()
    page.wait_for_selector(".time path.seg")
    whole = page.get_attribute(".time svg", "aria-label")
    page.get_by_role("button", name="Peak: zoom to it").click()
    near = page.get_attribute(".time svg", "aria-label")
    assert near != whole
    page.wait_for_timeout(700)  # the reader rests: nothing new is there, and what is looked at stays
    assert page.get_attribute(".time svg", "aria-label") == near
    assert page.inner_text(".read").startswith("119.96 GiB")
    page.focus(".time")
    page.keyboard.press("-")
    page.keyboard.press("ArrowLeft")
    assert page.locator(".time text").count() > 5


def test_one_kind_dims_the_others(page: Any) -> None:
    page.locator(".legend .key", has_text="activations").click()
    assert page.evaluate("getComputedStyle(document.querySelector('.picture rect.seg.weights')).opacity") == "0.2"
    assert page.evaluate("getComputedStyle(document.querySelector('.picture rect.seg.activations')).opacity") == "1"


def test_a_mistake_is_said_and_the_last_answer_stays(page: Any) -> None:
    page.fill("form.form [name=gpu]", "H1000")
    page.press("form.form [name=gpu]", "Tab")
    until(page, "document.querySelector('.error').textContent.includes('unknown GPU')")
    assert page.locator(".picture rect.seg").count() > 20


def test_unknown_words_in_a_link_are_said(opened: Any, address: str) -> None:
    page = opened(address + START + "&sequnce=1")
    assert page.locator(".picture rect.seg").count() > 20
    assert "unknown here: sequnce" in page.inner_text("#status")


def test_names_from_outside_are_text(page: Any) -> None:
    """C24: what a file is called, and what a GPU is called, is shown and never run."""
    page.set_input_files("input[type=file]", {
        "name": "<img src=x onerror=alert(1)>{{7*7}}.json", "mimeType": "text/plain",
        "buffer": json.dumps({"model_type": "gpt2", "architectures": ["<script>alert(2)</script>"]}).encode()})
    until(page, "document.querySelector('.about').textContent.includes('<img src=x')")
    page.fill("form.form [name=gpu]", "<b>H1000</b>")
    page.press("form.form [name=gpu]", "Tab")
    until(page, "document.querySelector('.error').textContent.includes('<b>H1000</b>')")
    assert page.locator("main img, main script, .error b").count() == 0
