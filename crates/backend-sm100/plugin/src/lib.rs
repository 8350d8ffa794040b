//! The `sm100` backend as a plugin file, `libm3_backend_sm100.so`.

m3_abi::export_backend!(backend_sm100::DRIVER);
