"""One run as one self-contained HTML page."""

from __future__ import annotations

from f2cto.report.page import render

__all__ = ["render"]
