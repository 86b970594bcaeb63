"""Optimizers: what each keeps per parameter, and what one step needs besides.

Rows say it in words that `estimate/optimizers.py` turns into tensors:

layout of a state   "full"             as many elements as the parameter
                    "8bit blocks 256"  one byte per element and one fp32 scale per 256, for tensors of `least`
                                       elements and more; smaller ones stay full
                    "4bit blocks 128"  half a byte per element and one fp32 scale per 128, the same way
                    "rows+columns"     one vector per side of a matrix; vectors stay full
temporaries         ("none", 0)        nothing
                    ("group", n)       n copies of all parameters of one dtype at once
                    ("tensor", n)      n copies of the largest parameter
                    ("own", 0)         sizes that are no multiple of the parameter: a rule of its own
"""

from __future__ import annotations

from collections.abc import Mapping

from peakmem.errors import UnknownName
from peakmem.immutable import field, immutable

NONE, OWN = ("none", 0), ("own", 0)


@immutable
class Optimizer:
    """One optimizer with its default arguments."""

    name: str
    title: str
    states: int  # states per trained parameter, of the given layout
    source: str
    layout: str = "full"
    state_names: tuple[str, ...] = ()
    temporaries: Mapping[str, tuple[str, int]] = field(default_factory=dict)  # implementation -> words above
    device_step: frozenset[str] = frozenset()  # implementations that keep a 4-byte step counter per parameter
    least: int = 0  # parameters with fewer elements have full states
    divisible: bool = False  # … and so have those whose size is no multiple of the block
    small_dtype: str = "parameter"  # dtype of the full states of such parameters: "parameter" or "fp32"
    tables: int = 0  # bytes of lookup tables, each a tensor of its own
    tables_per: str = ""  # "optimizer": `states` tables in all; "state": one per quantised state
    rest: str = ""  # the optimizer of what this one cannot take: vectors, embedding and head
    aliases: tuple[str, ...] = ()
    note: str = ""

    @property
    def block(self) -> int:
        """Elements that share one scale; 0 when the layout has none."""
        return int(self.layout.rsplit(" ", 1)[1]) if "blocks" in self.layout else 0

    def form(self, asked: str) -> str:
        """How a step runs: as asked, where there is that form; else in the first one, PyTorch's default."""
        return asked if asked in self.temporaries else next(iter(self.temporaries))


def _torch(name: str, title: str, states: tuple[str, ...], file: str, foreach: tuple[str, int],
           loop: tuple[str, int], fused: bool = False, step: bool = False, aliases: tuple[str, ...] = (),
           note: str = "") -> Optimizer:
    """A row of torch.optim; the temporaries were counted on torch 2.13, tensor by tensor."""
    ways = {"foreach": foreach, "loop": loop} | ({"fused": NONE} if fused else {})
    return Optimizer(name, title, len(states), f"torch 2.13 optim/{file}", state_names=states, temporaries=ways,
                     device_step=frozenset({"fused"} if step else ()), aliases=aliases, note=note)


_ADAM = ("exp_avg", "exp_avg_sq")

OPTIMIZERS: Mapping[str, Optimizer] = {row.name: row for row in (
    Optimizer("none", "no step: gradients only", 0, "nothing is kept",
              temporaries={"foreach": NONE, "fused": NONE, "loop": NONE}),
    _torch("sgd", "SGD without momentum", (), "sgd.py", NONE, NONE, fused=True),
    _torch("momentum", "SGD with momentum", ("momentum_buffer",), "sgd.py", NONE, NONE, fused=True,
           aliases=("sgd-momentum", "sgdm")),
    _torch("nesterov", "SGD with Nesterov's momentum", ("momentum_buffer",), "sgd.py", NONE, ("tensor", 1),
           fused=True, aliases=("sgd-nesterov",)),
    _torch("adam", "Adam", _ADAM, "adam.py", ("group", 1), ("tensor", 3), fused=True, step=True),
    _torch("adamw", "AdamW", _ADAM, "adam.py", ("group", 1), ("tensor", 3), fused=True, step=True,
           aliases=("adamw-torch", "adamw-torch-fused"),
           note="foreach takes the square roots of all second moments at once: one more copy of the parameters"),
    _torch("amsgrad", "AdamW with amsgrad", (*_ADAM, "max_exp_avg_sq"), "adam.py", ("group", 1), ("tensor", 3),
           fused=True, step=True),
    _torch("rmsprop", "RMSprop", ("square_avg",), "rmsprop.py", ("group", 1), ("tensor", 2)),
    _torch("adagrad", "Adagrad", ("sum",), "adagrad.py", ("group", 2), ("tensor", 2), fused=True, step=True,
           note="its constructor makes the states: they exist before the first step"),
    _torch("adadelta", "Adadelta", ("square_avg", "acc_delta"), "adadelta.py", ("group", 2), ("tensor", 3)),
    _torch("adamax", "Adamax", ("exp_avg", "exp_inf"), "adamax.py", ("group", 1), ("tensor", 1)),
    _torch("nadam", "NAdam", _ADAM, "nadam.py", ("group", 1), ("tensor", 3)),
    Optimizer("adafactor", "Adafactor, torch's", 1, "torch 2.13 optim/_adafactor.py", "rows+columns",
              ("row_var", "col_var"), {"loop": OWN, "foreach": OWN},
              note="a loop over tensors by default, even where others use foreach"),
    Optimizer("lion", "Lion", 1, "lucidrains/lion-pytorch 05258c9, update_fn; Chen et al. 2023, "
              "https://arxiv.org/abs/2302.06675", state_names=("exp_avg",),
              temporaries={"loop": ("tensor", 2), "fused": NONE},
              note="no torch.optim class: the loop of lion-pytorch, or its one-kernel form"),
    Optimizer("muon", "Muon for hidden matrices, AdamW for the rest", 1, "torch 2.13 optim/_muon.py",
              state_names=("momentum_buffer",), temporaries={"foreach": OWN, "loop": OWN, "fused": OWN}, rest="adamw",
              note="2-D matrices only; embedding, head, vectors and stacked experts go to AdamW, and foreach, loop "
              "and fused say how that one runs: Muon itself is a loop"),
    Optimizer("adamw-8bit", "AdamW with 8-bit states, bitsandbytes", 2, "bitsandbytes optim/optimizer.py: "
              "init_state, blocksize 256, min_8bit_size 4096; Dettmers et al. 2022, https://arxiv.org/abs/2110.02861",
              "8bit blocks 256", ("state1", "state2"), {"fused": NONE}, least=4096, small_dtype="fp32", tables=1024,
              tables_per="optimizer", aliases=("adamw-bnb-8bit", "adam-8bit", "adamw8bit"),
              note="transformers' Trainer keeps 32-bit states for every nn.Embedding; bitsandbytes itself does not"),
    Optimizer("adamw-4bit", "AdamW with 4-bit states, torchao", 2, "torchao optim/subclass_4bit.py, optim/adam.py: "
              "block 128, 4096 elements and more; Li et al. 2023, https://arxiv.org/abs/2309.01507",
              "4bit blocks 128", _ADAM, {"fused": NONE}, least=4096, divisible=True, tables=64,
              tables_per="state", aliases=("adamw-torch-4bit", "adamw4bit"),
              note="compiled for each tensor: no temporary is written out"),
)}

_NAMES: Mapping[str, str] = {a: row.name for row in OPTIMIZERS.values() for a in (row.name, *row.aliases)}


def find_optimizer(name: str) -> Optimizer:
    """The row of an optimizer, by its name or an alias; `_` and `-` are the same.

    Errors: UnknownName.
    """
    key = name.lower().replace("_", "-")
    if key not in _NAMES:
        raise UnknownName("optimizer", name, OPTIMIZERS, "peakmem list optimizers", about=["optimizer"])
    return OPTIMIZERS[_NAMES[key]]
