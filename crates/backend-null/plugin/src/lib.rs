//! The `null` backend as a plugin file, `libm3_backend_null.so`.

m3_abi::export_backend!(backend_null::NullDriver);
