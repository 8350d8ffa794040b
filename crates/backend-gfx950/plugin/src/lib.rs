//! The `gfx950` backend as a plugin file, `libm3_backend_gfx950.so`.

m3_abi::export_backend!(backend_gfx950::DRIVER);
