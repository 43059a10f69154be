"""Imports point one way, and only the edges talk: checked on the source itself."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

SRC = Path(__file__).parent.parent / "src" / "f2cto"

# What each room may import from the package; a room is a folder or a module of src/f2cto.
MAY_IMPORT: dict[str, set[str]] = {
    "__init__": {"attacks", "selection", "methods", "training"},
    "message": set(),
    "constraints": set(),
    "records": set(),
    "config": set(),
    "hardware": set(),
    "descent": {"constraints"},
    "randomness": {"constraints"},
    "models": {"hardware", "randomness"},
    "trilevel": {"constraints", "descent", "message", "randomness"},
    "hypergradient": {"constraints"},
    "federation": {"config", "message"},
    "counting": set(),
    "privacy": set(),
    "data": {"randomness"},
    "fetching": {"data"},
    "attacks": {"constraints", "descent", "randomness"},
    "training": {"attacks", "descent", "hardware", "models"},
    "methods": {
        *{"attacks", "config", "constraints", "descent", "federation", "hardware", "message", "models", "randomness"},
        *{"hypergradient", "privacy", "training", "trilevel"},
    },
    "selection": {
        "training",
        "attacks",
        "config",
        "data",
        "federation",
        "hardware",
        "models",
        "randomness",
        "methods",
        "trilevel",
    },
    "evaluation": {"attacks", "data", "models", "randomness", "records", "training"},
    "run_settings": {
        *{"attacks", "config", "data", "evaluation", "federation", "models", "resnet", "methods", "signals"},
        *{"training"},
    },
    "preparation": {
        *{"attacks", "config", "data", "evaluation", "hardware", "models", "randomness", "run_settings"},
        *{"selection"},
    },
    "fleets": {"cluster", "federation", "run_settings", "methods"},
    "experiment": {
        *{"config", "data", "evaluation", "fleets", "models", "preparation", "randomness", "records", "selection"},
        *{"methods", "trilevel"},
    },
    "rehearsal": {
        *{"attacks", "data", "models", "preparation", "randomness", "records", "run_settings", "selection", "training"},
    },
    "comparison": {
        *{"config", "counting", "preparation", "randomness", "records", "rehearsal", "run_settings"},
        *{"selection", "methods", "training"},
    },
    "comparison_folder": {"config", "records", "rehearsal", "writing"},
    "tuning_spaces": set(),
    "tuning_tpe": {"config", "tuning_spaces"},
    "tuning": {
        *{"comparison", "config", "evaluation", "preparation", "randomness", "records", "run_settings", "methods"},
        *{"tuning_spaces"},
    },
    "resnet": set(),
    "signals": {"resnet"},
    "site": {
        *{"attacks", "config", "data", "federation", "message", "models", "privacy", "randomness", "run_settings"},
        *{"selection", "methods", "writing"},
    },
    "cluster": {
        "training",
        *{"attacks", "config", "data", "federation", "message", "models", "randomness", "selection", "methods"},
        *{"writing"},
    },
    "flower": {
        *{"config", "data", "experiment", "federation", "message", "preparation", "presets", "privacy"},
        *{"run_settings", "selection", "methods", "site", "trilevel", "writing"},
    },
    "bench": {
        *{"attacks", "counting", "data", "federation", "hardware", "hypergradient", "message", "models"},
        *{"cluster", "randomness", "resnet", "selection", "methods", "training", "trilevel"},
    },
    "report": {"records"},
    "presets": {"config"},
    "folder": {"config", "records", "writing"},
    "writing": set(),
    "cli": {
        "bench",
        "cluster",
        "comparison",
        "comparison_folder",
        "config",
        "data",
        "experiment",
        "fetching",
        "folder",
        "hardware",
        "preparation",
        "presets",
        "records",
        "report",
        "run_settings",
        "selection",
        "methods",
        "trilevel",
        *{"federation", "flower", "site", "tuning", "tuning_spaces", "tuning_tpe", "writing"},
    },
}
MODULES = sorted(SRC.rglob("*.py"))
EDGES = {"cli", "comparison_folder", "fetching", "folder", "writing"}
EDGE_MODULES = {  # of rooms that else neither print nor write
    *{SRC / "cluster" / "host.py", SRC / "site" / "store.py"},
    *{SRC / "flower" / name for name in ("context_store.py", "master_folder.py", "server_app.py")},
}


def room(path: Path) -> str:
    return path.relative_to(SRC).parts[0].removesuffix(".py")


def imported(path: Path) -> set[str]:
    names = set[str]()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "f2cto":
            parts = (node.module or "").split(".")
            names |= {parts[1]} if len(parts) > 1 else {alias.name for alias in node.names}
        assert not (isinstance(node, ast.ImportFrom) and node.level), f"{path}: relative import"
    return names - {room(path)}


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(SRC)))
def test_imports_point_one_way(path: Path) -> None:
    assert room(path) in MAY_IMPORT, "a new room: say in the table what it may import"
    assert imported(path) <= MAY_IMPORT[room(path)]


def test_the_table_has_no_circles() -> None:
    done = set[str]()
    while left := set(MAY_IMPORT) - done:
        ready = {name for name in left if MAY_IMPORT[name] <= done}
        assert ready, f"circular: {left}"
        done |= ready


@pytest.mark.parametrize(
    "path",
    [p for p in MODULES if room(p) not in EDGES and p not in EDGE_MODULES],
    ids=lambda p: str(p.relative_to(SRC)),
)
def test_library_code_neither_prints_nor_writes(path: Path) -> None:
    calls = {
        node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
    }
    assert not calls & {"print", "write_text", "write_bytes", "mkdir", "unlink"}


def test_reports_know_no_torch() -> None:
    for path in (SRC / "report").glob("*.py"):
        assert "torch" not in path.read_text()
