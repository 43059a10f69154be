"""Small things: files, functions and classes stay readable."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FILES = sorted(p for folder in ("src", "testing", "benchmarks", "examples") for p in (ROOT / folder).rglob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_sizes(path: Path) -> None:
    text = path.read_text()
    assert len(text.splitlines()) <= 300
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef):
            doc = ast.get_docstring(node, clean=False)
            lines = (node.end_lineno or 0) - node.lineno + 1 - (len(doc.splitlines()) if doc else 0)
            assert lines <= 40, f"{node.name} has {lines} lines of code"
        if isinstance(node, ast.ClassDef):
            fields = [item for item in node.body if isinstance(item, ast.AnnAssign)]
            assert len(fields) <= 11, f"{node.name} has {len(fields)} fields"
