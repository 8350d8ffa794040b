"""Ahead-of-time compilation of the kernels that `manifest.toml` lists. Nothing here runs on a server."""
