"""Embedding kernel."""
