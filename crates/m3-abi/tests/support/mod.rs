//! Compiles the C sources of these tests, and finds the plugin files that cargo built from `examples/`.
#![allow(dead_code, reason = "each test file uses its part")]

use std::path::{Path, PathBuf};
use std::process::Command;

use m3_abi::{Backend, Driver, OpenRequest, Output, Plugin, Step, TensorView, Ticket, types};

pub(crate) fn manifest_dir() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

pub(crate) fn include_dir() -> PathBuf {
    manifest_dir().join("../../include")
}

/// Runs the C compiler (`CC`, else `cc`) with warnings as errors.
pub(crate) fn compile(source: &str, output: &Path, flags: &[&str]) {
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".to_owned());
    let mut command = Command::new(&compiler);
    command.args(["-std=gnu99", "-Wall", "-Wextra", "-pedantic", "-Werror", "-g", "-O1"]);
    command.arg("-I").arg(include_dir()).arg(manifest_dir().join("tests/c").join(source));
    command.args(flags).arg("-o").arg(output);
    let result = command.output().unwrap_or_else(|error| panic!("cannot run {compiler}: {error}"));
    assert!(result.status.success(), "{source}: {}", String::from_utf8_lossy(&result.stderr));
}

/// The plugin in C with one fault, as `libm3_backend_NAME.so` in `folder`.
pub(crate) fn c_plugin(folder: &Path, name: &str, fault: &str) -> PathBuf {
    let path = folder.join(m3_abi::discover::file_name(name));
    let (name, fault) = (format!("-DNAME=\"{name}\""), format!("-DFAULT=\"{fault}\""));
    compile("plugin.c", &path, &["-shared", "-fPIC", &name, &fault]);
    path
}

/// A plugin file built from `examples/`.
pub(crate) fn rust_plugin(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("a test has a path");
    let folder = test.parent().and_then(Path::parent).expect("tests run in target/PROFILE/deps");
    let path = folder.join("examples").join(m3_abi::discover::file_name(name));
    let modified = |path: &Path| path.metadata().and_then(|metadata| metadata.modified()).ok();
    let source = manifest_dir().join("examples").join(name).with_extension("rs");
    let fresh = modified(&path).is_some_and(|built| Some(built) >= modified(&source));
    assert!(fresh, "{} is missing or old: cargo build -p m3-abi --examples", path.display());
    path
}

pub(crate) fn request() -> OpenRequest {
    OpenRequest {
        tp: 1,
        ep: 1,
        dtype: types::DTYPE_F32,
        kv_dtype: types::DTYPE_F32,
        max_rows: 4,
        max_step_tokens: 16,
        max_context: 64,
        page_tokens: 4,
        config: br#"{"vocab_size": 10}"#.to_vec(),
        ..OpenRequest::default()
    }
}

pub(crate) fn embedding() -> TensorView<'static> {
    TensorView {
        name: "language_model.model.embed_tokens.weight",
        format: types::FORMAT_F32,
        shape: &[10, 1],
        strides: &[1, 1],
        data: std::ptr::null(),
        scale: std::ptr::null(),
        scale_stride: 0,
        group_offset: 0,
        seed: 1,
    }
}

/// Opened and warmed, with 8 pages.
pub(crate) fn warmed(plugin: &Plugin) -> Box<dyn Backend> {
    let mut instance = plugin.open(&request()).unwrap();
    instance.load(&embedding()).unwrap();
    instance.ready().unwrap();
    instance.reserve(8).unwrap();
    instance.warm(&[]).unwrap();
    instance
}

pub(crate) fn bind(row: u32) -> types::RowBind {
    types::RowBind::greedy(row)
}

pub(crate) fn seq(first_position: u32, num_tokens: u32, output_index: u32) -> types::Seq {
    types::Seq {
        row: 0,
        flags: if output_index == 0 { 0 } else { types::SEQ_CHAINED },
        first_position,
        num_tokens,
        token_offset: 0,
        num_logits: 1,
        output_offset: 0,
        target_offset: types::NONE,
        mask_offset: types::NONE,
        output_index,
    }
}

/// Submits the prompt 3, 4 (output index 0) or a chained token after it, without waiting.
pub(crate) fn submit(instance: &mut dyn Backend, index: u32) -> m3_abi::Result<Ticket> {
    let first = index == 0;
    let (binds, page) = ([bind(0)], [types::PageAppend { row: 0, first: 0, offset: 0, count: 1 }]);
    let seqs = [if first { seq(0, 2, 0) } else { seq(index + 1, 1, index) }];
    instance.submit(&Step {
        id: u64::from(index),
        binds: if first { &binds } else { &[] },
        pages: if first { &page } else { &[] },
        page_ids: &[5],
        seqs: &seqs,
        tokens: &[3, 4],
        ..Step::default()
    })
}

pub(crate) fn wait(instance: &mut dyn Backend, ticket: Ticket) -> m3_abi::Result<u32> {
    let mut output = Output::with_capacity(1, 0);
    instance.wait(ticket, &mut output)?;
    Ok(output.tokens[0])
}

/// Two tokens after the prompt 3, 4, the second submitted before the first is read.
pub(crate) fn serve(instance: &mut dyn Backend) -> m3_abi::Result<[u32; 2]> {
    let first = submit(instance, 0)?;
    let first = wait(instance, first)?;
    let second = submit(instance, 1)?;
    Ok([first, wait(instance, second)?])
}
