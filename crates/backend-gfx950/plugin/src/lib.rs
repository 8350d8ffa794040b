//! The `gfx950` backend as a plugin file.
