//! Limits that hold before pixels are made.
