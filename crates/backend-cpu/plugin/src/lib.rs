//! The `cpu` backend as a plugin file.
