"""Synthetic weights."""
