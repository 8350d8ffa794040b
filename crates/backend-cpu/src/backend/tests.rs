//! The backend's own behaviour on a small synthetic model: instruction sets, order of calls, chained steps, faults.
//! What the model computes is held by the conformance suites.

use m3_abi::types::{NONE, PageAppend, RowBind, SEQ_CHAINED, Seq};
use m3_model::checkpoint::row_major_strides;
use m3_model::names::{Role, expected_tensors};

use super::*;
use crate::driver::CpuDriver;
use crate::kernels::Isa;
use m3_abi::Driver;

const CONFIG: &str = r#"{
  "architectures": ["MiniMaxM3SparseForConditionalGeneration"], "model_type": "minimax_m3_vl",
  "text_config": {
    "architectures": ["MiniMaxM3SparseForCausalLM"],
    "hidden_size": 96, "intermediate_size": 64, "dense_intermediate_size": 160,
    "shared_intermediate_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 32, "vocab_size": 320, "max_position_embeddings": 4096,
    "rms_norm_eps": 1e-06, "use_gemma_norm": true, "attention_output_gate": false, "rope_theta": 5000000,
    "rotary_dim": 16, "partial_rotary_factor": 0.5, "hidden_act": "swigluoai", "use_qk_norm": true,
    "qk_norm_type": "per_head", "tie_word_embeddings": false, "num_local_experts": 8,
    "num_experts_per_tok": 4, "n_shared_experts": 1, "scoring_func": "sigmoid", "use_routing_bias": true,
    "moe_layer_freq": [0, 1, 1], "swiglu_alpha": 1.702, "swiglu_limit": 7.0, "routed_scaling_factor": 2.0,
    "sparse_attention_config": {
      "use_sparse_attention": true, "sparse_index_dim": 32, "sparse_num_index_heads": 2,
      "sparse_topk_blocks": 3, "sparse_block_size": 16, "sparse_disable_index_value": [0, 1, 1],
      "sparse_score_type": "max", "sparse_init_block": 0, "sparse_local_block": 1,
      "sparse_attention_freq": [0, 1, 1]
    }
  }
}"#;

fn request(dtype: u32) -> OpenRequest {
    OpenRequest {
        flags: OPEN_TAPS,
        tp: 1,
        ep: 1,
        dtype,
        kv_dtype: dtype,
        max_rows: 4,
        max_step_tokens: 256,
        max_context: 256,
        page_tokens: 16,
        num_threads: 2,
        page_memory_bytes: 1 << 24,
        config: CONFIG.as_bytes().to_vec(),
        ..OpenRequest::default()
    }
}

/// Opened and loaded with seeded tensors, MXFP8 linears when asked.
fn loaded(kernels: Kernels, request: &OpenRequest, mxfp8: bool) -> CpuBackend {
    let mut backend = CpuBackend::open(request, kernels).unwrap();
    let (config, plan) = plan(CONFIG.as_bytes(), request.tp, request.ep).unwrap();
    for (seed, spec) in expected_tensors(&config).iter().enumerate() {
        let Some(cut) = plan.part(request.rank as usize, spec) else { continue };
        let mut shape = spec.shape.clone();
        shape[0] = cut.rows.end - cut.rows.start;
        if let Some(columns) = cut.columns {
            shape[1] = columns.end - columns.start;
        }
        let is_linear = shape.len() == 2 && !matches!(spec.role, Role::Embedding | Role::Head | Role::Router);
        let format = if is_linear && mxfp8 { m3_model::formats::Format::Mxfp8 } else { spec.format };
        let strides = row_major_strides(&shape);
        let strides = &strides[..shape.len()];
        let (data, scale) = (std::ptr::null(), std::ptr::null());
        let (format, seed, name) = (format.abi(), seed as u64, spec.name.as_str());
        let view = TensorView {
            name,
            format,
            shape: &shape,
            strides,
            data,
            scale,
            scale_stride: 0,
            group_offset: 0,
            seed,
        };
        backend.load(&view).unwrap();
    }
    backend
}

fn serving(kernels: Kernels, request: &OpenRequest, mxfp8: bool) -> CpuBackend {
    let mut backend = loaded(kernels, request, mxfp8);
    backend.ready().unwrap();
    backend.reserve(32).unwrap();
    backend.warm(&[]).unwrap();
    backend
}

fn bind(row: u32) -> RowBind {
    RowBind { seed: 1, ..RowBind::greedy(row) }
}

fn part(flags: u32, first_position: u32, num_tokens: u32) -> Seq {
    Seq {
        row: 1,
        flags,
        first_position,
        num_tokens,
        token_offset: 0,
        num_logits: 1,
        output_offset: 0,
        target_offset: NONE,
        mask_offset: NONE,
        output_index: 0,
    }
}

const PROMPT: u32 = 90;

/// Binds row 1, gives it ten pages and computes a prompt.
fn prefill(backend: &mut CpuBackend) -> Result<Ticket> {
    let tokens: Vec<u32> = (0..PROMPT).map(|index| index * 37 % 320).collect();
    let page_ids: Vec<u32> = (0..10).map(|page| 31 - 3 * page).collect();
    backend.submit(&Step {
        binds: &[bind(1)],
        pages: &[PageAppend { row: 1, first: 0, offset: 0, count: 10 }],
        page_ids: &page_ids,
        seqs: &[part(0, 0, PROMPT)],
        tokens: &tokens,
        ..Step::default()
    })
}

fn wait(backend: &mut CpuBackend, ticket: Ticket) -> Result<u32> {
    let mut output = Output::with_capacity(1, 0);
    backend.wait(ticket, &mut output)?;
    Ok(output.tokens[0])
}

#[test]
fn every_isa_gives_the_logits_of_the_scalar_one() {
    for (dtype, mxfp8, tolerance) in
        [(DTYPE_F32, false, 2e-4), (DTYPE_F32, true, 2e-4), (DTYPE_BF16, true, 0.2)]
    {
        let mut expected: Option<Vec<f32>> = None;
        for isa in Isa::available() {
            let mut backend = serving(Kernels::of(isa).unwrap(), &request(dtype), mxfp8);
            let ticket = prefill(&mut backend).unwrap();
            wait(&mut backend, ticket).unwrap();
            let logits = backend.tap("logits").unwrap().data;
            assert!(
                logits.iter().any(|logit| logit.abs() > 0.5),
                "{isa:?}: logits of a synthetic model are not flat"
            );
            let expected = expected.get_or_insert_with(|| logits.clone());
            for (index, (found, wanted)) in logits.iter().zip(expected.iter()).enumerate() {
                let off = (found - wanted).abs();
                assert!(off <= tolerance, "{isa:?} dtype {dtype} logit {index}: {found} / {wanted}");
            }
        }
    }
}

#[test]
fn chained_steps_are_submitted_before_the_token_is_read() {
    let mut read = serving(Kernels::detect(), &request(DTYPE_F32), false);
    let ticket = prefill(&mut read).unwrap();
    let first = wait(&mut read, ticket).unwrap();
    let step = Step { seqs: &[part(0, PROMPT, 1)], tokens: &[first], ..Step::default() };
    let ticket = read.submit(&step).unwrap();
    let second = wait(&mut read, ticket).unwrap();

    let mut ahead = serving(Kernels::detect(), &request(DTYPE_F32), false);
    let one = prefill(&mut ahead).unwrap();
    let chained = Step { seqs: &[part(SEQ_CHAINED, PROMPT, 1)], ..Step::default() };
    let two = ahead.submit(&chained).unwrap();
    assert_eq!((one, two), (Ticket(1), Ticket(2)));
    assert_eq!(wait(&mut ahead, one).unwrap(), first);
    assert_eq!(wait(&mut ahead, two).unwrap(), second);
    assert_eq!(ahead.done().unwrap(), Ticket(2));
}

#[test]
fn calls_out_of_order_are_refused_and_change_nothing() {
    let mut backend = loaded(Kernels::detect(), &request(DTYPE_F32), false);
    let said = |result: Result<()>| result.unwrap_err().to_string();
    assert_eq!(said(backend.reserve(1)), "reserve cannot be called while the instance is loading");
    let ready = backend.ready().unwrap();
    assert_eq!(ready.page_bytes, (3 * 2 * 2 * 32 + 2 * 32) * 16 * 4);
    assert_eq!(said(backend.reserve(0)), format!("0 pages: between 1 and {} fit", ready.max_pages));
    assert_eq!(
        said(backend.submit(&Step::default()).map(drop)),
        "submit cannot be called while the instance is ready"
    );
    backend.reserve(32).unwrap();
    assert_eq!(said(backend.ready().map(drop)), "ready cannot be called while the instance is serving");
    assert_eq!(said(wait(&mut backend, Ticket(1)).map(drop)), "ticket 1 was never given, the last one is 0");
    let ticket = prefill(&mut backend).unwrap();
    wait(&mut backend, ticket).unwrap();
    assert_eq!(said(wait(&mut backend, ticket).map(drop)), "ticket 1 was waited for before");
}

#[test]
fn missing_tensors_are_named() {
    let mut backend = CpuBackend::open(&request(DTYPE_F32), Kernels::detect()).unwrap();
    let error = backend.ready().unwrap_err().to_string();
    assert!(error.contains("language_model.model.embed_tokens.weight is missing"), "{error}");
}

#[test]
fn a_bad_step_is_fatal_for_good() {
    let mut backend = serving(Kernels::detect(), &request(DTYPE_F32), false);
    let ticket = backend.submit(&Step { releases: &[3], ..Step::default() }).unwrap();
    let error = wait(&mut backend, ticket).unwrap_err();
    assert_eq!(error, Error::Fatal("row 3 is not bound".to_owned()));
    assert_eq!(prefill(&mut backend).unwrap_err(), error);
}

#[test]
fn a_panic_on_the_ranks_threads_is_fatal() {
    let mut backend = loaded(Kernels::detect(), &request(DTYPE_F32), false);
    backend.ready().unwrap();
    let Stage::Ready { parts, .. } = std::mem::replace(&mut backend.stage, Stage::Broken) else {
        panic!("ready was called")
    };
    // Fewer pages than the table of rows believes in: writing to one of the others trips an invariant.
    let pool = Arc::new(PagePool::new(backend.layout.clone(), 1).unwrap());
    let worker = backend.spawn(parts, pool.clone(), 32).unwrap();
    backend.stage = Stage::Serving {
        closer: None,
        worker,
        pool,
        submitted: 0,
        steps: VecDeque::new(),
        media: HashSet::new(),
    };
    let ticket = prefill(&mut backend).unwrap();
    let error = wait(&mut backend, ticket).unwrap_err().to_string();
    assert!(error.starts_with("panicked: page ") && error.ends_with(" of 1"), "{error}");
}

#[test]
fn a_rank_that_fails_ends_its_peers_by_name() {
    let comm_id = CpuDriver::detect().comm_id().unwrap();
    let rank = |rank| {
        let request = OpenRequest { rank, tp: 2, comm_id: comm_id.clone(), ..request(DTYPE_F32) };
        serving(Kernels::detect(), &request, false)
    };
    let (mut first, mut second) = (rank(0), rank(1));
    let ticket = prefill(&mut first).unwrap();
    let bad = second.submit(&Step { releases: &[3], ..Step::default() }).unwrap();
    let expected = Error::Fatal("rank 1 failed: row 3 is not bound".to_owned());
    assert_eq!(wait(&mut second, bad).unwrap_err(), expected);
    assert_eq!(wait(&mut first, ticket).unwrap_err(), expected);
}

#[test]
fn a_rank_closed_in_a_step_does_not_wait_for_its_peers() {
    let comm_id = CpuDriver::detect().comm_id().unwrap();
    let rank = |rank| {
        let request = OpenRequest { rank, tp: 2, comm_id: comm_id.clone(), ..request(DTYPE_F32) };
        serving(Kernels::detect(), &request, false)
    };
    let (mut first, mut second) = (rank(0), rank(1));
    prefill(&mut first).unwrap();
    let start = std::time::Instant::now();
    drop(first);
    // The collective's own deadline is five minutes.
    assert!(start.elapsed().as_secs() < 60);
    let ticket = prefill(&mut second).unwrap();
    assert_eq!(wait(&mut second, ticket).unwrap_err(), Error::Fatal("rank 0 was closed".to_owned()));
}

#[test]
fn what_cannot_be_served_is_said_at_open() {
    let refused = |change: &dyn Fn(&mut OpenRequest)| {
        let mut request = request(DTYPE_F32);
        change(&mut request);
        CpuBackend::open(&request, Kernels::detect()).err().expect("refused").to_string()
    };
    assert_eq!(refused(&|request| request.max_rows = 0), "max_rows is 0, at least 1 is needed");
    assert_eq!(
        refused(&|request| request.dtype = 4),
        "dtype 4: the cpu backend computes in float32 or bfloat16"
    );
    assert!(refused(&|request| request.kv_dtype = 4).starts_with("KV dtype 4"));
    assert!(refused(&|request| request.page_tokens = 32).contains("32"));
    assert!(refused(&|request| request.tp = 3).contains("do not divide by 3"));
    assert!(refused(&|request| (request.tp, request.comm_id) = (2, vec![1, 2])).contains("communicator id"));
}
