"""The named data sets."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from f2cto.data.sources import digits
from f2cto.data.sources.source import Source

SOURCES: Mapping[str, Source] = MappingProxyType({source.name: source for source in (digits.SOURCE,)})
