//! Encoding what the next chunks need, no earlier and no later, a bounded number of patches ahead of a step.
//!
//! A video is encoded in pieces: runs of temporal patches that attend to each other, so that a long one neither stalls
//! other requests nor has to fit the device whole. A sequence holds the pieces its next chunk covers until the steps that
//! use them have completed. Nobody waits for ever: whoever holds a piece can compute up to its end, and when nobody
//! holds any, every piece fits (or its request was refused).

use std::ops::Range;
use std::sync::Arc;

use m3_abi::types::MediaSpan;

use super::Scheduler;
use super::media_limits::MediaLimits;
use super::queue::Place;
use super::sequence::Sequence;
use crate::cache::media::{MediaId, PieceKey};
use crate::cache::radix::KeyedRun;
use crate::event::FinishReason;
use crate::request::Medium;

/// A piece to encode on every rank.
#[derive(Clone, Debug)]
pub struct Encode {
    pub id: MediaId,
    /// Of the whole medium.
    pub patches: Arc<[f32]>,
    /// The piece's values.
    pub values: Range<usize>,
    pub row_len: usize,
    /// t, h, w of the piece.
    pub grid: [u32; 3],
    /// Rows it must become.
    pub num_rows: u32,
    place: Place,
    key: PieceKey,
}

impl Encode {
    /// Of a piece that has no id yet.
    fn new(piece: &Piece, medium: &Medium, limits: &MediaLimits, place: Place) -> Self {
        let [_, h, w] = medium.grid;
        let frame = h as usize * w as usize * limits.row_len;
        let frames = piece.frames.clone();
        Encode {
            id: MediaId(0),
            patches: medium.patches.clone(),
            values: frames.start * frame..frames.end * frame,
            row_len: limits.row_len,
            grid: [frames.len() as u32, h, w],
            num_rows: limits.rows(medium.grid, frames.len()) as u32,
            place,
            key: piece.key,
        }
    }
}

/// What the ranks are to do before the next step.
#[derive(Clone, Debug, Default)]
pub struct MediaWork {
    /// No step in flight uses these. First, because the encodes count on their room.
    pub frees: Vec<MediaId>,
    pub encodes: Vec<Encode>,
    /// Pieces that a sequence has taken hold of, to be encoded or found encoded: when there are some, another step may
    /// be planned that could not be before.
    pub num_taken: usize,
}

/// A sequence's images and videos: where their rows go and which of them it holds.
#[derive(Default)]
pub(super) struct SequenceMedia {
    /// In order of position: what stands in the prefix cache's key for their positions.
    pub(super) runs: Vec<KeyedRun>,
    /// In order of position.
    pieces: Vec<Piece>,
}

struct Piece {
    key: PieceKey,
    /// Index among the request's media.
    medium: usize,
    /// Temporal patches.
    frames: Range<usize>,
    /// Prompt positions of its rows, and the first row of each run.
    spans: Vec<(Range<u32>, u32)>,
    held: Option<MediaId>,
}

impl Piece {
    fn first(&self) -> usize {
        self.spans[0].0.start as usize
    }

    fn end(&self) -> usize {
        self.spans[self.spans.len() - 1].0.end as usize
    }
}

impl SequenceMedia {
    /// Of media that [`MediaLimits`] have passed.
    pub(super) fn new(media: &[Medium], limits: Option<&MediaLimits>) -> Self {
        let Some(limits) = limits else { return SequenceMedia::default() };
        let mut all = SequenceMedia::default();
        for (index, medium) in media.iter().enumerate() {
            let mut first_row = 0;
            for run in &medium.runs {
                let digest = medium.digest;
                all.runs.push(KeyedRun {
                    first_position: run.first_position,
                    len: run.len,
                    first_row,
                    digest,
                });
                first_row += run.len;
            }
            let mut row = 0;
            for (piece, frames) in limits.pieces(medium.grid).enumerate() {
                let num_rows = limits.rows(medium.grid, frames.len()) as u32;
                let key = PieceKey { digest: medium.digest, grid: medium.grid, piece: piece as u32 };
                let spans = spans_of(medium, row..row + num_rows);
                all.pieces.push(Piece { key, medium: index, frames, spans, held: None });
                row += num_rows;
            }
        }
        all.runs.sort_by_key(|run| run.first_position);
        all.pieces.sort_by_key(Piece::first);
        all
    }

    /// How far from `start` one can compute with the pieces that are held.
    pub(super) fn reach(&self, start: usize) -> usize {
        let missing = self.pieces.iter().filter(|piece| piece.held.is_none());
        let positions = missing.flat_map(|piece| piece.spans.iter());
        let ahead = positions.filter(|(span, _)| span.end as usize > start);
        ahead.map(|(span, _)| (span.start as usize).max(start)).min().unwrap_or(usize::MAX)
    }

    /// Rows for the positions of a step's part.
    pub(super) fn spans(&self, positions: Range<usize>, row: u32) -> impl Iterator<Item = MediaSpan> {
        let (start, end) = (positions.start as u32, positions.end as u32);
        let held = self.pieces.iter().filter_map(|piece| Some((piece.held?, &piece.spans)));
        held.flat_map(|(id, spans)| spans.iter().map(move |span| (id, span))).filter_map(
            move |(id, (span, first_row))| {
                let (first, last) = (span.start.max(start), span.end.min(end));
                (first < last).then(|| MediaSpan {
                    handle: id.0,
                    row,
                    first_position: first,
                    len: last - first,
                    first_row: first_row + (first - span.start),
                })
            },
        )
    }

    /// Keys of the pieces it holds.
    pub(super) fn held(&self) -> impl Iterator<Item = &PieceKey> {
        self.pieces.iter().filter(|piece| piece.held.is_some()).map(|piece| &piece.key)
    }

    /// Takes back the holds of pieces that end at or before `done`.
    fn let_go(&mut self, done: usize) -> Vec<PieceKey> {
        let passed = self.pieces.iter_mut().filter(|piece| piece.end() <= done);
        passed.filter_map(|piece| piece.held.take().map(|_| piece.key)).collect()
    }
}

impl SequenceMedia {
    /// Takes back the holds of pieces from `index` on, which no step uses yet: the piece at `index` is not there.
    fn let_go_from(&mut self, index: usize) -> Vec<PieceKey> {
        let later = self.pieces[index..].iter_mut();
        later.filter_map(|piece| piece.held.take().map(|_| piece.key)).collect()
    }
}

/// Where rows `rows` of a medium go; first rows count within the range.
fn spans_of(medium: &Medium, rows: Range<u32>) -> Vec<(Range<u32>, u32)> {
    let mut spans = Vec::new();
    let mut first_row = 0;
    for run in &medium.runs {
        let (from, to) = (rows.start.max(first_row), rows.end.min(first_row + run.len));
        if from < to {
            let first = run.first_position + (from - first_row);
            spans.push((first..first + (to - from), from - rows.start));
        }
        first_row += run.len;
    }
    spans
}

impl Scheduler {
    /// What to encode and free now, to be done on every rank before the next step is submitted; each encode is answered
    /// through [`Self::encoded`] before anything else is planned.
    pub fn media_work(&mut self) -> MediaWork {
        let mut work = MediaWork::default();
        if let Some(limits) = self.config.media.limits().cloned() {
            let mut patches_left = limits.patches_per_step;
            let places: Vec<Place> = self.queues.running.keys().copied().collect();
            for place in places {
                if !self.hold_pieces(place, &limits, (&mut work, &mut patches_left)) {
                    break;
                }
            }
        }
        work.frees = self.media.take_freed();
        work
    }

    /// What became of an encode: the device's bytes, or why it could not be done, which ends its request and no other.
    pub fn encoded(&mut self, encode: &Encode, outcome: Result<u64, String>, now_us: u64) {
        match outcome {
            Ok(bytes) => {
                self.media.resize(&encode.key, bytes);
                self.counters.media_encodes += 1;
                self.counters.media_patches += (encode.values.len() / encode.row_len) as u64;
            }
            Err(reason) => {
                // Others that wait for the same piece ask for it again, and hear for themselves.
                let sequences = self.queues.running.values_mut().chain(self.queues.ending.values_mut());
                let pieces = sequences.flat_map(|sequence| sequence.media.pieces.iter_mut());
                pieces.filter(|piece| piece.held == Some(encode.id)).for_each(|piece| piece.held = None);
                self.media.forget(&encode.key);
                self.end(encode.place, FinishReason::Error(reason), now_us);
            }
        }
    }

    /// Takes hold of what the next chunk of a sequence covers. `false` when the patches of this step are spent.
    fn hold_pieces(
        &mut self,
        place: Place,
        limits: &MediaLimits,
        (work, patches_left): (&mut MediaWork, &mut usize),
    ) -> bool {
        let sequence = self.queues.running.get_mut(&place).expect("its place was among the running");
        let start = sequence.computed;
        let end = start + sequence.remaining().min(self.config.max_step_tokens);
        for index in 0..sequence.media.pieces.len() {
            let piece = &mut sequence.media.pieces[index];
            if piece.held.is_some() || piece.end() <= start || piece.first() >= end {
                continue;
            }
            if let Some(id) = self.media.hold(&piece.key) {
                self.counters.media_hits += 1;
                piece.held = Some(id);
                work.num_taken += 1;
                continue;
            }
            let medium = &sequence.request.media[piece.medium];
            let mut encode = Encode::new(piece, medium, limits, place);
            let num_patches = encode.values.len() / encode.row_len;
            if num_patches > *patches_left && !work.encodes.is_empty() {
                return false;
            }
            let bytes = u64::from(encode.num_rows) * limits.row_bytes as u64;
            let found = self.media.insert(encode.key, bytes).or_else(|| {
                // What it holds itself beyond here (from before an encode failed) must not be in its own way.
                sequence.media.let_go_from(index).iter().for_each(|key| self.media.release(key));
                self.media.insert(encode.key, bytes)
            });
            // Without room it is held by others, who will get on; this one computes up to here.
            let Some(id) = found else { return true };
            self.counters.media_misses += 1;
            *patches_left = patches_left.saturating_sub(num_patches);
            encode.id = id;
            sequence.media.pieces[index].held = Some(id);
            work.num_taken += 1;
            work.encodes.push(encode);
        }
        true
    }

    /// Lets go of pieces that no later step of this sequence needs and no step in flight uses for it.
    pub(super) fn release_pieces(&mut self, place: Place) {
        if let Some(sequence) = self.queues.running.get_mut(&place) {
            let done = sequence.done;
            sequence.media.let_go(done).iter().for_each(|key| self.media.release(key));
        }
    }

    /// Lets go of everything a sequence holds.
    pub(super) fn release_all_pieces(&mut self, sequence: &mut Sequence) {
        sequence.media.let_go(usize::MAX).iter().for_each(|key| self.media.release(key));
    }
}
