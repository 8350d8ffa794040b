"""Shared by the kernels that multiply matrices."""
