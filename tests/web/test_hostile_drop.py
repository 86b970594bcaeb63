"""What is dropped onto the page: whatever it is, one line, no error of a script, and the model in force stays."""

from __future__ import annotations

import json
from base64 import b64encode
from typing import Any

import pytest

from tests.web.conftest import until
from tests.web.test_states import LLAMA, peak, shows

GOOD = json.dumps(LLAMA)


def nested(open_: str, close: str, deep: int) -> str:
    return '{"model_type": "llama", "x": ' + open_ * deep + "1" + close * deep + "}"


BAD: dict[str, bytes] = {
    "objects": nested('{"a":', "}", 3000).encode(), "arrays": nested("[", "]", 3000).encode(),
    "a million brackets": b"[" * 900_000, "half open": b'{"a":' * 100_000, "nested 40": nested("[", "]", 40).encode(),
    "brackets in a string": ('{"model_type": "none", "x": "' + "[" * 5000 + '"}').encode(),
    "huge": b" " * 1_000_001, "nothing": b"", "blanks": b" \n\t ", "binary": bytes(range(256)) * 50,
    "zeros": b"\0" * 5000, "an ELF": b"\x7fELF\x02\x01" + b"\xff" * 500, "GGUF": b"GGUF\x03\0\0\0" * 10,
    "BOM alone": b"\xef\xbb\xbf", "odd UTF-16": b"\xff\xfe{", "latin-1": '{"model_type": "llåma"}'.encode("latin-1"),
    "an array": b"[1, 2, 3]", "a number": b"42", "null": b"null", "a text": b'"llama"', "no JSON": b"model_type: llama",
    "a comment": b'// config\n{"model_type": "llama"}', "a comma": b'{"model_type": "llama",}', "two": b"{}{}",
    "no fields": b"{}", "unknown": b'{"model_type": "nothing"}',
    "__proto__": b'{"__proto__": {"model_type": "llama"}, "constructor": {"prototype": {"x": 1}}}',
    "negative": json.dumps({**LLAMA, "hidden_size": -512}).encode(),
    "a fraction": json.dumps({**LLAMA, "num_hidden_layers": 1.5}).encode(),
    "beyond floats": json.dumps({**LLAMA, "hidden_size": 7}).replace("7", "1e400").encode(),
    "NaN": json.dumps({**LLAMA, "vocab_size": float("nan")}).encode(),
    "digits": json.dumps({**LLAMA, "vocab_size": 1}).replace('"vocab_size": 1', '"vocab_size": ' + "9" * 5000).encode(),
    "a text for a number": json.dumps({**LLAMA, "num_attention_heads": "eight"}).encode(),
    "a list for a number": json.dumps({**LLAMA, "intermediate_size": [1024]}).encode(),
    "twice": GOOD.replace("{", '{"hidden_size": 9999, ', 1).encode(),
    "numbers that grow": ("{" + ",".join(f'"{i}": 1E20' for i in range(60_000)) + "}").encode(),
}
GOOD_ONES: dict[str, bytes] = {
    "BOM": b"\xef\xbb\xbf" + GOOD.encode(), "UTF-16": GOOD.encode("utf-16"),
    "prototypes": json.dumps({**LLAMA, "__proto__": {"hidden_size": 1}, "toString": 1, "constructor": None}).encode(),
    "unused NaN": json.dumps({**LLAMA, "note": float("nan"), "more": float("inf")}).encode(),
}


def drop(page: Any, name: str, content: bytes) -> None:
    page.evaluate("""([name, bytes]) => {
        const data = new DataTransfer();
        data.items.add(new File([Uint8Array.from(atob(bytes), (c) => c.charCodeAt(0))], name));
        document.body.dispatchEvent(new DragEvent("drop", { dataTransfer: data, bubbles: true, cancelable: true }));
    }""", [name, b64encode(content).decode()])


def test_a_drop_that_fails_changes_nothing(page: Any) -> None:
    page.fill("form.form [name=batch]", "3")
    until(page, "location.hash.includes('batch=3')")
    until(page, "!('busy' in document.documentElement.dataset)")
    there = page.evaluate("[location.hash, document.querySelector('.peak').textContent, history.length]")
    for name, content in BAD.items():
        page.evaluate("document.querySelector('.error').textContent = ''")
        drop(page, f"{name}\u202e\n.json", content)
        until(page, "document.querySelector('.error').textContent !== ''")
        told = page.inner_text(".error")
        assert told.startswith(name) and "\n" not in told and "\u202e" not in told and len(told) < 400, (name, told)
        assert "--" not in told and "peakmem failed" not in told and "Error" not in told, (name, told)
        assert not page.evaluate("document.documentElement.hasAttribute('data-old')"), name
    assert page.evaluate("[location.hash, document.querySelector('.peak').textContent, history.length]") == there
    assert page.evaluate("Object.prototype.model_type") is None
    page.fill("form.form [name=batch]", "2")
    until(page, "document.querySelector('.error').textContent === ''")


@pytest.mark.parametrize("name", GOOD_ONES)
def test_what_is_odd_and_right_is_taken(page: Any, name: str) -> None:
    drop(page, "config.json", GOOD_ONES[name])
    until(page, "location.hash.includes('config=')")
    shows(page, peak({"model": "m", "config": LLAMA, "settings": {"gpu": "H100 SXM 80GB"}}))
    assert page.inner_text(".error") == ""


def test_a_file_that_wants_another_setting_is_taken(page: Any) -> None:
    """Its mistake is about a setting, and mended there."""
    drop(page, "deep.json", json.dumps({**LLAMA, "num_hidden_layers": 2_000_000}).encode())
    until(page, "document.querySelector('[name=size-layers]').getAttribute('aria-invalid') === 'true'")
    page.fill("[name=size-layers]", "4")
    shows(page, peak({"model": "m", "config": LLAMA, "settings": {"gpu": "H100 SXM 80GB"}}))
