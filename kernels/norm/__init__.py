"""Norm kernels."""
