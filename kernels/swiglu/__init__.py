"""The clamped SwiGLU, for kernels that fuse it."""
