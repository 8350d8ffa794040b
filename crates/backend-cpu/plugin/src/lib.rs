//! The `cpu` backend as a plugin file, `libm3_backend_cpu.so`.

m3_abi::export_backend!(backend_cpu::CpuDriver::detect());
