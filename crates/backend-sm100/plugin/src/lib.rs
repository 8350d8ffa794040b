//! The `sm100` backend as a plugin file.
