"""Router and grouping kernels."""
