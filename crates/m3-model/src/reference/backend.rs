//! The reference behind the same interface as any backend, so that conformance can hold the two side by side.
//!
//! Everything happens inside `submit`; `wait` only hands out what is there. One rank, `f32` activations, KV in `f32`
//! or bf16.

use std::collections::{HashMap, VecDeque};
use std::time::Instant;

use m3_abi::types::{
    DTYPE_BF16, DTYPE_F32, FORMAT_BF16, FORMAT_F32, FORMAT_MXFP8, OPEN_TAPS, PROBE_ENCODES, PageCopy, Ready,
    WarmShape,
};
use m3_abi::{
    Backend, Driver, Error, Media, OpenRequest, Output, ProbeReport, ProbeRequest, Result, Step, Tap,
    TensorView, Ticket,
};

use crate::batch::{Batch, Limits, RowTable};
use crate::config::{ModelConfig, VisionConfig};
use crate::ops::Ops;
use crate::pages::PageLayout;
use crate::taps::TapPoint;
use crate::vision::check_grids;

use super::linear::QuantMode;
use super::model::ReferenceModel;
use super::store::PageStore;
use super::tensor::Tensor;
use super::vision::{encode, workspace_bytes};
use super::vision_weights::VisionWeights;
use super::weights::Weights;

/// Page memory when `open` leaves it to the backend.
const DEFAULT_PAGE_BYTES: u64 = 1 << 30;
/// Steps submitted and not yet waited for.
const MAX_IN_FLIGHT: usize = 2;

/// Opens [`ReferenceBackend`]s; the mode is the one results are compared in.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReferenceDriver {
    pub mode: QuantMode,
}

impl Driver for ReferenceDriver {
    fn name(&self) -> &str {
        "reference"
    }

    fn version(&self) -> &str {
        env!("CARGO_PKG_VERSION")
    }

    fn probe(&self, request: &ProbeRequest) -> Result<ProbeReport> {
        refuse_worlds(request.tp, request.ep)?;
        if !request.config.is_empty() {
            read_config(&request.config)?;
        }
        Ok(ProbeReport {
            score: 1,
            num_devices: 1,
            weight_formats: FORMAT_F32 | FORMAT_BF16 | FORMAT_MXFP8,
            dtypes: DTYPE_F32,
            kv_dtypes: DTYPE_F32 | DTYPE_BF16,
            quant_mode: self.mode.to_abi(),
            flags: PROBE_ENCODES,
            device: "scalar reference".to_owned(),
            arch: std::env::consts::ARCH.to_owned(),
            paths: "every op: scalar f32".to_owned(),
            ..ProbeReport::default()
        })
    }

    fn comm_id(&self) -> Result<Vec<u8>> {
        Ok(Vec::new())
    }

    fn open(&self, request: &OpenRequest) -> Result<Box<dyn Backend>> {
        Ok(Box::new(ReferenceBackend::open(request, self.mode)?))
    }
}

/// An instance: loading, then serving.
pub struct ReferenceBackend {
    request: OpenRequest,
    config: ModelConfig,
    mode: QuantMode,
    layout: PageLayout,
    /// Until `ready`.
    tensors: HashMap<String, Tensor>,
    /// From `ready` to `reserve`.
    weights: Option<(Weights, Option<VisionWeights>)>,
    /// From `reserve` on.
    serving: Option<Serving>,
}

/// A step or an encode that nobody has waited for yet.
struct Finished {
    ticket: Ticket,
    /// An encode takes a ticket but no place in flight.
    is_step: bool,
    output: Output,
    taps: HashMap<TapPoint, Tap>,
}

struct Serving {
    model: ReferenceModel,
    /// When config and checkpoint have a tower.
    vision: Option<(VisionConfig, VisionWeights)>,
    rows: RowTable,
    batch: Batch,
    finished: VecDeque<Finished>,
    /// Taps of the step that was waited for last.
    taps: HashMap<TapPoint, Tap>,
    last_ticket: u64,
    /// Why the instance is dead.
    dead: Option<Error>,
}

impl ReferenceBackend {
    /// # Errors
    /// `Unsupported` for anything but one rank in `f32` with KV in `f32` or bf16 and pages of one sparse block.
    pub fn open(request: &OpenRequest, mode: QuantMode) -> Result<Self> {
        refuse_worlds(request.tp, request.ep)?;
        if request.dp > 1 || request.node > 0 {
            return unsupported("the reference has neither data-parallel groups nor nodes");
        }
        if request.dtype != DTYPE_F32 {
            return unsupported(&format!("the reference computes in f32, not in dtype {}", request.dtype));
        }
        if !matches!(request.kv_dtype, DTYPE_F32 | DTYPE_BF16) {
            return unsupported(&format!(
                "the reference keeps KV in f32 or bf16, not in dtype {}",
                request.kv_dtype
            ));
        }
        let config = read_config(&request.config)?;
        let layout = PageLayout::new(&config.text, 1, request.kv_dtype, request.page_tokens as usize)
            .map_err(|error| Error::Unsupported(error.to_string()))?;
        let request = request.clone();
        Ok(ReferenceBackend {
            request,
            config,
            mode,
            layout,
            tensors: HashMap::new(),
            weights: None,
            serving: None,
        })
    }

    /// The model, once `reserve` was called.
    pub fn model(&mut self) -> Option<&mut ReferenceModel> {
        self.serving.as_mut().map(|serving| &mut serving.model)
    }

    fn serving(&mut self) -> Result<&mut Serving> {
        match &mut self.serving {
            Some(serving) => match &serving.dead {
                None => Ok(serving),
                Some(error) => Err(error.clone()),
            },
            None => Err(Error::Fatal("the reference serves nothing before reserve".to_owned())),
        }
    }
}

impl Backend for ReferenceBackend {
    fn load(&mut self, tensor: &TensorView<'_>) -> Result<()> {
        if tensor.name.starts_with("language_model.") || self.config.vision.is_some() {
            self.tensors.insert(tensor.name.to_owned(), Tensor::read(tensor)?);
        }
        Ok(())
    }

    fn ready(&mut self) -> Result<Ready> {
        let mut tensors = std::mem::take(&mut self.tensors);
        let weight_bytes = tensors.values().map(|tensor| tensor.values.len() as u64 * 4).sum();
        let vision = match &self.config.vision {
            Some(vision) => VisionWeights::assemble(vision, self.config.text.hidden_size, &mut tensors)?,
            None => None,
        };
        let tower = self.config.vision.as_ref().filter(|_| vision.is_some());
        let (hidden, context) = (self.config.text.hidden_size, self.request.max_context as usize);
        let workspace_bytes = tower.map_or(0, |tower| workspace_bytes(tower, hidden, context) as u64);
        self.weights = Some((Weights::assemble(&self.config.text, tensors, self.mode)?, vision));
        let page_bytes = self.layout.page_bytes() as u64;
        let memory = match self.request.page_memory_bytes {
            0 => DEFAULT_PAGE_BYTES,
            bytes => bytes,
        };
        Ok(Ready {
            page_bytes,
            max_pages: memory / page_bytes,
            weight_bytes,
            workspace_bytes,
            ..Ready::default()
        })
    }

    fn reserve(&mut self, num_pages: u64) -> Result<()> {
        let Some((weights, vision)) = self.weights.take() else {
            return Err(Error::Fatal("reserve comes once, after ready".to_owned()));
        };
        let text = self.config.text.clone();
        let limits = Limits::from_open(&self.request, text.vocab_size, num_pages);
        let store = PageStore::new(self.layout.clone(), self.request.kv_dtype, num_pages as usize);
        let with_taps = self.request.flags & OPEN_TAPS != 0;
        self.serving = Some(Serving {
            model: ReferenceModel::new(text, weights, store, with_taps),
            vision: self.config.vision.clone().zip(vision),
            rows: RowTable::new(limits),
            batch: Batch::default(),
            finished: VecDeque::new(),
            taps: HashMap::new(),
            last_ticket: 0,
            dead: None,
        });
        Ok(())
    }

    fn warm(&mut self, _shapes: &[WarmShape]) -> Result<()> {
        self.serving().map(|_| ())
    }

    fn submit(&mut self, step: &Step<'_>) -> Result<Ticket> {
        let serving = self.serving()?;
        let outcome = serving.run(step);
        serving.dead = outcome.as_ref().err().cloned();
        outcome
    }

    fn wait(&mut self, ticket: Ticket, output: &mut Output) -> Result<()> {
        let serving = self.serving()?;
        while let Some(finished) = serving.finished.pop_front() {
            if finished.ticket == ticket {
                serving.taps = finished.taps;
                return hand_out(&finished.output, output);
            }
        }
        Err(Error::Fatal(format!("ticket {} was never given out, or was waited for already", ticket.0)))
    }

    fn done(&mut self) -> Result<Ticket> {
        Ok(Ticket(self.serving()?.last_ticket))
    }

    fn copy_pages(&mut self, copies: &[PageCopy]) -> Result<()> {
        let store = &mut self.serving()?.model.store;
        copies.iter().try_for_each(|copy| store.copy(copy.from, copy.to))
    }

    fn read_pages(&mut self, pages: &[u32], bytes: &mut Vec<u8>) -> Result<()> {
        bytes.clear();
        self.serving()?.model.store.read(pages, bytes)
    }

    fn write_pages(&mut self, pages: &[u32], bytes: &[u8]) -> Result<()> {
        self.serving()?.model.store.write_bytes(pages, bytes)
    }

    fn encode(&mut self, patches: &[f32], row_len: usize, grids: &[[u32; 3]]) -> Result<Media> {
        self.serving()?.encode(patches, row_len, grids)
    }

    fn media_free(&mut self, handle: u64) -> Result<()> {
        match self.serving()?.model.media.remove(&handle) {
            Some(_) => Ok(()),
            None => unsupported(&format!("media handle {handle} does not exist")),
        }
    }

    fn tap(&mut self, name: &str) -> Result<Tap> {
        let serving = self.serving()?;
        if serving.model.taps.is_none() {
            return unsupported("this instance was opened without taps");
        }
        match TapPoint::parse(name).and_then(|point| serving.taps.get(&point)) {
            Some(tap) => Ok(tap.clone()),
            None => unsupported(&format!("the last step has no tap {name}")),
        }
    }
}

impl Serving {
    fn run(&mut self, step: &Step<'_>) -> Result<Ticket> {
        if self.finished.iter().filter(|finished| finished.is_step).count() >= MAX_IN_FLIGHT {
            return Err(Error::Fatal(format!(
                "step {}: {MAX_IN_FLIGHT} steps are in flight already",
                step.id
            )));
        }
        let started = Instant::now();
        self.rows.apply(step, &mut self.batch)?;
        let capacity = self.batch.logits.iter().map(|position| position.output_slot + 1).max().unwrap_or(0);
        let mut output = Output::with_capacity(capacity, self.rows.limits().max_logprobs as usize);
        self.model.forward(&self.batch, &mut self.rows, &mut output)?;
        output.device_time_us = started.elapsed().as_micros() as u64;
        let taps = self.model.taps.as_mut().map(std::mem::take).unwrap_or_default();
        Ok(self.finish(true, output, taps))
    }

    fn finish(&mut self, is_step: bool, output: Output, taps: HashMap<TapPoint, Tap>) -> Ticket {
        self.last_ticket += 1;
        let ticket = Ticket(self.last_ticket);
        self.finished.push_back(Finished { ticket, is_step, output, taps });
        ticket
    }

    /// The handle is the ticket's number.
    fn encode(&mut self, patches: &[f32], row_len: usize, grids: &[[u32; 3]]) -> Result<Media> {
        let Some((config, weights)) = &self.vision else {
            return unsupported("this model was loaded without a vision tower");
        };
        if let Err(error) = check_grids(config, patches.len(), row_len, grids) {
            return unsupported(&error.to_string());
        }
        let encoded = encode(config, weights, patches, grids);
        let num_rows = patches.len() / row_len / config.merged_patches();
        let (vision_hidden, hidden) = (config.hidden_size, encoded.features.len() / num_rows);
        let shape = |rows: usize, width: usize| vec![rows as u64, width as u64];
        let mut taps = HashMap::new();
        if self.model.taps.is_some() {
            let rows = patches.len() / row_len;
            let tower = Tap { shape: shape(rows, vision_hidden), data: encoded.tower_out };
            taps.insert(TapPoint::TowerOut, tower);
            let features = Tap { shape: shape(num_rows, hidden), data: encoded.features.clone() };
            taps.insert(TapPoint::Features, features);
        }
        let ticket = self.finish(false, Output::default(), taps);
        let bytes = encoded.features.len() as u64 * 4;
        self.model.media.insert(ticket.0, encoded.features);
        Ok(Media { handle: ticket.0, num_rows: num_rows as u32, ticket, bytes })
    }
}

/// Copies what was made into the caller's slots.
fn hand_out(made: &Output, output: &mut Output) -> Result<()> {
    let (count, capacity) = (made.tokens.len(), output.tokens.len());
    if count > capacity {
        return Err(Error::Fatal(format!("the step fills {count} output slots, the caller has {capacity}")));
    }
    output.tokens[..count].copy_from_slice(&made.tokens);
    output.logprobs[..count].copy_from_slice(&made.logprobs);
    output.faults[..count].copy_from_slice(&made.faults);
    output.ranks[..count].copy_from_slice(&made.ranks);
    let (from, to) = (made.top_capacity, output.top_capacity);
    for slot in 0..count {
        let shared = from.min(to);
        output.top_ids[slot * to..][..shared].copy_from_slice(&made.top_ids[slot * from..][..shared]);
        output.top_logprobs[slot * to..][..shared]
            .copy_from_slice(&made.top_logprobs[slot * from..][..shared]);
    }
    output.device_time_us = made.device_time_us;
    Ok(())
}

fn refuse_worlds(tp: u32, ep: u32) -> Result<()> {
    if tp > 1 || ep > 1 {
        return unsupported(&format!("the reference is one rank, not tp {tp} with ep {ep}"));
    }
    Ok(())
}

fn read_config(bytes: &[u8]) -> Result<ModelConfig> {
    match ModelConfig::from_json(bytes) {
        Ok(loaded) => Ok(loaded.config),
        Err(error) => Err(Error::Unsupported(error.to_string())),
    }
}

fn unsupported<T>(sentence: &str) -> Result<T> {
    Err(Error::Unsupported(sentence.to_owned()))
}
