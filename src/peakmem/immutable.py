"""Frozen rows of named fields: what `@dataclass(frozen=True)` gives, without compiling code for every class.

A dataclass compiles six functions when its class is made, and its module imports `inspect`: with two dozen classes
that was a third of a cold `peakmem estimate`. Here all classes share these functions. `replace`, `fields` and `asdict`
of `dataclasses` work on records, and type checkers see dataclasses. Records do not inherit fields.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any, TypeVar, dataclass_transform

T = TypeVar("T")
MISSING: Any = object()


class Field:
    """What is known of a field beside its name and type."""

    __slots__ = ("compare", "default", "default_factory", "hash", "metadata", "repr")

    def __init__(self, default: Any = MISSING, default_factory: Callable[[], Any] | None = None,
                 metadata: Mapping[str, Any] | None = None, hash: bool = True, repr: bool = True,
                 compare: bool = True) -> None:
        self.default, self.default_factory, self.metadata = default, default_factory, metadata or {}
        self.hash, self.repr, self.compare = hash and compare, repr, compare


def field(*, default: Any = MISSING, default_factory: Callable[[], Any] | None = None,
          metadata: Mapping[str, Any] | None = None, hash: bool = True, repr: bool = True, compare: bool = True) -> Any:
    """A field with more to it than a default; arguments as in `dataclasses.field`."""
    return Field(default, default_factory, metadata, hash, repr, compare)


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def immutable(cls: type[T]) -> type[T]:
    """Make a class of annotated fields an immutable class."""
    found: dict[str, Field] = {}
    for name in cls.__dict__.get("__annotations__", {}):
        default = cls.__dict__.get(name, MISSING)
        found[name] = default if isinstance(default, Field) else Field(default)
        if isinstance(default, Field):
            if default.default is MISSING:
                delattr(cls, name)
            else:
                setattr(cls, name, default.default)
    given: dict[str, Any] = {
        "__record__": found, "__match_args__": tuple(found), "__dataclass_fields__": _Fields(),
        "_compared": staticmethod(_values([name for name, row in found.items() if row.compare])),
        "_hashed": staticmethod(_values([name for name, row in found.items() if row.hash])),
        "__init__": _init, "__setattr__": _set, "__delattr__": _delete, "__eq__": _eq, "__hash__": _hash}
    for name, value in given.items():
        setattr(cls, name, value)
    if "__repr__" not in cls.__dict__:
        cls.__repr__ = _repr  # type: ignore[method-assign]
    return cls


def replace(given: T, /, **changes: Any) -> T:
    """The same with other values in some fields; of a dataclass, too."""
    cls: Any = type(given)
    if not hasattr(cls, "__record__"):
        import dataclasses

        return dataclasses.replace(given, **changes)  # type: ignore[type-var]
    made: T = cls(**{name: getattr(given, name) for name in cls.__record__ if name not in changes}, **changes)
    return made


def fields(cls: Any) -> Mapping[str, Field]:
    """The fields of an immutable class or of its class, by name and in order."""
    found: Mapping[str, Field] = cls.__record__
    return found


def _values(names: list[str]) -> Callable[[Any], Any]:
    return attrgetter(*names) if names else lambda _: ()


def _init(self: Any, *given: Any, **named: Any) -> None:
    rows: dict[str, Field] = self.__record__
    if len(given) > len(rows):
        raise TypeError(f"{type(self).__name__} has {len(rows)} fields, {len(given)} values are given")
    values = dict(zip(rows, given))
    for name in self.__match_args__[len(given) :]:
        if name in named:
            values[name] = named.pop(name)
            continue
        row = rows[name]
        values[name] = row.default_factory() if row.default_factory else row.default
        if values[name] is MISSING:
            raise TypeError(f"{type(self).__name__} needs a value for {name!r}")
    if named:
        raise TypeError(f"{type(self).__name__}: no field, or given twice: {', '.join(named)}")
    self.__dict__.update(values)
    if hasattr(self, "__post_init__"):
        self.__post_init__()


def _repr(self: Any) -> str:
    shown = ", ".join(f"{name}={getattr(self, name)!r}" for name, row in self.__record__.items() if row.repr)
    return f"{type(self).__qualname__}({shown})"


def _eq(self: Any, other: Any) -> Any:
    if type(other) is not type(self):
        return NotImplemented
    return self._compared(self) == self._compared(other)


def _hash(self: Any) -> int:
    return hash(self._hashed(self))


def _set(self: Any, name: str, value: object) -> None:
    raise AttributeError(f"cannot assign to field {name!r}")


def _delete(self: Any, name: str) -> None:
    raise AttributeError(f"cannot delete field {name!r}")


class _Fields:
    """What the functions of `dataclasses` look for, made when they look."""

    def __get__(self, instance: object, cls: Any) -> dict[str, Any]:
        import dataclasses

        class Made:
            pass

        made_of: Any = dataclasses.dataclass

        row: Any
        for name, row in cls.__record__.items():
            more: dict[str, Any] = {part: getattr(row, part) for part in ("metadata", "repr", "compare", "hash")}
            if row.default_factory:
                more["default_factory"] = row.default_factory
            elif row.default is not MISSING:
                more["default"] = row.default
            setattr(Made, name, dataclasses.field(**more))
        Made.__annotations__ = dict(cls.__annotations__)
        made = {row.name: row for row in dataclasses.fields(made_of(Made))}
        cls.__dataclass_fields__ = made
        return made
