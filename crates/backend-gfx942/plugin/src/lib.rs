//! The `gfx942` backend as a plugin file, `libm3_backend_gfx942.so`.

m3_abi::export_backend!(backend_gfx942::DRIVER);
