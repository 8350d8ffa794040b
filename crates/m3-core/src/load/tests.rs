//! Loading over the scripted backend: the calls and their order, what every rank is given, and refusals by name.

use std::path::Path;
use std::sync::Mutex;

use backend_null::NullDriver;
use m3_abi::types::{DTYPE_F32, DTYPE_FP8_E4M3};
use m3_abi::{Error, Output, Result, Step, TensorView, Ticket};

use super::*;

/// What to do wrong, and where.
#[derive(Clone, Copy, Default)]
struct Mischief {
    refused_tensor: Option<&'static str>,
    panics_in_ready: bool,
    formats: Option<u32>,
    encodes_nothing: bool,
}

/// The scripted driver with a log of calls; rank 1 has less room and misbehaves.
struct Watched {
    mischief: Mischief,
    log: Arc<Mutex<Vec<(u32, String)>>>,
}

struct WatchedRank {
    inner: Box<dyn Backend>,
    rank: u32,
    mischief: Mischief,
    log: Arc<Mutex<Vec<(u32, String)>>>,
}

impl Watched {
    fn new(mischief: Mischief) -> Self {
        Watched { mischief, log: Arc::default() }
    }

    fn calls(&self, rank: u32) -> Vec<String> {
        let log = self.log.lock().unwrap();
        log.iter().filter(|(of, _)| *of == rank).map(|(_, call)| call.clone()).collect()
    }
}

impl Driver for Watched {
    fn name(&self) -> &str {
        "watched"
    }

    fn version(&self) -> &str {
        "0"
    }

    fn probe(&self, request: &ProbeRequest) -> Result<ProbeReport> {
        let probe = NullDriver.probe(request)?;
        let weight_formats = self.mischief.formats.unwrap_or(probe.weight_formats);
        let without = if self.mischief.encodes_nothing { PROBE_ENCODES } else { 0 };
        let flags = (probe.flags | PROBE_KEEP_MAPPED) & !without;
        Ok(ProbeReport { weight_formats, flags, num_devices: 8, ..probe })
    }

    fn comm_id(&self) -> Result<Vec<u8>> {
        NullDriver.comm_id()
    }

    fn open(&self, request: &OpenRequest) -> Result<Box<dyn Backend>> {
        let OpenRequest { rank, device, page_tokens, ref comm_id, .. } = *request;
        let text = format!("open device {device} page {page_tokens} comm {}", comm_id.len());
        self.log.lock().unwrap().push((rank, text));
        let inner = NullDriver.open(request)?;
        Ok(Box::new(WatchedRank { inner, rank, mischief: self.mischief, log: self.log.clone() }))
    }
}

impl WatchedRank {
    fn note(&self, call: impl Into<String>) {
        self.log.lock().unwrap().push((self.rank, call.into()));
    }
}

impl Backend for WatchedRank {
    fn load(&mut self, tensor: &TensorView<'_>) -> Result<()> {
        assert_eq!(tensor.data.is_null(), tensor.seed != 0, "{} has data or a seed", tensor.name);
        if self.rank == 1 && self.mischief.refused_tensor == Some(tensor.name) {
            return Err(Error::Unsupported("no room".to_owned()));
        }
        self.note(format!("load {} {:?}", tensor.name, tensor.shape));
        self.inner.load(tensor)
    }

    fn ready(&mut self) -> Result<Ready> {
        self.note("ready");
        assert!(!(self.rank == 1 && self.mischief.panics_in_ready), "out of luck");
        let ready = self.inner.ready()?;
        Ok(Ready { max_pages: ready.max_pages - u64::from(self.rank) * 100, ..ready })
    }

    fn reserve(&mut self, num_pages: u64) -> Result<()> {
        self.note(format!("reserve {num_pages}"));
        self.inner.reserve(num_pages)
    }

    fn warm(&mut self, shapes: &[WarmShape]) -> Result<()> {
        let shapes: Vec<_> = shapes.iter().map(|shape| (shape.num_tokens, shape.num_seqs)).collect();
        self.note(format!("warm {shapes:?}"));
        Ok(())
    }

    fn submit(&mut self, step: &Step<'_>) -> Result<Ticket> {
        self.inner.submit(step)
    }

    fn wait(&mut self, ticket: Ticket, output: &mut Output) -> Result<()> {
        self.inner.wait(ticket, output)
    }

    fn done(&mut self) -> Result<Ticket> {
        self.inner.done()
    }
}

fn nano() -> Arc<Checkpoint> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/random/m3-nano");
    Arc::new(Checkpoint::open(&folder).unwrap())
}

fn options(tp: u32) -> LoadOptions {
    LoadOptions {
        dtype: DTYPE_F32,
        kv_dtype: DTYPE_F32,
        tp,
        max_rows: 5,
        max_step_tokens: 64,
        max_context: 256,
        ..LoadOptions::default()
    }
}

#[test]
fn a_rank_alone_is_opened_as_itself_without_a_communicator() {
    let (checkpoint, driver) = (nano(), Watched::new(Mischief::default()));
    let alone = LoadOptions { solo: Some(1), ..options(2) };
    let loaded = load_model(&driver, &checkpoint, &alone, &|_| {}).unwrap();
    assert_eq!(loaded.ranks.len(), 1);
    let block = checkpoint.config().text.sparse.block_size;
    assert_eq!(driver.calls(1)[0], format!("open device 0 page {block} comm 0"));
    assert!(driver.calls(0).is_empty(), "{:?}", driver.calls(0));
    let missing = LoadOptions { solo: Some(2), ..options(2) };
    let error = load_model(&driver, &checkpoint, &missing, &|_| {}).unwrap_err();
    assert_eq!(error.to_string(), "rank 2 does not exist: tp is 2");
}

#[test]
fn every_rank_is_opened_loaded_reserved_and_warmed_in_order() {
    let checkpoint = nano();
    let driver = Watched::new(Mischief::default());
    let stages = Mutex::new(Vec::new());
    let loaded =
        load_model(&driver, &checkpoint, &options(2), &|stage| stages.lock().unwrap().push(stage)).unwrap();
    assert_eq!(loaded.ranks.len(), 2);
    assert_eq!(loaded.num_pages, 3996, "what fits the rank with the least room");
    assert!(loaded.weight_bytes > 0 && loaded.page_bytes > 0);
    let block = checkpoint.config().text.sparse.block_size;
    for rank in 0..2 {
        let calls = driver.calls(rank);
        assert_eq!(calls[0], format!("open device {rank} page {block} comm 4"));
        let num_loads = calls.iter().filter(|call| call.starts_with("load ")).count();
        assert_eq!(num_loads, checkpoint.specs().len(), "no tensor is left out or given twice");
        let after: Vec<_> = calls[num_loads + 1..].iter().map(String::as_str).collect();
        assert_eq!(
            after,
            ["ready", "reserve 3996", "warm [(1, 1), (2, 2), (4, 4), (5, 5), (64, 1), (64, 5)]"]
        );
    }
    let head = |rank| {
        let calls = driver.calls(rank);
        calls.into_iter().find(|call| call.contains("lm_head.weight")).unwrap()
    };
    assert!(head(0).ends_with("[512, 64]") && head(1).ends_with("[512, 64]"), "{} {}", head(0), head(1));
    let stages = stages.into_inner().unwrap();
    assert_eq!(stages.first(), Some(&Progress::Opening));
    assert_eq!(stages.last(), Some(&Progress::Ready));
    let most = stages.iter().filter_map(|stage| match stage {
        Progress::Loading { done_bytes, total_bytes } => Some((*done_bytes, *total_bytes)),
        _ => None,
    });
    let (done, total) = most.max().unwrap();
    assert!(
        done == total && total > checkpoint.load_bytes(),
        "{done} of {total}: copied tensors count on each rank"
    );
}

#[test]
fn a_refused_tensor_is_named_with_its_rank() {
    let refused_tensor = Some("language_model.model.layers.2.self_attn.q_proj.weight");
    let driver = Watched::new(Mischief { refused_tensor, ..Mischief::default() });
    let error = load_model(&driver, &nano(), &options(2), &|_| {}).unwrap_err().to_string();
    assert_eq!(
        error,
        "rank 1 cannot load tensor language_model.model.layers.2.self_attn.q_proj.weight: no room"
    );
    assert!(!driver.calls(0).contains(&"ready".to_owned()), "nobody goes on without the others");
}

#[test]
fn a_panic_while_loading_is_a_refusal() {
    let driver = Watched::new(Mischief { panics_in_ready: true, ..Mischief::default() });
    let error = load_model(&driver, &nano(), &options(2), &|_| {}).unwrap_err().to_string();
    assert_eq!(error, "rank 1 cannot get ready: the backend panicked: out of luck");
}

#[test]
fn what_the_backend_cannot_do_is_refused_before_anything_is_opened() {
    let driver = Watched::new(Mischief { formats: Some(0), ..Mischief::default() });
    let error = load_model(&driver, &nano(), &options(1), &|_| {}).unwrap_err();
    assert!(matches!(error, LoadError::Format { .. }), "{error}");
    let driver = Watched::new(Mischief::default());
    let refusals = [
        (LoadOptions { dtype: DTYPE_FP8_E4M3, ..options(1) }, "dtype is dtype bit 4"),
        (LoadOptions { max_rows: 0, ..options(1) }, "max_rows is 0"),
        (
            LoadOptions { max_context: 1 << 20, ..options(1) },
            "max_context is 1048576; the model was made for 32768",
        ),
        (options(3), "tp 3"),
    ];
    for (options, part) in refusals {
        let error = load_model(&driver, &nano(), &options, &|_| {}).unwrap_err().to_string();
        assert!(error.contains(part), "{error:?} does not say {part:?}");
    }
    assert!(driver.calls(0).is_empty());
}

#[test]
fn a_backend_that_reads_weights_in_place_keeps_them() {
    let checkpoint = nano();
    let loaded = load_model(&Watched::new(Mischief::default()), &checkpoint, &options(2), &|_| {}).unwrap();
    assert_eq!(Arc::strong_count(&checkpoint), 3, "one for each rank");
    drop(loaded);
    assert_eq!(Arc::strong_count(&checkpoint), 1);
    let loaded = load_model(&NullDriver, &checkpoint, &options(2), &|_| {}).unwrap();
    assert_eq!((Arc::strong_count(&checkpoint), loaded.ranks.len()), (1, 2));
}

#[test]
fn a_model_without_files_is_made_of_seeds() {
    let checkpoint = nano();
    let driver = Watched::new(Mischief::default());
    let config = (checkpoint.config(), checkpoint.config_json());
    let loaded = load_synthetic(&driver, config, 5, &options(2), &|_| {}).unwrap();
    assert_eq!(loaded.ranks.len(), 2);
    let real = Watched::new(Mischief::default());
    load_model(&real, &checkpoint, &options(2), &|_| {}).unwrap();
    let sorted = |driver: &Watched| {
        let mut calls = driver.calls(1);
        calls.sort();
        calls
    };
    assert_eq!(sorted(&driver), sorted(&real), "the same tensors in the same shapes");
}

/// What the kernels cannot do is known at start, and a picture is refused where it would have crashed.
#[test]
fn g7_whether_pictures_can_be_encoded_is_known_before_the_first_one() {
    let loaded = |encodes_nothing: bool| {
        let driver = Watched::new(Mischief { encodes_nothing, ..Mischief::default() });
        load_model(&driver, &nano(), &options(1), &|_| {}).unwrap().media
    };
    let MediaSupport::Encodes(limits) = loaded(false) else { panic!("the miniature has a tower") };
    assert_eq!((limits.row_len, limits.merge_size, limits.cache_bytes), (1176, 2, MEDIA_CACHE_BYTES));
    assert_eq!(loaded(true), MediaSupport::TextBackend);
}
