"""From a tape and numbers to the ledger's detail: lines, peak, kinds, the chart of moments."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from peakmem.estimate.alive import counts_until
from peakmem.estimate.elsewhere import lines_elsewhere
from peakmem.estimate.formulas import Count, number_of, settled, size_text, terms
from peakmem.estimate.kinds import kinds_of
from peakmem.estimate.reasons import told_apart, why_of
from peakmem.estimate.replay import value
from peakmem.estimate.tape import Key, Tape
from peakmem.estimate.walk import Highest, Region, Spot, Walk
from peakmem.immutable import replace
from peakmem.ledger import KINDS, ChartRow, Detail, KindPeak, Line, Outline, Peak

RECIPES = {  # chart rows of a phase, and after how many thirds of the layers each ends
    "forward": (("F1", 1), ("F2", 2), ("F3", 3)),
    "backward": (("B3", 1), ("B2", 2), ("B1", 3)),
    "prefill": (("P1", 1), ("P2", 2), ("P3", 3)),
}
SINGLE = {"start": "start", "optimizer": "step", "clear": "clear", "load": "load",
          "first decode": "first decode", "last decode": "last decode"}


def detail_of(tape: Tape, numbers: Mapping[str, Any], layers: int, source: str) -> Detail:
    """Walk the tape once and write the account."""
    walk, outline = walk_of(tape, numbers, layers)
    lines = lines_of(walk, layers, source)
    found = {kind: kind_peak(walk, i, kind, layers, lines, source)
             for i, kind in enumerate(KINDS) if walk.kind_peaks[i].spot}
    rule = formula_of(walk, counts_until(walk, walk.peak.spot))
    peak = Peak(walk.peak.bytes, outline.moment, outline.by_kind, *rule)
    return Detail(peak, found, outline.chart, lines, flops_of(tape, numbers))


def walk_of(tape: Tape, numbers: Mapping[str, Any], layers: int) -> tuple[Walk, Outline]:
    """A finished walk, and what it saw from afar."""
    walk = Walk(tape, numbers, [KINDS.index(kind) for kind in kinds_of(tape)])
    chart = chart_of(walk, layers)  # this runs it
    return walk, Outline(moment_name(walk, walk.peak.spot, layers), by_kind(walk.peak.by_kind), chart)


def by_kind(amounts: tuple[int, ...]) -> dict[str, int]:
    return dict(zip(KINDS, amounts, strict=True))


def chart_of(walk: Walk, layers: int) -> tuple[ChartRow, ...]:
    """The nine moments; of several micro-batches, the last."""
    last = {name.split(".")[0]: i for i, (name, _) in enumerate(walk.phases)}
    rows: list[ChartRow] = []
    for i, (name, regions) in enumerate(walk.phases):
        family = name.split(".")[0]
        if family in RECIPES or not i or walk.phases[i - 1][0].split(".")[0] != family:
            walk.begin_moment()  # clipping and the optimizer are one moment
        if family in RECIPES:
            made = thirds_of(walk, i, regions, layers, family)
            rows += made if last[family] == i else []
            continue
        go(walk, i, regions, (), lambda _: None)
        if family in SINGLE and last[family] == i:
            rows.append(row(walk, SINGLE[family]))
    return tuple(rows)


def thirds_of(walk: Walk, phase: int, regions: list[Region], layers: int, family: str) -> list[ChartRow]:
    """A phase in three rows: third i ends after layer ⌊i·n/3⌋, in order of execution."""
    thirds = RECIPES[family]
    limits = [layers - layers * (3 - third) // 3 if family == "backward" else layers * third // 3
              for _, third in thirds]
    made: list[ChartRow] = []

    def close(index: int) -> None:
        made.append(row(walk, thirds[index][0]))
        walk.begin_moment()

    go(walk, phase, regions, tuple(limits[:-1]), close, family == "backward")
    for left in range(len(made), len(thirds) - 1):  # nothing is made after the last layer that has a backward
        close(left)
    made.append(row(walk, thirds[-1][0], held_after(walk, phase) if family == "forward" else 0))
    return made


def row(walk: Walk, name: str, held: int = 0) -> ChartRow:
    top, kinds = walk.moment, by_kind(tuple(walk.by_kind))
    kinds["activations"] += held
    kinds["temporary"] -= held
    return ChartRow(name, walk.live, top.bytes, kinds, by_kind(top.by_kind))


def held_after(walk: Walk, phase: int) -> int:
    """Temporary bytes that outlive a forward: the loss. Between forward and backward it counts as an activation."""
    regions = walk.phases[phase][1]
    last = regions[-1]
    piece = len(last.pieces) - 1
    end = Spot(phase, len(regions) - 1, walk.times(last) - 1, piece, len(last.pieces[piece].events) - 1, 0)
    temporary = KINDS.index("temporary")
    return sum(number_of(count, walk.numbers) * walk.sizes[i] for i, count in counts_until(walk, end).items()
               if walk.kinds[i] == temporary and not walk.tape.records[i].name.startswith("input/"))


def go(walk: Walk, phase: int, regions: list[Region], limits: tuple[int, ...], close: Callable[[int], None],
       backward: bool = False) -> None:
    """Run one phase; `close(i)` where limit i is reached: before the next layer; in backward before whatever is made
    after one."""
    done = reached = closed = 0
    for j, region in enumerate(regions):
        times, blocks = walk.times(region), sum(piece.ends for piece in region.pieces)
        turn = 0
        while turn < times:
            before, then = (walk.live, list(walk.by_kind)), (reached, closed)
            for k, piece in enumerate(region.pieces):
                while not backward and piece.block and reached < len(limits) and done == limits[reached]:
                    reached += 1
                while closed < reached and any(event >= 0 for event in piece.events):
                    close(closed)
                    closed += 1
                walk.step(piece, (phase, j, turn, k), done)
                done += piece.ends
                while backward and piece.ends and reached < len(limits) and done == limits[reached]:
                    reached += 1
            turn += 1
            # A moment that has just begun has seen no whole repetition, and its highest may lie in the first.
            ahead = times - turn - 1 if (reached, closed) == then else 0
            if blocks and reached < len(limits):
                # Stop one whole repetition before the limit, so that it is met inside a repetition looked at.
                ahead = min(ahead, (limits[reached] - done) // blocks - 1)
            if ahead > 0:
                walk.skip(before, ahead)
                turn += ahead
                done += ahead * blocks


def moment_name(walk: Walk, spot: Spot | None, layers: int) -> str:
    """`backward/layers.31/mlp.gate_proj`."""
    if spot is None:
        return "start"
    name, regions = walk.phases[spot.phase]
    piece = regions[spot.region].pieces[spot.piece]
    phase = name.split(".")[0]
    number = layers - 1 - spot.layer if phase == "backward" else spot.layer
    place = piece.place(spot.at, walk.tape)
    before = walk.tape.stacks.get(place.partition(".*")[0], ()) if phase in RECIPES else ()  # a step decodes alone
    number -= sum(len(segment.kinds) * int(value(segment.letter, walk.numbers)) for segment in before)
    return located(phase, place, str(number))


PLAIN = ("mm", "addmm", "embedding", "layer_norm")


def located(phase: str, place: str, layer: str) -> str:
    """A moment from a phase and a place in the model, its layer's number put in."""
    scope, _, operation = place.partition("/")
    scope = scope.removeprefix("model.").removeprefix("transformer.")
    before, star, after = scope.partition(".*")
    if star:
        scope = f"{before}.{layer}/{after.lstrip('.')}" if after else f"{before}.{layer}"
    if operation and operation not in PLAIN:
        scope = f"{scope}.{operation}" if star and after else f"{scope}/{operation}" if scope else operation
    return f"{phase}/{scope}".rstrip("/")


def formula_of(walk: Walk, counts: dict[int, Count], kind: int | None = None) -> tuple[str, str]:
    """The sum of what lives at an instant, in letters and in numbers, before rounding."""
    sums: dict[Key, Count] = {}
    for storage, count in counts.items():
        if (kind is None or walk.kinds[storage] == kind) and not walk.tape.records[storage].scratch:
            total = sums.setdefault(walk.tape.records[storage].key, {})
            for letter, times in count.items():
                total[letter] = total.get(letter, 0) + times
    return terms(sums, walk.numbers)


def kind_peak(walk: Walk, index: int, kind: str, layers: int, lines: tuple[Line, ...], source: str) -> KindPeak:
    top: Highest = walk.kind_peaks[index]
    counts = counts_until(walk, top.spot)
    alive: dict[str, int] = {}
    for storage, count in counts.items():
        if walk.kinds[storage] == index:
            name = walk.tape.records[storage].name
            alive[name] = alive.get(name, 0) + walk.rounded[storage] * number_of(count, walk.numbers)
    most = max(alive, key=lambda name: alive[name], default="")
    biggest = max((line for line in lines if line.kind == kind),
                  key=lambda line: (line.name == most, line.bytes * line.count))
    return KindPeak(top.bytes, moment_name(walk, top.spot, layers), *formula_of(walk, counts, index),
                    f"largest: {biggest.name}: {biggest.why}", source)


def lines_of(walk: Walk, layers: int, source: str) -> tuple[Line, ...]:
    """Storages of one name, size and kind as one line, if they are freed in one phase: forward drops what no gradient
    asks for."""
    tape, numbers = walk.tape, walk.numbers
    born: dict[int, str] = {}
    freed: dict[int, str] = {}
    made: dict[int, int] = {}
    for name, regions in walk.phases:
        phase = name.split(".")[0]
        for region in regions:
            times = walk.times(region)
            for piece in region.pieces:
                marks = dict(piece.places)
                place = ""
                rounds = times * walk.times(piece)
                for at, event in enumerate(piece.events):
                    place = marks.get(at, place)
                    if event >= 0:
                        where = place or tape.records[event].scope
                        born[event], made[event] = located(phase, where, "*"), rounds
                        last = where
                    else:
                        freed[~event] = located(phase, place or last if at else place, "*")
    at_peak = counts_until(walk, walk.peak.spot)
    groups: dict[tuple[Any, ...], list[int]] = {}
    for i, record in enumerate(tape.records):
        phase = freed.get(i, "").partition("/")[0]
        groups.setdefault((record.name, record.key, walk.kinds[i], record.scratch, phase), []).append(i)
    lines = []
    for (name, key, kind, scratch, _), members in groups.items():
        count = sum(made[i] for i in members)
        if not count or not walk.rounded[members[0]]:
            continue
        alive = sum(number_of(at_peak[i], numbers) for i in members if i in at_peak)
        lines.append(Line(
            name=name, kind=KINDS[kind], bytes=walk.rounded[members[0]], count=count,
            formula=size_text(settled(key, numbers)), substituted=size_text(key, numbers),
            born=born[members[0]], freed=freed.get(members[-1], ""),
            why=why_of(tape, members, KINDS[kind], name, born[members[0]], freed.get(members[-1], "")),
            source=tape.records[members[0]].source or source, scratch=scratch, at_peak=alive,
        ))
    return told_apart((*settled_counts(lines), *lines_elsewhere(tape, numbers, source)))


def settled_counts(lines: list[Line]) -> list[Line]:
    """Where a repeated layer frees what the one before it made, the two go by one name each: one count is too low by
    as much as another, of equal size and kind, is too high."""
    for i in (i for i, line in enumerate(lines) if line.at_peak < 0):
        line = lines[i]
        for j, other in enumerate(lines):
            moved = min(-lines[i].at_peak, other.at_peak)
            if moved > 0 and (other.kind, other.bytes, other.scratch) == (line.kind, line.bytes, line.scratch):
                lines[i] = replace(lines[i], at_peak=lines[i].at_peak + moved)
                lines[j] = replace(other, at_peak=other.at_peak - moved)
    return lines


def flops_of(tape: Tape, numbers: Mapping[str, Any]) -> dict[str, int]:
    """Floating-point operations of matrix products: forward, and twice as much backward where both are wanted."""
    total = 0
    for _, per_element, letters, fold in tape.flops:
        product = per_element
        for letter in letters:
            product *= value(letter.rstrip("'"), numbers)
        total += product * (value(fold, numbers) if fold else 1)
    return {"forward": total}
