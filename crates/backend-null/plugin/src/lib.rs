//! The `null` backend as a plugin file.
