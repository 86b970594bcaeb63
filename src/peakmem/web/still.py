"""Every figure in a plain form, for paper and for readers without scripts: the message is there without touching."""

from __future__ import annotations

from html import escape
from typing import Any

from peakmem.quantity import gib

Answer = dict[str, Any]

CODE = """import torch

# one full step: forward, backward, optimizer.step(), zero_grad()
step(batch)  # the first makes the optimizer's state; what is counted here is a later one
torch.cuda.synchronize()
torch.cuda.reset_peak_memory_stats()
step(batch)
torch.cuda.synchronize()
print("allocated", torch.cuda.max_memory_allocated() / 2**30)
print("reserved ", torch.cuda.max_memory_reserved() / 2**30)
free, total = torch.cuda.mem_get_info()
print("device   ", (total - free) / 2**30)"""
"""What the reader runs; the page's scripts take it from here, too."""


def stills(answers: dict[str, Answer]) -> dict[str, str]:
    """HTML by the name of its place in index.html."""
    three, first = answers["three"], answers["first"]
    return {"cells": cells(answers["cells"]), "growth": growth(answers["growth"]), "products": products(),
            "grid": grid(three), "calculator": calculator(first, answers["room"]),
            "ledger": ledger(first, answers["tables"]["legend"]), "levers": levers(answers["levers"]),
            "check": f"<pre tabindex=\"0\"><code>{escape(CODE, quote=False)}</code></pre>"}


def table(head: list[str], rows: list[list[str]]) -> str:
    """A table; cells are HTML."""
    body = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    return ("<div class=\"scroll still\"><table><thead><tr>" + "".join(f"<th>{name}</th>" for name in head)
            + f"</tr></thead><tbody>{body}</tbody></table></div>")


def cells(answer: Answer) -> str:
    row = next(r for r in answer["rows"] if r["precision"] == "mixed" and r["optimizer"] == "adamw")
    parts = "".join(
        f'<div class="part {part["kind"]}"><div class="bytes">{"<span></span>" * part["cells"]}</div>'
        f'<p><b>{part["bytes"]}</b> {escape(part["name"])}</p></div>' for part in row["parts"])
    return (f'<div class="parts">{parts}</div><p class="total"><strong>{row["total"]} bytes a parameter</strong> · '
            f'7 billion parameters: {row["seven"]} ({row["seven_gb"]})</p>')


def growth(answer: Answer) -> str:
    kinds = ("weights", "activations", "gradients", "optimizer_state")
    return table(["", *(kind.replace("_", " ") for kind in kinds)],
                 [[case["name"], *(f"× {case['times'][kind]}" for kind in kinds)] for case in answer["cases"]])


def products() -> str:
    return table(["made", "product", "reads"], [
        ["gradient of W<sub>2</sub>", "δ<sub>2</sub> a<sub>1</sub><sup>T</sup>",
         "the error and the saved input: why a<sub>1</sub> was kept"],
        ["error for layer 1", "W<sub>2</sub><sup>T</sup> δ<sub>2</sub>", "the error and the weights"]])


def grid(answer: Answer) -> str:
    marks = {"held": "■", "passing": "·", "": ""}
    rows = [[escape(row["name"]), gib(row["bytes"], 0), *(marks[cell] for cell in row["cells"])]
            for row in answer["tensors"]]
    told = "".join(f"<li><b>{one['moment']}</b>, {escape(one['title'])}: {escape(one['words'])}</li>"
                   for one in answer["moments"])
    where = " and ".join(answer["peak"]["moments"])
    return (table(["tensor", "size", *(one["moment"] for one in answer["moments"])], rows)
            + f"<p>Most is in use in {where}: {gib(answer['peak']['bytes'], 1)}.</p><ol class=\"small\">{told}</ol>")


def calculator(answer: Answer, room: Answer) -> str:
    """room: with PyTorch's allocator run, as the page says it when the reader rests."""
    found = answer["ledger"]
    name = found["run"]["model"]["name"]
    kinds = [kind for kind in found["peak"]["by_kind"] if any(row["peak_by_kind"][kind] for row in found["chart"])]
    rows = [[row["moment"], *(gib(row["peak_by_kind"][kind]) for kind in kinds), gib(row["peak"])]
            for row in found["chart"]]
    verdict = f"fits one {escape(room['gpu'])} with {gib(room['spare'])} to spare" if room["fits"] else (
        f"exceeds one {escape(room['gpu'])} by {gib(-room['spare'])}")
    return (f"<p>{escape(name)}, batch 1 × 2,048 tokens, mixed precision, AdamW: <strong>{gib(found['peak']['bytes'])}"
            f"</strong> at the peak; {verdict}: {gib(room['used'])} reserved by PyTorch’s allocator, and up to "
            f"{gib(room['context'][1])} of CUDA context, of {gib(room['capacity'])}.</p>"
            + table(["moment", *(kind.replace("_", " ") for kind in kinds), "highest"], rows)
            + "<p class=\"small\">The calculator needs scripts; <code>peakmem estimate</code> answers the same. "
              "Opened from disk, a folder of this page cannot run them (browsers load modules from a server only): "
              "serve the folder (<code>python -m http.server</code>), or take the page as a single file, which runs "
              "from disk, too.</p>")


def ledger(answer: Answer, legend: dict[str, str]) -> str:
    kinds = answer["ledger"]["kinds"]
    used = {letter for one in kinds.values() for letter in one["formula"] if letter.isalpha()}
    letters = ", ".join(f"<b>{letter}</b> {escape(text)}" for letter, text in legend.items() if letter in used)
    return table(["kind", "at most", "rule"], [
        [kind.replace("_", " "), gib(one["largest"]),
         f"<code>{escape(one['formula'])}</code><br>= <code>{escape(one['substituted'])}</code>"]
        for kind, one in kinds.items()]) + f'<p class="small">Letters: {letters}.</p>'


def levers(answer: Answer) -> str:
    def words(rows: list[tuple[str, int, int]]) -> str:
        return ", ".join(f"{kind.replace('_', ' ')} {gib(old)} → {gib(new)}" for kind, old, new in rows)

    return table(["lever", "falls", "rises", "before", "after", "costs"], [
        [escape(one["lever"]), words(one["falls"]), words(one["rises"]), gib(one["before"]), gib(one["after"]),
         escape(one["costs"])] for one in answer["tried"] if not one["refused"]])
