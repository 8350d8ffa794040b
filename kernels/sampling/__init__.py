"""The device sampler and its specification in numpy."""
