"""`peakmem diagnose`: a log and what ran."""

from __future__ import annotations

from pathlib import Path

from .asking import Ask

MESSAGE = ("CUDA out of memory. Tried to allocate 2.81 GiB (GPU 0; 23.69 GiB total capacity; 16.12 GiB already "
           "allocated; 374.94 MiB free; 19.00 GiB reserved in total by PyTorch) If reserved memory is >>")


def test_on_the_command_line(ask: Ask, tmp_path: Path) -> None:
    log = tmp_path / "run.log"
    log.write_text(MESSAGE)
    answer = ask("diagnose", str(log), "gpt2", "--sequence", "512")
    assert answer.code == 0 and "Fragmentation: 2.88 GiB" in answer.out and "What to do" in answer.out
    assert max(map(len, answer.out.splitlines())) <= 80
    assert '"gpu": "RTX 3090"' in ask("diagnose", str(log), "--json").out
    for words, told in (([str(log), "--batch", "2"], "give its MODEL"), (["none.log"], "cannot be read"),
                        ([str(tmp_path)], "is a folder; give a file"), (["-", "-"], "not both")):
        answer = ask("diagnose", *words)
        assert answer.code == 2 and told in answer.err and answer.err.count("\n") == 1
