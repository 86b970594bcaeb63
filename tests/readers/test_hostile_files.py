"""Files that are none, that change while they are read, that take memory or time, and text that wants to be more."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from peakmem.errors import Impossible, PeakmemError, UnknownName, Unreadable
from peakmem.ledger import Ledger
from peakmem.readers import read_model
from peakmem.readers.hf_config import from_config
from peakmem.readers.json_file import MOST_BYTES
from tests.readers.hostile import GOOD, refused, written

# C23: files that are none


def test_only_regular_files_are_opened(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    assert "no regular file" in refused(fifo)
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    refused(loop)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "socket"))
        refused(tmp_path / "socket")
    refused(tmp_path)  # a folder without a config.json
    refused(tmp_path / "absent.json")
    refused(tmp_path / "a\0b")
    refused(Path("/" + "x" * 5000))
    (tmp_path / "config.json").mkdir()
    refused(tmp_path)
    refused(Path(os.devnull))
    if Path("/dev/zero").exists():
        refused(Path("/dev/zero"))


def test_a_link_to_a_file_is_fine(tmp_path: Path) -> None:
    link = tmp_path / "link.json"
    link.symlink_to(written(tmp_path, GOOD))
    assert read_model(link).hidden == 4096


def test_a_file_without_permission(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path, GOOD)

    def forbid(*_: Any) -> int:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(os, "open", forbid)
    assert "Permission denied" in refused(path)


def test_a_file_that_shrinks_or_grows_while_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, real = written(tmp_path, GOOD), os.open

    def shrink(name: Any, *args: Any) -> int:
        os.truncate(path, 20)
        return real(name, *args)

    def grow(name: Any, *args: Any) -> int:
        os.truncate(path, MOST_BYTES + 10)
        return real(name, *args)

    monkeypatch.setattr(os, "open", shrink)
    assert "not JSON" in refused(path)
    monkeypatch.setattr(os, "open", grow)
    assert "the limit is" in refused(path)


CHILD = """
import sys, time
from pathlib import Path
from peakmem.readers import read_model
start = time.perf_counter()
try:
    read_model(sys.argv[1])
except ValueError as error:
    print(error)
# not ru_maxrss, which counts the process that started this one
most = next(line.split()[1] for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
print(int(most) // 1024, time.perf_counter() - start)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="Linux says how much memory was used")
@pytest.mark.parametrize("content", ["sparse", "objects", "lists", "strings", "digits"])
def test_time_and_memory_are_bounded(tmp_path: Path, content: str) -> None:
    path = tmp_path / "config.json"
    full = MOST_BYTES - 10
    if content == "sparse":
        path.touch()
        os.truncate(path, 2**30)
    elif content == "objects":
        path.write_bytes(b"[" + b"{}," * (full // 3) + b"{}]")
    elif content == "lists":
        path.write_bytes(b"[" + b"[]," * (full // 3) + b"[]]")
    elif content == "strings":
        path.write_bytes(b"{" + b",".join(b'"%x":{}' % i for i in range(full // 11)) + b"}")
    else:
        path.write_bytes(b'{"hidden_size": ' + b"7" * (full - 20) + b"}")
    run = subprocess.run([sys.executable, "-c", CHILD, str(path)], capture_output=True, text=True, timeout=20)
    assert run.returncode == 0 and not run.stderr
    *message, numbers = run.stdout.strip().splitlines()
    mebibytes, seconds = numbers.split()
    assert len(message) == 1
    assert int(mebibytes) < 200 and float(seconds) < 2


# C24: text that wants to be something else

NASTY = [
    "\x1b[31mred\x1b[0m",
    "\u202egnp.exe",
    "<script>alert(1)</script>",
    "{{7*7}}",
    "=cmd|' /C calc'!A0",
    "x" * 500_000,
    "\ud800",
    "a\nb",
    "\x00",
    "\u2028",
]


@pytest.mark.parametrize("text", NASTY, ids=lambda t: ascii(t)[:12])
def test_foreign_text_is_escaped_and_cut(tmp_path: Path, text: str) -> None:
    refused(written(tmp_path, {"model_type": text}), UnknownName)
    refused(written(tmp_path, {**GOOD, "hidden_size": text}))
    refused(written(tmp_path, {"model_type": "qwen2", "layer_types": [text] * 32}))
    model = read_model(
        written(
            tmp_path,
            {
                **GOOD,
                "architectures": [text],
                text: 1,
                "torch_dtype": text,
                "quantization_config": {"quant_method": text},
                "_name_or_path": text,
            },
        )
    )
    for note in model.notes:
        assert note.replace("…", "").isascii() and note.isprintable() and len(note) < 500


def test_foreign_names_of_files(tmp_path: Path) -> None:
    folder = tmp_path / "\x1b[31mred"
    folder.mkdir()
    model = read_model(written(folder, GOOD))
    assert model.name.isprintable() and model.name.isascii()
    (folder / "config.json").write_text("x")
    refused(folder)


@pytest.mark.parametrize("value", [{}, [1], "llama", 5])
def test_architectures_may_be_anything_but_is_read_as_names(tmp_path: Path, value: Any) -> None:
    assert "architectures" in refused(written(tmp_path, {**GOOD, "architectures": value}))
    assert read_model(written(tmp_path, {**GOOD, "num_key_value_heads": 8, "architectures": None})).notes == ()
    assert read_model(written(tmp_path, {**GOOD, "num_key_value_heads": 8, "architectures": []})).notes == ()


def test_nothing_in_a_file_is_run(tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    code = f"__import__('pathlib').Path({str(marker)!r}).touch()"
    (tmp_path / "configuration_x.py").write_text(code)
    model = read_model(
        written(
            tmp_path,
            {
                **GOOD,
                "auto_map": {"AutoConfig": "configuration_x.X"},
                "hidden_act": "silu",
                "_name_or_path": code,
                "rope_scaling": {"type": code},
            },
        )
    )
    assert model.hidden == 4096 and not marker.exists()


@pytest.mark.parametrize(
    ("config", "kind"),
    [
        ({"model_type": "gpt2", "add_cross_attention": True}, Impossible),
        ({"model_type": "bert", "is_decoder": True}, Impossible),
        ({"model_type": "llama", "rope_scaling": [1]}, Unreadable),
        ({"model_type": "phi3", "partial_rotary_factor": 0.001}, Impossible),
        ({"model_type": "gpt_neox", "rotary_pct": "a"}, Unreadable),
        ({"model_type": "vit", "image_size": [224, 448]}, Unreadable),
        ({"model_type": "vit", "image_size": 8}, Impossible),
        ({"model_type": "vit", "id2label": [1]}, Unreadable),
        ({"model_type": "gemma3", "text_config": [1]}, Unreadable),
        ({"model_type": "gemma2", "sliding_window": None}, Impossible),
        ({"model_type": "qwen2", "layer_types": ["sliding_attention"] * 32}, Impossible),
        ({"model_type": 5}, Unreadable),
        ({}, Unreadable),
    ],
)
def test_what_cannot_be_built(config: dict[str, Any], kind: type[PeakmemError]) -> None:
    with pytest.raises(kind):
        from_config(config)


def test_a_list_of_layers_that_is_too_short(tmp_path: Path) -> None:
    """C20; a number is what DeepSeek's files have there."""
    config = {"model_type": "deepseek_v3", "num_hidden_layers": 4}
    with pytest.raises(Impossible, match="moe_layer_freq has 2 entries, num_hidden_layers is 4"):
        read_model(written(tmp_path, {**config, "moe_layer_freq": [1, 0]}))
    assert not any("moe_layer" in note for note in read_model(written(tmp_path, {**config, "moe_layer_freq": 1})).notes)


@pytest.mark.parametrize("place", ["{", '"rope_scaling": {'])
def test_a_key_that_is_there_twice(tmp_path: Path, place: str) -> None:
    """Python takes the last value, other readers the first: two models of one file."""
    text = json.dumps({**GOOD, "rope_scaling": {"rope_type": "linear", "factor": 2.0}})
    doubled = text.replace(place, place + ' "factor": 3.0, "factor": 4.0, ', 1)
    assert "has 'factor' twice in one object; give it once" in refused(written(tmp_path, doubled))
    (tmp_path / "ledger.json").write_text('{"format": "peakmem.ledger/1", "origin": "a", "origin": "b"}')
    with pytest.raises(Unreadable, match="'origin' twice"):
        Ledger.read(tmp_path / "ledger.json")


def test_the_value_that_makes_groups_unknown_is_named() -> None:
    for method, given, told in (("gptq", {"bits": 3, "group_size": 0}, "bits 3, not 2, 4 or 8 and group_size 0, not "),
                                ("awq", {"group_size": "big"}, "group_size 'big', not positive or -1")):
        notes = "\n".join(from_config({**GOOD, "quantization_config": {"quant_method": method, **given}}).notes)
        assert told in notes and "is ignored" in notes
        good = {"quant_method": method, "bits": 4, "group_size": -1}
        assert "is ignored" not in "\n".join(from_config({**GOOD, "quantization_config": good}).notes)
