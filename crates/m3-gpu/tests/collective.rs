//! Communicators over a double of NCCL that is late, fails, or is too old.
#![allow(clippy::unwrap_used, reason = "a setup that fails fails the test")]
#![allow(unsafe_code, reason = "asks the double how often it was told to abort")]

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use m3_gpu::collective::{Communicator, Element, Library};
use m3_gpu::device::Device;
use m3_gpu::error::{GpuError, Result};
use m3_gpu::fake::{FakeDevice, Progress};

struct Double {
    folder: tempfile::TempDir,
    device: Device,
}

impl Double {
    fn new(flags: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c/nccl.c");
        let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".to_owned());
        let mut command = Command::new(compiler);
        command.args(["-shared", "-fPIC", "-w"]).args(flags).arg(source).arg("-o");
        assert!(command.arg(folder.path().join("libnccl.so")).status().unwrap().success());
        Double { folder, device: FakeDevice::new(1 << 20, Progress::Lazy).device() }
    }

    fn library(&self) -> Result<Arc<Library>> {
        Library::load_from(&self.folder.path().join("libnccl.so"))
    }

    fn join(&self, limit_ms: u64) -> Result<Communicator> {
        let library = self.library()?;
        let id = library.unique_id()?;
        Communicator::join(&library, &self.device, &id, (2, 4), Duration::from_millis(limit_ms))
    }

    fn aborts(&self) -> i32 {
        // SAFETY: the double exports this function.
        unsafe {
            let library = libloading::Library::new(self.folder.path().join("libnccl.so")).unwrap();
            let aborts = library.get::<unsafe extern "C" fn() -> i32>(c"double_aborts").unwrap()();
            std::mem::forget(library);
            aborts
        }
    }
}

#[test]
fn a_group_is_joined_and_sums_once_all_are_there() {
    let double = Double::new(&[]);
    assert_eq!(double.library().unwrap().version(), "2.27.3");
    let mut group = double.join(60_000).unwrap();
    let stream = double.device.stream().unwrap();
    let memory = double.device.allocate(64, "sum").unwrap();
    let row = memory.region().part(0, 16).unwrap();
    group.all_reduce(&stream, row, row, Element::Bf16).unwrap();
    group.all_gather(&stream, memory.region(), row, 4).unwrap();
    let event = double.device.event(false).unwrap();
    event.record(&stream).unwrap();
    group.wait("all-gather", &event).unwrap();
    assert_eq!(double.aborts(), 0);
    drop(group);
    assert_eq!(double.aborts(), 1);
}

#[test]
fn what_does_not_fit_is_refused_before_nccl_sees_it() {
    let double = Double::new(&[]);
    let mut group = double.join(60_000).unwrap();
    let stream = double.device.stream().unwrap();
    let memory = double.device.allocate(64, "sum").unwrap();
    let row = memory.region().part(0, 16).unwrap();
    assert!(matches!(
        group.all_reduce(&stream, row, memory.region(), Element::F32),
        Err(GpuError::Bounds { .. })
    ));
    assert!(matches!(group.all_gather(&stream, memory.region(), row, 5), Err(GpuError::Bounds { .. })));
    let library = double.library().unwrap();
    let join = |id: &[u8], rank| {
        let limit = Duration::from_secs(60);
        Communicator::join(&library, &double.device, id, (rank, 4), limit).map(drop).unwrap_err().to_string()
    };
    assert_eq!(join(&[0; 3], 0), "collectives: the group's id has 3 bytes; NCCL's have 128");
    assert_eq!(join(&[42; 128], 4), "collectives: rank 4 cannot join a group of 4");
}

#[test]
fn a_rank_that_never_comes_is_given_up_after_the_limit() {
    let double = Double::new(&["-DPOLLS=1000000000"]);
    let error = double.join(30).map(drop).unwrap_err();
    assert_eq!(error, GpuError::CollectiveTimeout { what: "join", rank: 2, limit_ms: 30 });
    let said = "collective join of rank 2 did not finish within 30 ms and was aborted";
    assert_eq!(error.to_string(), said);
    assert!(matches!(m3_abi::Error::from(error), m3_abi::Error::Fatal(_)));
    assert_eq!(double.aborts(), 1);
}

#[test]
fn a_stuck_sum_is_aborted_and_nothing_more_is_asked_of_the_group() {
    let double = Double::new(&["-DREDUCE=7", "-DPOLLS=1000000000", "-DJOIN=0"]);
    let mut group = double.join(30).unwrap();
    let stream = double.device.stream().unwrap();
    let memory = double.device.allocate(16, "sum").unwrap();
    let sum =
        |group: &mut Communicator| group.all_reduce(&stream, memory.region(), memory.region(), Element::Bf16);
    let late = GpuError::CollectiveTimeout { what: "all-reduce", rank: 2, limit_ms: 30 };
    assert_eq!(sum(&mut group), Err(late));
    let error = sum(&mut group).unwrap_err().to_string();
    assert_eq!(error, "collectives: all-reduce of rank 2 after its group was aborted");
    drop(group);
    assert_eq!(double.aborts(), 1, "once is enough");
}

#[test]
fn an_error_found_while_waiting_names_the_rank_and_nccls_words() {
    let double = Double::new(&["-DLATER=6", "-DJOIN=0", "-DPOLLS=0"]);
    let mut group = double.join(60_000).unwrap();
    let stream = double.device.stream().unwrap();
    let memory = double.device.allocate(16, "sum").unwrap();
    let event = double.device.event(false).unwrap();
    stream.fill(memory.region(), 0).unwrap();
    event.record(&stream).unwrap();
    let error = group.wait("all-reduce", &event).unwrap_err().to_string();
    assert_eq!(error, "collectives: all-reduce of rank 2: NCCL says the double's error (6)");
}

#[test]
fn an_absent_or_old_nccl_is_a_sentence() {
    let error = Library::load_from(Path::new("libm3-is-nowhere.so")).unwrap_err().to_string();
    assert!(error.contains("libm3-is-nowhere.so could not be loaded"), "{error}");
    let old = Double::new(&["-DVERSION=21602"]).library().unwrap_err().to_string();
    assert!(old.ends_with("is NCCL 2.16.2; 2.18.0 or newer is needed"), "{old}");
}
