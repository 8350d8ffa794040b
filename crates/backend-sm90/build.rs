//! Embeds the kernel pack that `cargo xtask build --backend sm90` names, or an empty one: a plain `cargo build` needs no
//! Python and makes a plugin that says that its kernels are missing.

use std::path::PathBuf;
use std::{env, fs};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=M3_KERNEL_PACK");
    let embedded = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR")).join("kernels.pack");
    match env::var_os("M3_KERNEL_PACK").filter(|path| !path.is_empty()) {
        Some(pack) => {
            println!("cargo::rerun-if-changed={}", pack.to_string_lossy());
            if let Err(error) = fs::copy(&pack, &embedded) {
                panic!("cannot embed the kernel pack {}: {error}", pack.to_string_lossy());
            }
        }
        None => fs::write(&embedded, []).expect("OUT_DIR can be written"),
    }
}
