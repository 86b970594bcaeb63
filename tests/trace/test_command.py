"""`peakmem trace` as its users call it, and what it answers to models that are not easy."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from peakmem import Ledger
from peakmem.cli import main
from peakmem.trace.process import TraceError, Worker
from peakmem.trace.user import as_json

FILE = Path(__file__).with_name("user_models.py")
HARD = Path(__file__).with_name("hard_models.py")
SMALL = ("gpt2", "--layers", "2", "--hidden", "128", "--heads", "4", "--vocabulary", "1000", "--sequence", "64",
         "--batch", "2", "--precision", "bf16")


def traced(worker: Worker, name: str, **options: object) -> Ledger:
    """The ledger of one of the functions, from the shared process."""
    from peakmem.ledger_json import from_json

    return from_json(worker.call(as_json, str(FILE), name, "", options))


def error_of(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """The one line of a mistake."""
    assert main(["trace", *words]) == 2
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("peakmem: ")]
    return lines[-1]


def test_an_estimate_and_a_trace_of_a_preset_are_equal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("estimate", "trace"):
        assert main([command, *SMALL, "--gpu", "A100-80GB", "--json"]) == 0
        (tmp_path / command).write_text(capsys.readouterr().out)
    assert main(["compare", str(tmp_path / "estimate"), str(tmp_path / "trace")]) == 0
    assert capsys.readouterr().out.startswith("equal: ")
    one, other = (json.loads((tmp_path / name).read_text())["totals"] for name in ("estimate", "trace"))
    assert one == other


def test_a_line_that_only_one_side_has_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["estimate", *SMALL, "--json"])
    text = capsys.readouterr().out
    (tmp_path / "a").write_text(text)
    data = json.loads(text) | {"origin": "trace"}
    data["lines"] = [line for line in data["lines"] if not line["name"].endswith("lm_head/output")]
    (tmp_path / "b").write_text(json.dumps(data))
    assert main(["compare", str(tmp_path / "a"), str(tmp_path / "b")]) == 1
    told = capsys.readouterr().out
    assert "Lines only in A" in told and "lm_head/output" in told and "Lines only in B" not in told


def test_settings_that_a_trace_lacks_are_refused_without_torch() -> None:
    script = ("import sys; from peakmem.cli import main\n"
              "for words in (['gpt2', '--shard', 'zero1'], ['gpt2', '--optimizer', 'adamw-8bit'],\n"
              "              ['gpt2', '--run', 'inference'], ['gpt2', '--loss', 'fused'], ['nowhere.py:f']):\n"
              "    assert main(['trace', *words]) == 2\n"
              "assert 'torch' not in sys.modules")
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    lines = done.stderr.splitlines()
    assert len(lines) == 5 and all(line.startswith("peakmem: ") for line in lines)


def test_without_torch_the_command_that_installs_it_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("peakmem.cli.trace_command.find_spec", lambda name: None)
    assert "pip install -e '.[trace]'" in error_of(capsys, "gpt2")


def test_what_the_file_prints_is_not_in_the_json(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["trace", f"{FILE}:talks", "--json"]) == 0
    out, err = capfd.readouterr()
    assert json.loads(out)["origin"] == "trace"
    assert "hello from the file" in err


def test_a_function_that_never_returns_is_ended() -> None:
    with Worker() as fresh:
        traced(fresh, "perceptron")  # loads torch
        told = r"no answer within 2 seconds at: running user_models.py, user_models.py:\d+; --timeout"
        with pytest.raises(TraceError, match=told):
            fresh.call(as_json, str(FILE), "never", "", {}, timeout=2)


def test_a_mistake_of_the_file_names_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    told = error_of(capsys, f"{HARD}:fails_deep", "--gpu", "T4")
    place = r"aten::\w+ in outer\.1, hard_models\.py:\d+$"
    assert re.search(f"RuntimeError: .* {place}", told), told


def test_an_operation_without_a_shape_rule_is_named(worker: Worker) -> None:
    with pytest.raises(TraceError, match=r"peakmem_test::doubled in the root module: .*register_fake"):
        traced(worker, "custom")


def test_lazy_modules_get_their_sizes_first(worker: Worker) -> None:
    assert traced(worker, "lazy").parameters.total == 4 * 8 + 8 + 8 + 1


def test_compiled_modules_are_refused(worker: Worker) -> None:
    with pytest.raises(TraceError, match=r"torch\.compile: .* trace the module without it"):
        traced(worker, "compiled")


def test_both_modes_of_checkpointing_run_layers_again(worker: Worker) -> None:
    for name in ("reentrant", "not_reentrant"):
        ledger = traced(worker, name)
        assert any("second run" in line.why for line in ledger.lines), name


@pytest.mark.parametrize("gpus", [8, 64, 1024])
def test_a_file_is_divided_over_gpus(worker: Worker, gpus: int) -> None:
    sharding = {"gpus": gpus, "compute": None, "reduce": None, "reshard_after_forward": True, "sync": "every"}
    ledger = traced(worker, "stacked", sharding=sharding)
    whole = traced(worker, "stacked")
    assert ledger.parameters.total == whole.parameters.total
    assert ledger.chart[0].by_kind["weights"] < whole.chart[0].by_kind["weights"]


def test_autocast_halves_what_is_saved(worker: Worker) -> None:
    plain, cast = traced(worker, "not_reentrant"), traced(worker, "not_reentrant", autocast="bf16")
    assert cast.phases["backward_peak"] != plain.phases["backward_peak"]


def test_a_picture_shows_the_step_over_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / "step.svg"
    assert main(["trace", f"{FILE}:perceptron", "--plot", str(path)]) == 0
    assert path.stat().st_size > 10_000


def test_what_bitsandbytes_refuses_is_told_before_torch_is_loaded(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("gpt2", "--optimizer", "adamw-8bit", "--shard", "fsdp2", "--gpus", "2")
    for precision in ("mixed", "bf16"):
        told = error_of(capsys, *words, "--precision", precision)
        assert "--shard fsdp2: bitsandbytes' step refuses the DTensors" in told
    assert main(["estimate", *words, "--json"]) == 0
    notes = json.loads(capsys.readouterr().out)["notes"]
    assert any("bitsandbytes' step (0.50.2) refuses the DTensors" in note for note in notes)


def test_bitsandbytes_among_ranks_says_what_it_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file of one's own: the error of the package itself, not of its import."""
    pytest.importorskip("bitsandbytes")
    file = tmp_path / "own.py"
    file.write_text("import torch\nfrom bitsandbytes.optim import AdamW8bit\n"
                    "class Module(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n"
                    "        self.layers = torch.nn.ModuleList(torch.nn.Linear(128, 128) for _ in range(2))\n"
                    "    def forward(self, x):\n        return self.layers[1](self.layers[0](x)).sum()\n"
                    "def step():\n    return Module(), torch.zeros(4, 128), AdamW8bit\n")
    told = error_of(capsys, f"{file}:step", "--shard", "fsdp2", "--gpus", "2")
    assert "CurrentRawStream" not in told and "DTensor" in told


def test_both_tell_of_an_odd_padding_token(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"model_type": "qwen2", "vocab_size": 300, "pad_token_id": 300}))
    told = error_of(capsys, str(path))
    assert "pad_token_id 300" in told and "null" in told
    assert main(["estimate", str(path)]) == 2 and told in capsys.readouterr().err


def test_a_smaller_vocabulary_leaves_no_padding_token_behind() -> None:
    from peakmem.trace.configs import read

    config, model = read("phi-3-mini", False, {"vocabulary": 1000})
    assert model.vocabulary == config["vocab_size"] == 1000 and config["pad_token_id"] is None
