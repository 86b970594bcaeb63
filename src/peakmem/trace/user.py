"""Tracing what a user's own file makes: a module, its inputs, and if wanted an optimizer and a loss.

The file is run: trace only code you trust. Its function is called with ``meta`` as torch's device, and as the GPU, so
that a model of any size costs nothing; what it returns is then moved to the fake GPU.
"""

from __future__ import annotations

import importlib.util
import logging
import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import FrameType
from typing import Any
from unittest import mock

import torch
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.nn.parallel import DistributedDataParallel
from torch.nn.parameter import UninitializedBuffer, UninitializedParameter
from torch.utils import _pytree as pytree

from peakmem.errors import PeakmemError, Unreadable, printable
from peakmem.ledger import Parameters
from peakmem.version import __version__

from . import failures, fake_gpu, hf, sharded
from .bits import without_values
from .called import Called
from .ledger import ledger_of
from .models import kernels
from .on_meta import on_meta
from .optimizers import of_user
from .patches import gpu_answers, not_tracing, one_gpu
from .process import TraceError, placed, report
from .ranks import ranks
from .record import DTYPES, parameter_counts
from .settings import profile
from .step import Step, replace, run
from .tracer import Tracer
from .unanswerable import refuse_layout

RECURRENT = (
    "recurrent layers are traced one time step after another; on a GPU cuDNN runs them whole and keeps a reserve of "
    "its own size"
)
_FIRST = "the loss is the first of the module's outputs"
_LAZY = (UninitializedParameter, UninitializedBuffer)


@dataclass(frozen=True)
class Training:
    """What a user's function may return instead of a tuple.

    `inputs`: positional (a tensor or tuple) or by name (a mapping). `optimizer`: an optimizer over the module's
    parameters, a function of these parameters, or None for AdamW. `loss`: from the module's output to a scalar; None
    takes its ``.loss``, ``["loss"]``, or the output itself if it is a scalar.
    """

    module: torch.nn.Module
    inputs: Any
    optimizer: Any = None
    loss: Callable[[Any], torch.Tensor] | None = None


def as_json(file: str, name: str, gpu: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Run the user's file and trace its step here; return the ledger as JSON has it.

    Raises `PeakmemError` alone, with module, operation and the file's line where they are known.
    """
    logging.getLogger("torch._subclasses.fake_tensor").setLevel(logging.CRITICAL)  # prints a traceback of its own
    at_work: list[Tracer] = []

    def place(frame: FrameType | None) -> str:
        doing = at_work[0].doing() if at_work else ""
        return ", ".join(part for part in (doing, failures.line_now(file, frame)) if part)

    try:
        with placed(place):
            return _as_json(file, name, gpu, options, at_work)
    except PeakmemError as error:
        line = failures.line_of(error, file)
        if not line or type(error) not in (PeakmemError, TraceError):
            raise
        raise type(error)(f"{error}, {line}") from None
    except AssertionError as error:
        if "daemonic processes" not in failures.words(error):
            raise TraceError(_told(error, file)) from None
        raise TraceError(f"{_NO_CHILDREN}, {failures.line_of(error, file)}") from None
    except Exception as error:
        raise TraceError(_told(error, file)) from None


_NO_CHILDREN = ("the traced code starts another process, which a trace cannot follow: load and compute in this one "
                "(DataLoader: num_workers=0)")


def _told(error: BaseException, file: str) -> str:
    return ", ".join(part for part in (failures.said(error), failures.where(error, file)) if part)


def _as_json(file: str, name: str, gpu: str, options: Mapping[str, Any], at_work: list[Tracer]) -> dict[str, Any]:
    sharding = options.get("sharding")
    fake = fake_gpu.set_up(fallback=sharding is None)
    seen = profile(gpu)
    notes: list[str] = []
    packs = b"bitsandbytes" in Path(file).read_bytes()
    answers = gpu_answers(seen, options.get("kernel", ""))
    gpus = options.get("gpus") or (sharding or {}).get("gpus", 1)
    many = ranks(gpus) if sharding or gpus > 1 else one_gpu()
    # Around the file, too: it may take functions of torch by their names. bitsandbytes cannot be imported among ranks.
    with without_values(packs, notes.append), many as mesh, answers as sdpa:
        report(f"running {Path(file).name}")
        training = _made(Path(file), name, notes.append)
        counts = parameter_counts(training.module)
        plan = _plan(training, options, notes)
        with fake_gpu.fake_mode(), not_tracing():
            moved = hf.move(training.module, fake.device)
            if sharding and mesh is not None:
                sharded.divide(sharding, training.module, mesh)
                plan = replace(plan, before=sharded.syncing(sharding, training.module, plan.accumulation))
            inputs = pytree.tree_map_only(torch.Tensor, lambda t: _fresh(t, fake.device), training.inputs)
            tracer = Tracer(fake.device, sdpa)
            at_work.append(tracer)
            if fake.lost:
                tracer.notes.append(f"{fake.way}: {fake.lost}")
            optimizer = _optimizer(training, moved, sharding is not None)
            with sharded.collectives(tracer):
                run(tracer, Called(training.module, inputs), _tensors(inputs), optimizer, plan)
    report("reading the events")
    tracer.notes.extend(notes)
    if any(isinstance(module, torch.nn.RNNBase) for module in training.module.modules()):
        tracer.notes.append(RECURRENT)
    return _ledger(tracer, f"{Path(file).name}:{name}", options, gpu, counts, dict(sdpa.calls), plan.steps)


def _ledger(
    tracer: Tracer,
    place: str,
    options: Mapping[str, Any],
    gpu: str,
    counts: tuple[int, int],
    calls: dict[str, int],
    steps: int,
) -> dict[str, Any]:
    given = {name: value for name, value in options.items() if value is not None and name != "sharding"}
    told = {
        "peakmem": __version__,
        "mirrors": {"torch": torch.__version__},
        "model": place,
        "gpu": gpu,
        **given,
        **(options.get("sharding") or {}),
    }
    calls = {name: count // steps for name, count in calls.items()}
    ran = f"the code in {place.rpartition(':')[0]} was run, on the fake GPU {profile(gpu).name}"
    parameters = Parameters(counts[0], counts[1], counts[0])
    notes = (ran, *kernels(calls))
    return ledger_of(tracer, told, parameters, notes, gpu).as_json(timeline=True)


def _made(path: Path, name: str, note: Callable[[str], None]) -> Training:
    """Return what the user's function makes, on the meta device. Raises what it raises."""
    asked: dict[str, None] = {}

    def told(value: object) -> None:
        place = failures.line_now(str(path)) or "a library"
        asked[f"{place} asked a tensor for its value while the module was built; it was told {value}"] = None

    with ExitStack() as refusals:
        for target, word, answer in _REFUSED:
            refusals.enter_context(mock.patch.object(target, word, answer))
        function = _function(path, name)
        with on_meta(told):
            made = function()
    for text in asked:
        note(text)
    if not isinstance(made, Training):
        if not isinstance(made, tuple) or not 2 <= len(made) <= 4 or not isinstance(made[0], torch.nn.Module):
            raise PeakmemError(
                f"{name}() must return (module, inputs[, optimizer[, loss]]), not {printable(type(made).__name__)}"
            )
        made = Training(*made)
    kept = [*made.module.parameters(), *made.module.buffers()]
    for part, held in (("module holds", kept), ("inputs hold", pytree.tree_leaves(made.inputs))):
        for tensor in held:
            dense = not isinstance(tensor, torch.Tensor) or tensor.layout is torch.strided and not tensor.is_nested
            if not dense:
                refuse_layout(tensor, f"the {part}")
    if any(isinstance(tensor, _LAZY) for tensor in kept):
        _settle(made)
    return made


def _settle(training: Training) -> None:
    """Call a module with lazy parts once, on meta tensors, so that they get their sizes."""
    inputs = pytree.tree_map_only(torch.Tensor, lambda t: t.to("meta"), training.inputs)
    with torch.no_grad():
        Called(training.module, inputs)()


def _no_compile(*args: Any, **kwargs: Any) -> Any:
    raise TraceError(
        "torch.compile: what a compiled program allocates is Inductor's choice, which no trace of operations "
        "sees; trace the module without it"
    )


def _no_replica(*args: Any, **kwargs: Any) -> Any:
    raise TraceError(
        "DistributedDataParallel and FSDP1 make their buckets in C++, which no trace of operations sees; trace the "
        "module without them: DistributedDataParallel adds buckets as large as the gradients. --shard fsdp2 is traced"
    )


_REFUSED: tuple[tuple[Any, str, Any], ...] = (
    (torch, "compile", _no_compile),
    (torch.nn.Module, "compile", _no_compile),
    (DistributedDataParallel, "__init__", _no_replica),
    (FullyShardedDataParallel, "__init__", _no_replica),
)


def _plan(training: Training, options: Mapping[str, Any], notes: list[str]) -> Step:
    def chosen(output: Any) -> Any:
        if training.loss is not None:
            loss = training.loss(output) if callable(training.loss) else None
            if not isinstance(loss, torch.Tensor) or loss.numel() != 1:
                raise PeakmemError("the fourth value must be a function from the module's output to a scalar tensor")
            return loss
        if isinstance(output, (tuple, list)) and _FIRST not in notes:
            notes.append(_FIRST)
        return scalar_of(output)

    fields = {
        name: value for name, value in options.items() if name in ("accumulation", "clip", "set_to_none", "steps")
    }
    autocast = options.get("autocast")
    cast = None if autocast is None else DTYPES[autocast]
    return Step(loss=chosen, autocast=cast, **fields)


def _function(path: Path, name: str) -> Callable[[], Any]:
    sys.path.insert(0, str(path.parent))
    # A file that is called torch.py, or like another module that is loaded, does not stand for it.
    called = path.stem if path.stem not in sys.modules else f"{path.stem} of {path.parent}"
    spec = importlib.util.spec_from_file_location(called, path, loader=SourceFileLoader(called, str(path)))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[called] = module
    spec.loader.exec_module(module)
    function = getattr(module, name, None)
    if not callable(function):
        raise Unreadable(f"{printable(str(path))}: has no function {name}")
    return function  # type: ignore[no-any-return]


def _fresh(tensor: torch.Tensor, device: str) -> torch.Tensor:
    new = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=device)
    return new.requires_grad_(tensor.requires_grad)


def _optimizer(training: Training, moved: Mapping[int, torch.Tensor], sharded: bool) -> Any:
    trained = [p for p in training.module.parameters() if p.requires_grad]
    if training.optimizer is None:
        if not trained:
            raise PeakmemError("the module has no parameter that is trained (requires_grad): AdamW has nothing to do")
        return torch.optim.AdamW(trained)
    if sharded and not callable(training.optimizer):
        raise PeakmemError(
            "with --shard fsdp2 parameters are replaced by shards: return a function of the parameters in "
            "place of an optimizer, for instance torch.optim.AdamW"
        )
    return of_user(training.optimizer, trained, moved)


def _tensors(inputs: Any) -> dict[str, torch.Tensor]:
    leaves = pytree.tree_leaves(inputs)
    return {str(i): leaf for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)}


def scalar_of(output: Any) -> torch.Tensor:
    """Return the loss in a module's output: ``.loss``, ``["loss"]``, the first of a tuple, or the output itself.

    It has one element.
    Raises `PeakmemError` if there is none.
    """
    if isinstance(output, Mapping) and "loss" in output:
        output = output["loss"]
    output = getattr(output, "loss", output)
    if isinstance(output, (tuple, list)) and output:
        output = output[0]
    if isinstance(output, torch.Tensor) and output.numel() == 1:
        return output
    raise PeakmemError("the module's output holds no loss (a scalar, .loss, [\"loss\"], or a tuple that begins with "
                       "it): return a fourth value, a function from output to scalar")
