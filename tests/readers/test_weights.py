"""Weights files: headers are counted, and no file can make the reader wait, fill memory or lie."""

from __future__ import annotations

import json
import os
import resource
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from peakmem import estimate
from peakmem.errors import PeakmemError, Unreadable
from peakmem.model import Model
from peakmem.readers.gguf import read_gguf
from peakmem.readers.safetensors import read_safetensors
from tests.conftest import CONFIGS


def tensors(header: Any, data: int = 0) -> bytes:
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(raw)) + raw + bytes(data)


def entry(begin: Any, end: Any, shape: Any = (25,), dtype: Any = "F32") -> dict[str, Any]:
    return {"dtype": dtype, "shape": list(shape) if isinstance(shape, tuple) else shape, "data_offsets": [begin, end]}


def gguf(count: int = 0, keys: int = 0, rest: bytes = b"", version: int = 3) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", version, count, keys) + rest


def text(word: str) -> bytes:
    return struct.pack("<Q", len(word)) + word.encode()


def tensor(name: str, shape: tuple[int, ...], kind: int, offset: int) -> bytes:
    return text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, offset)


def key(name: str, kind: int, raw: bytes) -> bytes:
    return text(name) + struct.pack("<I", kind) + raw


HOSTILE: dict[str, bytes] = {
    **{f"C01 {n} bytes.safetensors": bytes(n) for n in (0, 1, 7, 8)},
    **{f"C02 {n}.safetensors": struct.pack("<Q", n) + b"{}      " for n in (2**60, 2**63, 2**64 - 1)},
    "C04 overlap.safetensors": tensors({"a": entry(0, 100), "b": entry(50, 150)}, 150),
    "C04 gap.safetensors": tensors({"a": entry(0, 100), "b": entry(104, 204)}, 204),
    "C04 backwards.safetensors": tensors({"a": entry(100, 0)}, 100),
    "C04 beyond.safetensors": tensors({"a": entry(0, 100)}, 50),
    "C04 negative.safetensors": tensors({"a": entry(-4, 96)}, 100),
    "C04 fraction.safetensors": tensors({"a": entry(0, 100.5)}, 100),
    "C04 one.safetensors": tensors({"a": {"dtype": "F32", "shape": [25], "data_offsets": [100]}}, 100),
    "C04 tail.safetensors": tensors({"a": entry(0, 100)}, 200),
    "C06 overflow.safetensors": tensors({"a": entry(0, 16, (2**32, 2**32, 4))}, 16),
    "C06 negative.safetensors": tensors({"a": entry(0, 100, (-1, -25))}, 100),
    "C06 thousand.safetensors": tensors({"a": entry(0, 4, (1,) * 1000)}, 4),
    "C06 bool.safetensors": tensors({"a": entry(0, 4, [True])}, 4),
    "C06 dtype.safetensors": tensors({"a": entry(0, 4, (1,), "\x1b[31m")}, 4),
    "C09 million.safetensors": tensors(b"{" + b",".join(b'"%d":1' % i for i in range(10**6)) + b"}"),
    "C09 twice.safetensors": tensors(b'{"a":%s,"a":%s}' % ((json.dumps(entry(0, 100)).encode(),) * 2), 100),
    "C10 magic.gguf": b"GGUF",
    "C11 key twice.gguf": gguf(0, 2, 2 * key("general.architecture", 8, text("llama"))),
    "C11 tensor twice.gguf": gguf(2, 0, tensor("a", (8,), 0, 0) + tensor("a", (8,), 0, 32)) + bytes(200),
    **{f"C10 version {v}.gguf": gguf(version=v) for v in (0, 1, 2**31, 0x03000000)},
    "C11 tensors.gguf": gguf(2**63), "C11 keys.gguf": gguf(0, 2**63),
    "C11 string.gguf": gguf(0, 1, struct.pack("<Q", 2**63) + b"a" * 20),
    "C11 array.gguf": gguf(0, 1, key("a", 9, struct.pack("<IQ", 4, 2**63))),
    "C11 strings.gguf": gguf(0, 1, key("a", 9, struct.pack("<IQ", 8, 2**63)) + bytes(100)),
    "C11 nested.gguf": gguf(0, 1, text("a") + struct.pack("<I", 9) + struct.pack("<IQ", 9, 1) * 10_000),
    "C11 many.gguf": gguf(0, 1, key("a", 9, struct.pack("<IQ", 8, 2 * 10**6)) + bytes(16 * 10**6)),
    **{f"C12 {n} dimensions.gguf": gguf(1, 0, text("a") + struct.pack("<I", n) + bytes(64))
       for n in (0xFFFFFFFF, 1_000_000, 0)},
    "C12 wraps.gguf": gguf(1, 0, tensor("a", (2**33 + 2, 2**31), 0, 0)),
    "C12 zero.gguf": gguf(1, 0, struct.pack("<q", 0) + struct.pack("<IqqIQ", 2, 1, 0, 0, 0)),
    **{f"C12 alignment {n}.gguf": gguf(0, 1, key("general.alignment", 4, struct.pack("<I", n))) for n in (0, 3, 2**30)},
    "short.gguf": gguf(1, 0, tensor("a", (256,), 12, 0)),
    "type.gguf": gguf(1, 0, tensor("a", (256,), 77, 0)),
    "block.gguf": gguf(1, 0, tensor("a", (255,), 12, 0)) + bytes(1000),
}


@pytest.mark.parametrize("name", HOSTILE, ids=str)
def test_a_hostile_file_is_refused_in_one_line_and_at_once(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(HOSTILE[name])
    began = time.perf_counter()
    with pytest.raises(PeakmemError) as error:
        Model.read(path)
    assert time.perf_counter() - began < 2
    assert str(error.value).isprintable() and len(str(error.value)) < 900
    assert "weights of" not in str(error.value)


@pytest.mark.parametrize("name", ["C09 million.safetensors", "C11 many.gguf", "C11 array.gguf"])
def test_the_command_ends_with_2_within_200_mb(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(HOSTILE[name])
    done = subprocess.run([sys.executable, "-m", "peakmem", "estimate", str(path)], capture_output=True, text=True,
                          preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (2**29, 2**29)))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1 and "Traceback" not in done.stderr


def test_a_single_file_is_counted_exactly(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(tensors({"__metadata__": {"format": "pt"}, "a": entry(0, 100), "b": entry(100, 106, (3,), "BF16"),
                              "none": entry(106, 106, (0, 2**40)), "scalar": entry(106, 108, (), "F16")}, 108))
    found = read_safetensors(path)
    assert (found.tensors, found.elements, found.bytes) == (4, 29, 108)
    with pytest.raises(Unreadable, match="29 elements, 108 bytes"):
        Model.read(path)


def sharded(folder: Path, names: dict[str, str], write: bool = True) -> None:
    index = {"metadata": {"total_size": 1}, "weight_map": names}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    for name in set(names.values()) if write else ():
        (folder / name).write_bytes(tensors({t: entry(0, 100) for t, shard in names.items() if shard == name}, 100))


def test_a_folder_has_its_shards_and_its_config(tmp_path: Path) -> None:
    config = json.loads((CONFIGS / "llama-3.2-1b.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config))
    sharded(tmp_path, {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"})
    model = Model.read(tmp_path)
    assert model.layers == 16 and any("50 elements, 200 bytes" in note for note in model.notes)
    assert any(note.endswith("its index says 1 byte") for note in model.notes)
    (tmp_path / "config.json").write_text('{"model_type": "rwkv5"}')
    with pytest.raises(Unreadable, match="rwkv5.*50 elements, 200 bytes"):
        Model.read(tmp_path)


@pytest.mark.parametrize("more,sets,told", [
    (0, {}, ""), (7, {}, "7 fewer"), (-7, {}, "7 more"), (7, {"lora_rank": 4}, ""), (7, {"layers": 1}, "")])
def test_weights_of_another_model_are_told(more: int, sets: dict[str, Any], told: str, tmp_path: Path) -> None:
    config = {"model_type": "llama", "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2,
              "num_attention_heads": 2, "vocab_size": 31}
    (tmp_path / "config.json").write_text(json.dumps(config))
    count = 2 * 31 * 16 + 16 + 2 * (4 * 16 * 16 + 3 * 16 * 24 + 2 * 16) + more
    (tmp_path / "model.safetensors").write_bytes(tensors({"a": entry(0, 2 * count, (count,), "BF16")}, 2 * count))
    found = [note for note in estimate(tmp_path, **sets).notes if "configuration describes" in note]
    assert bool(found) == bool(told) and told in "".join(found)


@pytest.mark.parametrize("shard", ["../../etc/passwd", "/etc/passwd", "a\0b", "a\nb", "away.safetensors", "", ".."])
def test_no_shard_leads_out_of_its_folder(shard: str, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (tmp_path / "secret").write_bytes(tensors({"a": entry(0, 100)}, 100))
    os.symlink(tmp_path / "secret", folder / "away.safetensors")
    sharded(folder, {"a": shard}, write=False)
    with pytest.raises(Unreadable, match=r"of this folder"):
        Model.read(folder)


def test_missing_shards_are_listed(tmp_path: Path) -> None:
    sharded(tmp_path, {"a": "one.safetensors", "b": "two.safetensors"}, write=False)
    with pytest.raises(Unreadable, match=r"one\.safetensors.*two\.safetensors"):
        Model.read(tmp_path)


def test_gguf_tensors_are_counted_by_their_blocks(tmp_path: Path) -> None:
    rows = tensor("a", (256, 2), 12, 0) + tensor("b", (32,), 0, 288)
    head = gguf(2, 2, key("general.architecture", 8, text("llama")) + key("tokens", 9, struct.pack("<IQ", 8, 2)
                + text("x") + text("yy")) + rows)
    path = tmp_path / "m.gguf"
    path.write_bytes(head + bytes(-len(head) % 32) + bytes(288 + 128))
    found = read_gguf(path)
    assert (found.elements, found.bytes, found.architecture) == (544, 416, "llama")
    assert found.by_dtype["Q4_K"] == (1, 512, 288)
    part = tmp_path / "m-00001-of-00002.gguf"
    part.write_bytes(path.read_bytes())
    with pytest.raises(Unreadable, match="00002-of-00002"):
        read_gguf(part)
    (tmp_path / "m-00002-of-00002.gguf").write_bytes(path.read_bytes())
    assert read_gguf(part).bytes == 832


def test_the_sidecar_says_how_weights_are_stored(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text((CONFIGS / "llama-3.2-1b.json").read_text())
    assert Model.read(tmp_path).stored is None
    sidecar = (CONFIGS / "gemma-4-31b-nvfp4.hf_quant_config.json").read_text()
    (tmp_path / "hf_quant_config.json").write_text(sidecar)
    stored = Model.read(tmp_path / "config.json").stored
    assert stored is not None and stored[:3] == ("nvfp4", 4, 16) and Model.read(tmp_path).stored == stored


@pytest.mark.parametrize("word", ["hf://", "hf://../x", "hf://a/b/c", "hf://a b", "hf://a/b@"])
def test_a_name_that_is_none_asks_nobody(word: str) -> None:
    with pytest.raises(Unreadable, match="hf://owner/name"):
        Model.read(word)


FILE = st.one_of(
    st.binary(max_size=80),
    st.builds(lambda a, b, c: gguf(a, b, c), st.integers(0, 4), st.integers(0, 4), st.binary(max_size=200)),
    st.builds(lambda rows: gguf(len(rows), 0, b"".join(rows) + bytes(300)), st.lists(st.builds(
        lambda n, s, k, o: tensor(n, tuple(s), k, o), st.text(max_size=4).map(ascii),
        st.lists(st.integers(0, 2**64 - 1) | st.sampled_from([0, 1, 32, 256]), max_size=5), st.integers(0, 45),
        st.integers(0, 2**64 - 1) | st.sampled_from([0, 32])), max_size=3)),
    st.builds(tensors, st.recursive(
        st.none() | st.integers() | st.text(max_size=3) | st.floats() | st.booleans(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
            st.sampled_from(["a", "dtype", "shape", "data_offsets", "__metadata__"]), inner, max_size=3)),
        st.integers(0, 100)),
    st.builds(lambda b, e, s, d, n: tensors({"a": entry(b, e, s, d)}, n), st.integers(-4, 200), st.integers(-4, 200),
              st.lists(st.integers(-1, 60), max_size=3), st.sampled_from(["F32", "F4", "BF16", "x", None]),
              st.integers(0, 200)),
)


def refused_or_counted(read: Callable[[Path], Any], path: Path) -> None:
    try:
        found = read(path)
    except PeakmemError as error:
        assert str(error).isprintable() and len(str(error)) < 900
        return
    assert found.bytes <= path.stat().st_size and found.elements >= 0


@settings(max_examples=400, deadline=2000, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(raw=FILE, cut=st.integers(0, 400))
def test_any_bytes_are_refused_or_counted(raw: bytes, cut: int, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(raw[:cut] if cut < 300 else raw)
    refused_or_counted(read_safetensors, path)
    refused_or_counted(read_gguf, path)


def test_a_hub_name_fetches_its_configuration_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub = pytest.importorskip("huggingface_hub")
    asked: list[tuple[str, str, str | None]] = []
    (tmp_path / "config.json").write_text((CONFIGS / "llama-3.2-1b.json").read_text())

    def download(name: str, file: str, revision: str | None = None) -> str:
        asked.append((name, file, revision))
        if file != "config.json":
            raise hub.errors.EntryNotFoundError("none")
        return str(tmp_path / file)

    monkeypatch.setattr(hub, "hf_hub_download", download)
    model = Model.read("hf://owner/name@main")
    assert model.layers == 16 and model.name == "owner/name@main"
    assert asked == [("owner/name", "config.json", "main"), ("owner/name", "hf_quant_config.json", "main")]
    monkeypatch.setattr(hub, "hf_hub_download", lambda *a, **k: (_ for _ in ()).throw(OSError("no network\nat all")))
    with pytest.raises(Unreadable, match="cannot be fetched: no network$"):
        Model.read("hf://owner/name")
