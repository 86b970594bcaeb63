"""A record is what a frozen dataclass is: the same class made both ways."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import subprocess
import sys
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import pytest

from peakmem import immutable as module
from peakmem.immutable import immutable


@immutable
class Ours:
    """Fields of every sort."""

    a: int
    b: str = "b"
    c: Mapping[str, int] = module.field(default_factory=dict, hash=False)
    d: int = module.field(default=4, metadata={"unit": "GiB"})
    e: Any = module.field(default=None, repr=False, compare=False)

    @property
    def double(self) -> int:
        return 2 * self.a

    @cached_property
    def kept(self) -> list[int]:
        return [self.a]


@dataclasses.dataclass(frozen=True)
class Theirs:
    """Fields of every sort."""

    a: int
    b: str = "b"
    c: Mapping[str, int] = dataclasses.field(default_factory=dict, hash=False)
    d: int = dataclasses.field(default=4, metadata={"unit": "GiB"})
    e: Any = dataclasses.field(default=None, repr=False, compare=False)


@pytest.mark.parametrize(("given", "named"), [
    ((1,), {}), ((1, "x"), {}), ((), {"a": 1}), ((1,), {"e": 5, "b": "y"}), ((1, "x", {"k": 1}, 2, 3), {})])
def test_the_same_values(given: tuple[Any, ...], named: dict[str, Any]) -> None:
    ours, theirs = Ours(*given, **named), Theirs(*given, **named)
    assert list(vars(ours).items()) == list(vars(theirs).items())
    assert repr(ours).removeprefix("Ours") == repr(theirs).removeprefix("Theirs")
    assert hash(ours) == hash(theirs)
    assert dataclasses.asdict(ours) == dataclasses.asdict(theirs)  # type: ignore[call-overload]


@pytest.mark.parametrize(("given", "named"), [((), {}), ((1, 2, 3, 4, 5, 6), {}), ((1,), {"a": 2}), ((1,), {"z": 2})])
def test_the_same_refusals(given: tuple[Any, ...], named: dict[str, Any]) -> None:
    for cls in (Ours, Theirs):
        with pytest.raises(TypeError):
            cls(*given, **named)


def test_equality_and_hash() -> None:
    assert Ours(1, e=1) == Ours(1, e=2) and hash(Ours(1, e=1)) == hash(Ours(1, e=2))
    assert Ours(1) != Ours(2) and Ours(1) != Theirs(1) and Ours(1, c={"k": 1}) != Ours(1)
    assert len({Ours(1), Ours(1), Ours(2)}) == 2


def test_it_is_frozen() -> None:
    made = Ours(1)
    for change in (lambda: setattr(made, "a", 2), lambda: delattr(made, "a"), lambda: setattr(made, "new", 2)):
        with pytest.raises(AttributeError):
            change()
    assert made.double == 2 and made.kept is made.kept


def test_each_has_its_own_default() -> None:
    assert Ours(1).c is not Ours(1).c
    assert Ours.b == "b" and Ours.d == 4 and not hasattr(Ours, "c")


def test_replace_fields_copies() -> None:
    made = Ours(1, e=7)
    assert module.replace(made, b="z") == dataclasses.replace(made, b="z") == Ours(1, "z")  # type: ignore[type-var]
    assert module.replace(made, b="z").e == 7
    assert module.replace(Theirs(1), b="z") == Theirs(1, "z")
    assert list(module.fields(Ours)) == [f.name for f in dataclasses.fields(Theirs)]
    assert [f.name for f in dataclasses.fields(Ours)] == list(module.fields(Ours))  # type: ignore[arg-type]
    assert module.fields(Ours)["d"].metadata["unit"] == "GiB" and dataclasses.is_dataclass(Ours)
    for again in (copy.copy(made), copy.deepcopy(made), pickle.loads(pickle.dumps(made))):
        assert again == made and vars(again) == vars(made)
    match made:
        case Ours(1, name):
            assert name == "b"


def test_post_init() -> None:
    @immutable
    class Even:
        n: int

        def __post_init__(self) -> None:
            if self.n % 2:
                raise ValueError(self.n)

    assert Even(2).n == 2
    with pytest.raises(ValueError):
        module.replace(Even(2), n=3)


def test_its_module_is_cheap() -> None:
    code = "import sys, peakmem.immutable; print(*({'dataclasses', 'inspect', 'ast'} & set(sys.modules)))"
    shown = subprocess.run([sys.executable, "-c", f"import types, sys; sys.modules['peakmem'] = p = types.ModuleType("
                            f"'peakmem'); p.__path__ = [{module.__file__.rsplit('/', 1)[0]!r}]\n{code}"],
                           capture_output=True, text=True, check=True)
    assert shown.stdout.split() == []
