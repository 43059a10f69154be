"""Distributed robust coreset selection."""
