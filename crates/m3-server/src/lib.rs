//! m3-server
