//! The `gfx942` backend as a plugin file.
