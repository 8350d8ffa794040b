//! The whole instance on the double of a device: order of calls, buckets, two steps in flight, results.
//!
//! Kernels do nothing here but the one that chooses tokens, which writes what the test can tell apart. What passes here has
//! not run on a GPU.

use std::collections::BTreeMap;

use m3_abi::types::{DTYPE_BF16, NONE, PageAppend, RowBind, SEQ_CHAINED, Seq};
use m3_gpu::fake::{FakeDevice, Fault, Progress};
use m3_gpu::pack::{self, Function, Header, Kernel, MapShape};
use m3_model::config::{AttentionKind, FfnKind};
use m3_model::names::expected_tensors;

use super::*;
use crate::kernels::{CONTRACTS, TARGET};
use crate::step::sampling::Position;

const NANO: &[u8] = include_bytes!("../../../../models/m3-nano/config.json");
const ROWS: u32 = 4;

/// Letters of a contract's argument types, as the launcher compares them, and its number of matrices.
fn layout(text: &str) -> (String, usize) {
    let start = text.find('(').unwrap() + 1;
    let arguments = &text[start..text.rfind(')').unwrap()];
    let mut letters = String::new();
    for part in arguments.split(": ").skip(1) {
        letters.push(match part {
            part if part.starts_with('*') => 'p',
            part if part.starts_with("tensor") => 'm',
            part if part.starts_with("i32") => 'i',
            part if part.starts_with("u32") => 'u',
            part if part.starts_with("i64") => 'l',
            part if part.starts_with("u64") => 'q',
            part if part.starts_with("f32") => 'f',
            other => panic!("an argument of type {other}"),
        });
    }
    let matrices = letters.matches('m').count();
    (letters, matrices)
}

/// A pack with every kernel, all of one byte.
fn pack() -> &'static [u8] {
    let plan = Plan::new(NANO, 1, 1).unwrap();
    let dims = plan.dims(0).unwrap().named();
    let (mut kernels, mut functions) = (Vec::new(), Vec::new());
    for (index, contract) in CONTRACTS.iter().enumerate() {
        let (layout, matrices) = layout(contract.text);
        for variant in 0..contract.variants.len().max(1) {
            functions.push(Function {
                kernel: index as u32,
                variant: variant as u32,
                shapes: vec![0],
                offset: 0,
                bytes: 1,
                symbol: contract.kernel.to_owned(),
                threads: 32,
                shared: 0,
                trailing_pointers: 0,
                dependent: false,
                maps: vec![MapShape { extent: [16, 16], swizzle: 0 }; matrices],
            });
        }
        kernels.push(Kernel { name: contract.kernel.to_owned(), contract: contract.text.to_owned(), layout });
    }
    let header = Header {
        target: TARGET.to_owned(),
        architecture: "sm_90a".to_owned(),
        toolchain: BTreeMap::new(),
        licences: Vec::new(),
        compiled_dims: vec!["hidden".to_owned()],
        shapes: vec![pack::Shape { name: "nano".to_owned(), set: "nano".to_owned(), dims }],
        kernels,
        functions,
        code_bytes: 1,
        code_sha256: pack::sha256(&[0]),
    };
    pack::write(&header, &[0]).unwrap().leak()
}

/// A device on which the sampler says 100 * row + output index.
fn device(progress: Progress) -> FakeDevice {
    let fake = FakeDevice::new(1 << 32, progress);
    fake.accept_all_kernels();
    fake.add_kernel("sample_choose", &[8, 8, 8, 8, 8, 8, 8, 8, 8, 4, 4], |call| {
        let count = call.geometry.grid[0] as usize;
        let positions: Vec<Position> = call.read(call.pointer(2), count)?;
        for position in positions.iter().filter(|position| position.row != NONE) {
            let token = 100 * position.row + position.output_index;
            call.write(call.pointer(6).offset(u64::from(position.slot) * 4), &[token])?;
            call.write(call.pointer(7).offset(u64::from(position.slot) * 4), &[0u32])?;
        }
        Ok(())
    });
    fake
}

fn request() -> OpenRequest {
    OpenRequest {
        tp: 1,
        ep: 1,
        dtype: DTYPE_BF16,
        kv_dtype: DTYPE_BF16,
        max_rows: ROWS,
        max_step_tokens: 64,
        max_context: 512,
        page_tokens: 128,
        max_logprobs: 2,
        page_memory_bytes: 64 << 20,
        config: NANO.to_vec(),
        ..OpenRequest::default()
    }
}

fn open(fake: &FakeDevice) -> Sm90Backend {
    let pack = Pack::read(pack(), TARGET).unwrap();
    let plan = Plan::new(NANO, 1, 1).unwrap();
    Sm90Backend::open(&request(), plan, fake.device(), (&pack, 0)).unwrap()
}

/// Loaded with synthetic tensors, reserved and warmed for 1, 2 and 4 rows.
fn serving(fake: &FakeDevice) -> Sm90Backend {
    let mut backend = open(fake);
    for spec in expected_tensors(&backend.plan.config) {
        let strides: Vec<u64> =
            (0..spec.shape.len()).map(|dim| spec.shape[dim + 1..].iter().product()).collect();
        let tensor = TensorView {
            name: &spec.name,
            format: spec.format.abi(),
            shape: &spec.shape,
            strides: &strides,
            data: std::ptr::null(),
            scale: std::ptr::null(),
            scale_stride: 0,
            group_offset: 0,
            seed: 1,
        };
        backend.load(&tensor).unwrap();
    }
    let ready = backend.ready().unwrap();
    assert_eq!(ready.max_pages, u64::from(ROWS) * 4, "four rows of 512 tokens");
    assert!(ready.weight_bytes > 0 && ready.workspace_bytes > 0);
    backend.reserve(8).unwrap();
    let shape = |num_tokens, num_seqs| WarmShape { num_tokens, num_seqs, context_len: 512, reserved: 0 };
    backend.warm(&[shape(1, 1), shape(2, 2), shape(4, 4), shape(64, 1), shape(64, 4)]).unwrap();
    backend
}

fn seq(row: u32, first_position: u32, num_tokens: u32, output_index: u32) -> Seq {
    Seq {
        row,
        flags: 0,
        first_position,
        num_tokens,
        token_offset: 0,
        num_logits: 1,
        output_offset: row,
        target_offset: NONE,
        mask_offset: NONE,
        output_index,
    }
}

/// Binds rows `0..count` with a page each and feeds three tokens to each.
fn prefill(backend: &mut Sm90Backend, count: u32) -> Ticket {
    let binds: Vec<_> = (0..count).map(RowBind::greedy).collect();
    let pages: Vec<_> = (0..count).map(|row| PageAppend { row, first: 0, offset: row, count: 1 }).collect();
    let page_ids: Vec<_> = (0..count).map(|row| 7 - row).collect();
    let seqs: Vec<_> = (0..count).map(|row| seq(row, 0, 3, 0)).collect();
    let step = Step {
        binds: &binds,
        pages: &pages,
        page_ids: &page_ids,
        seqs: &seqs,
        tokens: &[1, 2, 3],
        ..Step::default()
    };
    backend.submit(&step).unwrap()
}

fn decode(backend: &mut Sm90Backend, rows: &[u32], position: u32, output_index: u32) -> Result<Ticket> {
    let seqs = rows.iter().map(|&row| Seq { flags: SEQ_CHAINED, ..seq(row, position, 1, output_index) });
    backend.submit(&Step { seqs: &seqs.collect::<Vec<_>>(), ..Step::default() })
}

fn tokens(backend: &mut Sm90Backend, ticket: Ticket) -> Vec<u32> {
    let mut output = Output::with_capacity(ROWS as usize, 2);
    backend.wait(ticket, &mut output).unwrap();
    output.tokens
}

#[test]
fn calls_out_of_order_are_refused_and_change_nothing() {
    let fake = device(Progress::Eager);
    let mut backend = open(&fake);
    let refusal = backend.submit(&Step::default()).unwrap_err();
    assert_eq!(
        refusal,
        Error::Unsupported("submit cannot be called while the instance is loading".to_owned())
    );
    assert!(backend.reserve(1).is_err());
    let missing = backend.ready().unwrap_err().to_string();
    assert!(missing.contains("tensors are missing"), "{missing}");
}

#[test]
fn steps_in_flight_finish_in_order_with_their_own_results() {
    for progress in [Progress::Eager, Progress::Lazy] {
        let fake = device(progress);
        let mut backend = serving(&fake);
        let first = prefill(&mut backend, 3);
        let second = decode(&mut backend, &[0, 1, 2], 3, 1).unwrap();
        assert_eq!(tokens(&mut backend, first), [0, 100, 200, NONE]);
        let third = decode(&mut backend, &[2, 0], 4, 2).unwrap();
        assert_eq!(tokens(&mut backend, second), [1, 101, 201, NONE]);
        assert_eq!(tokens(&mut backend, third), [2, NONE, 202, NONE], "row 1 had no part in it");
        assert_eq!(backend.done().unwrap(), third);
        let refusal = backend.wait(third, &mut Output::with_capacity(4, 2)).unwrap_err();
        assert_eq!(refusal.to_string(), "ticket 3 was never given, or waited for before");
    }
}

#[test]
fn a_third_step_is_refused_until_one_has_run() {
    let fake = device(Progress::Lazy);
    let mut backend = serving(&fake);
    let first = prefill(&mut backend, 1);
    decode(&mut backend, &[0], 3, 1).unwrap();
    // A question lets the double run one piece; many are queued.
    let refusal = decode(&mut backend, &[0], 4, 2).unwrap_err();
    assert_eq!(refusal, Error::Unsupported("2 steps are in flight already".to_owned()));
    assert_eq!(tokens(&mut backend, first)[0], 0);
    let third = decode(&mut backend, &[0], 4, 2).unwrap();
    assert_eq!(tokens(&mut backend, third)[0], 2);
}

#[test]
fn decode_steps_replay_the_smallest_bucket_that_holds_them() {
    let fake = device(Progress::Eager);
    let mut backend = serving(&fake);
    let ticket = prefill(&mut backend, 3);
    tokens(&mut backend, ticket);
    let embeds = |fake: &FakeDevice| -> Vec<u32> {
        let launches = fake.launches().into_iter().filter(|launch| launch.symbol == "embed");
        launches.map(|launch| launch.geometry.grid[0]).collect()
    };
    let before = embeds(&fake).len();
    for (rows, position) in [(&[0, 1, 2][..], 3), (&[1, 2][..], 4), (&[0][..], 4)] {
        let ticket = decode(&mut backend, rows, position, 1).unwrap();
        tokens(&mut backend, ticket);
    }
    assert_eq!(embeds(&fake)[before..], [4, 2, 1]);
}

#[test]
fn a_row_bound_anew_is_not_told_its_predecessors_sample() {
    let fake = device(Progress::Lazy);
    let mut backend = serving(&fake);
    let first = prefill(&mut backend, 1);
    let pages = [PageAppend { row: 0, first: 0, offset: 0, count: 1 }];
    let step = Step {
        releases: &[0],
        binds: &[RowBind { presence_penalty: 1.0, ..RowBind::greedy(0) }],
        pages: &pages,
        page_ids: &[2],
        seqs: &[seq(0, 0, 2, 5)],
        tokens: &[9, 9],
        ..Step::default()
    };
    let second = backend.submit(&step).unwrap();
    assert_eq!(tokens(&mut backend, first)[0], 0);
    assert_eq!(tokens(&mut backend, second)[0], 5);
    let Stage::Serving(serving) = &backend.stage else { panic!("it serves") };
    let counts = &serving.rows().row(0).unwrap().sampling.counts;
    assert_eq!(counts.output().collect::<Vec<_>>(), [(5, 1)]);
}

#[test]
fn a_lost_device_ends_the_instance_with_one_sentence() {
    let fake = device(Progress::Lazy);
    let mut backend = serving(&fake);
    let ticket = prefill(&mut backend, 1);
    fake.inject(Fault::Lost { work: fake.work_done() + 3 });
    let fault = backend.wait(ticket, &mut Output::with_capacity(4, 2)).unwrap_err();
    assert!(matches!(fault, Error::Fatal(_)), "{fault}");
    assert_eq!(backend.submit(&Step::default()).unwrap_err(), fault);
    assert_eq!(backend.done().unwrap_err(), fault);
}

#[test]
fn operations_are_timed_as_the_last_step_ran_them_and_serving_goes_on() {
    let fake = device(Progress::Lazy);
    let mut backend = serving(&fake);
    let ticket = prefill(&mut backend, 2);
    tokens(&mut backend, ticket);
    let layers = backend.plan.config.text.layers.clone();
    let sparse = layers.iter().filter(|layer| layer.attention == AttentionKind::Sparse).count();
    let calls = |times: &[OperationTime], name: &str| {
        times.iter().find(|time| time.name == name).map_or(0, |time| time.calls)
    };
    let chunk = backend.time_operations(3).unwrap();
    assert_eq!(calls(&chunk, "select_blocks"), sparse);
    assert_eq!(calls(&chunk, "attend, sparse"), sparse);
    assert_eq!(calls(&chunk, "attention_out"), layers.len());
    assert_eq!(calls(&chunk, "head and sample"), 1);
    assert!(chunk.iter().all(|time| time.us > 0.0), "{chunk:?}");
    let ticket = decode(&mut backend, &[0, 1], 3, 1).unwrap();
    assert_eq!(tokens(&mut backend, ticket)[..2], [1, 101]);
    let moe = layers.iter().filter(|layer| layer.ffn == FfnKind::Moe).count();
    let before = fake.launches().len();
    backend.experts_drawn().unwrap();
    let routed = fake.launches()[before..].iter().filter(|launch| launch.symbol == "router_choose").count();
    assert_eq!(routed, moe, "every layer's router once");
    let before = fake.launches().len();
    backend.time_operations(1).unwrap();
    let launches = fake.launches();
    let grids = launches[before..].iter().filter(|launch| launch.symbol == "embed");
    assert!(grids.clone().all(|launch| launch.geometry.grid[0] == 2), "the bucket of two rows");
    assert!(grids.count() > 2);
    let ticket = decode(&mut backend, &[0, 1], 4, 2).unwrap();
    assert_eq!(tokens(&mut backend, ticket)[..2], [2, 102]);
}

#[test]
fn everything_is_freed() {
    let fake = device(Progress::Eager);
    let mut backend = serving(&fake);
    let ticket = prefill(&mut backend, 2);
    tokens(&mut backend, ticket);
    drop(backend);
    assert_eq!(fake.live(), m3_gpu::fake::Live::default());
}
