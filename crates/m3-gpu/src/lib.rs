//! m3-gpu
