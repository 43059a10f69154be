"""docs/paper.md says which function is which equation; the code must agree."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import pytest

PAGE = (Path(__file__).parent.parent / "docs" / "paper.md").read_text()
ROWS = re.findall(r"^\| \((\d+)\) \|.*?\| `(f2cto\.[\w.]+)` \|", PAGE, flags=re.MULTILINE)


def test_every_numbered_equation_has_a_row() -> None:
    assert sorted({int(number) for number, _ in ROWS}) == list(range(1, 17))


@pytest.mark.parametrize(("number", "name"), ROWS)
def test_the_function_exists_and_names_its_equation(number: str, name: str) -> None:
    parts = name.split(".")
    at = next(i for i in range(len(parts), 0, -1) if _is_module(".".join(parts[:i])))
    thing = import_module(".".join(parts[:at]))
    for part in parts[at:]:
        thing = getattr(thing, part)
    assert f"Eq. ({number})" in (thing.__doc__ or "")


def _is_module(name: str) -> bool:
    try:
        import_module(name)
    except ModuleNotFoundError:
        return False
    return True
