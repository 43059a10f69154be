"""What is wrong with data, said to users."""

from __future__ import annotations


class DataError(ValueError):
    """Data that are missing or not what they should be; one sentence for users: which file, what is wrong, the fix."""
