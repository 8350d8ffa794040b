//! The `sm90` backend as a plugin file.
