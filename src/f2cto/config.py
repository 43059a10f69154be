"""Settings out of nested mappings, as TOML files and `--set key=value` give them, and back."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

T = TypeVar("T")


class SettingsError(ValueError):
    """A setting that is not known or cannot have the value it was given; the text is one sentence for users."""


def build(cls: type[T], values: Mapping[str, Any], path: str = "") -> T:
    """A dataclass from a mapping: missing keys keep their defaults, unknown ones are refused.

    Args:
        cls: a dataclass whose fields are numbers, strings, enumerations, tuples or dataclasses again.
        values: what is set.
        path: where `values` stand, for errors.

    """
    hints = get_type_hints(cls)
    known = [f.name for f in fields(cls)]  # type: ignore[arg-type]  # cls is a dataclass
    for key in values:
        if key not in known:
            raise SettingsError(_unknown(path, key, known))
    values = {f.name: _completed(f, values[f.name]) for f in fields(cls) if f.name in values}  # type: ignore[arg-type]
    given = {key: _convert(hints[key], value, path + key) for key, value in values.items()}
    try:
        return cls(**given)
    except SettingsError:
        raise
    except (ValueError, TypeError, ImportError) as error:  # the last where a setting needs an extra that is missing
        where = f"In `{path.rstrip('.')}`: " if path else ""
        msg = f"{where}{error}"
        raise SettingsError(msg) from error


def plain(settings: object) -> dict[str, Any]:
    """A dataclass as a nested mapping of values that TOML can hold; `build` turns it back."""
    return {f.name: _plain(getattr(settings, f.name)) for f in fields(settings)}  # type: ignore[arg-type]


def read_toml(path: Path) -> dict[str, Any]:
    """A TOML file's content."""
    try:
        with path.open("rb") as file:
            return tomllib.load(file)
    except OSError as error:
        msg = f"Cannot read settings from {path}: {error.strerror}."
        raise SettingsError(msg) from error
    except (ValueError, RecursionError) as error:  # also of endless numbers and of values nested too deep
        msg = f"{path} is not a valid TOML file: {error}."
        raise SettingsError(msg) from error


def merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Two nested mappings in one; where both have a value, the one above wins."""
    result = dict(below)
    for key, value in above.items():
        both = isinstance(value, Mapping) and isinstance(result.get(key), Mapping)
        result[key] = merged(result[key], value) if both else value
    return result


def differences(former: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """The dotted keys at which two nested mappings differ."""
    a, b = flat(former), flat(now)
    return [key for key in sorted({*a, *b}) if a.get(key) != b.get(key)]


def flat(values: Mapping[str, Any], path: str = "") -> dict[str, Any]:
    """A nested mapping by dotted keys."""
    found: dict[str, Any] = {}
    for key, value in values.items():
        found |= flat(value, f"{path}{key}.") if isinstance(value, Mapping) else {path + key: value}
    return found


def assignment(text: str) -> dict[str, Any]:
    """The nested mapping that `a.b=value` stands for; values are TOML, bare words are strings."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        msg = f"A setting must look like key=value; got `{text}`."
        raise SettingsError(msg)
    return nested(key.strip(), _value(value.strip()))


def assignments(texts: Iterable[str]) -> dict[str, Any]:
    """What several such texts say together; where two have a value, the later one wins."""
    values: dict[str, Any] = {}
    for text in texts:
        values = merged(values, assignment(text))
    return values


def nested(path: str, value: Any) -> dict[str, Any]:  # noqa: ANN401
    """The nested mapping with one value at a dotted path."""
    for part in reversed(path.split(".")):
        value = {part: value}
    return dict(value)


def _value(text: str) -> Any:  # noqa: ANN401  (whatever TOML holds)
    try:
        values = tomllib.loads(f"v = {text}")
    except tomllib.TOMLDecodeError:
        return text
    except (ValueError, RecursionError) as error:
        msg = f"The value `{text[:20]}…` cannot be read: {error}."
        raise SettingsError(msg) from error
    return values["v"] if len(values) == 1 else text  # more than one: it has lines


def _completed(field: Field[Any], value: Any) -> Any:  # noqa: ANN401
    """A group with what it leaves out as the field has it by default, which need not be the default of its class."""
    if not isinstance(value, Mapping) or field.default_factory is MISSING:
        return value
    default = field.default_factory()
    return merged(plain(default), value) if is_dataclass(default) else value


def _convert(hint: Any, value: Any, path: str) -> Any:  # noqa: ANN401
    if is_dataclass(hint) and isinstance(hint, type):
        if not isinstance(value, Mapping):
            msg = f"`{path}` is a group of settings; set one of its keys, such as `{path}.{fields(hint)[0].name}`."
            raise SettingsError(msg)
        return build(hint, value, path + ".")
    if get_origin(hint) is Mapping:
        if not isinstance(value, Mapping):
            raise SettingsError(_wrong(path, "a group of settings", value))
        return dict(value)
    if get_origin(hint) is tuple:
        if not isinstance(value, list | tuple):
            raise SettingsError(_wrong(path, "a list such as [100, 100]", value))
        return tuple(_convert(get_args(hint)[0], item, f"{path}[{i}]") for i, item in enumerate(value))
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        options = [str(option) for option in hint]
        if value not in options:
            raise SettingsError(_wrong(path, "one of " + ", ".join(options), value))
        return hint(value)
    return _number_or_text(hint, value, path)


def _number_or_text(hint: Any, value: Any, path: str) -> Any:  # noqa: ANN401
    is_bool = isinstance(value, bool)
    if hint is float and isinstance(value, int | float) and not is_bool:
        return float(value)
    if hint is int and isinstance(value, int) and not is_bool:
        return value
    if hint is bool and is_bool:
        return value
    if hint is str and isinstance(value, str):
        return value
    names = {float: "a number", int: "a whole number", bool: "true or false", str: "a text"}
    raise SettingsError(_wrong(path, names[hint], value))


def _plain(value: Any) -> Any:  # noqa: ANN401
    if is_dataclass(value) and not isinstance(value, type):
        return plain(value)
    if isinstance(value, StrEnum):
        return str(value)
    if isinstance(value, Mapping):
        return dict(value)
    return list(value) if isinstance(value, tuple) else value


def _wrong(path: str, expected: str, value: object) -> str:
    return f"`{path}` must be {expected}; got {value!r}."


def _unknown(path: str, key: str, known: list[str]) -> str:
    near = difflib.get_close_matches(key, known, n=1)
    hint = f"did you mean `{path}{near[0]}`?" if near else f"known here: {', '.join(path + name for name in known)}."
    return f"There is no setting `{path}{key}`; {hint}"
