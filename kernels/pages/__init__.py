"""Page upkeep kernels."""
