//! The `sm90` backend as a plugin file, `libm3_backend_sm90.so`.

m3_abi::export_backend!(backend_sm90::DRIVER);
