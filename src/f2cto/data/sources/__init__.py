"""The named data sets."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from f2cto.data.sources import cifar100, digits, edge_iiotset, hapt, mnist, tiny_imagenet, unsw_nb15
from f2cto.data.sources.source import Source

MODULES = (digits, mnist, cifar100, tiny_imagenet, edge_iiotset, unsw_nb15, hapt)
SOURCES: Mapping[str, Source] = MappingProxyType({module.SOURCE.name: module.SOURCE for module in MODULES})
