//! First and last operations: embedding, final norm, head and sampling.
//!
//! Logits of a step may be many (log-probabilities of a prompt), so they are made a pass at a time and sampled before the
//! next; every rank sees the whole vocabulary and samples the same tokens, because chained rows need them everywhere.

use m3_abi::{Error, Output};
use m3_model::batch::{Batch, BatchMedia, RowTable};
use m3_model::sampling::fill_slot;
use m3_model::taps::TapPoint;
use rayon::prelude::*;

use super::CpuOps;

impl CpuOps {
    pub(super) fn embed_tokens(&mut self, batch: &Batch) -> Result<(), Error> {
        let hidden = self.config.hidden_size;
        let model = self.model.clone();
        let vocab = model.plan.vocab.clone();
        let work = &mut self.work;
        work.has_pending = false;
        work.angles.clear();
        for &position in &batch.positions {
            work.angles.extend(self.rope.angles(position));
        }
        work.residual.resize(batch.num_tokens() * hidden, 0.0);
        work.residual.par_chunks_mut(hidden).zip(&batch.token_ids).for_each(|(row, &token)| {
            // Another rank's rows count as zero in the sum below.
            match (token as usize).checked_sub(vocab.start).filter(|_| vocab.contains(&(token as usize))) {
                Some(local) => model.embedding.decode_row(local, row),
                None => row.fill(0.0),
            }
        });
        if let Some(peers) = &mut self.peers {
            peers.all_reduce(&mut self.work.residual)?;
        }
        // After the sum: every rank has the rows whole.
        batch.media.iter().try_for_each(|span| self.embed_media(span))
    }

    fn embed_media(&mut self, span: &BatchMedia) -> Result<(), Error> {
        let (hidden, handle) = (self.config.hidden_size, span.handle);
        let Some(rows) = self.media.get(&handle) else {
            return Err(Error::Fatal(format!("media handle {handle} does not exist")));
        };
        let (first, end) = (span.first_row as usize, span.first_row as usize + span.len);
        let Some(wanted) = rows.get(first * hidden..end * hidden) else {
            let len = rows.len() / hidden;
            return Err(Error::Fatal(format!(
                "rows {first}..{end} of media {handle} reach beyond its {len}"
            )));
        };
        self.work.residual[span.token * hidden..][..wanted.len()].copy_from_slice(wanted);
        Ok(())
    }

    /// Normed rows of the logits positions into `work.hidden`.
    pub(super) fn final_norm(&mut self, batch: &Batch) -> Result<(), Error> {
        let hidden = self.config.hidden_size;
        let work = &mut self.work;
        // Only the positions that need logits are reduced.
        let pick = |rows: &[f32]| -> Vec<f32> {
            batch
                .logits
                .iter()
                .flat_map(|position| &rows[position.token * hidden..][..hidden])
                .copied()
                .collect()
        };
        let mut rows = pick(&work.residual);
        if std::mem::take(&mut work.has_pending) {
            let mut pending = pick(&work.pending);
            if let Some(peers) = &mut self.peers {
                peers.all_reduce(&mut pending)?;
            }
            super::add(&mut rows, &pending);
        }
        let (kernels, eps, gain) = (self.kernels, self.config.norm_eps, &self.model.norm);
        work.hidden.fill(batch.logits.len(), hidden, |row, normed| {
            normed.copy_from_slice(&rows[row * hidden..][..hidden]);
            kernels.rms_norm(normed, gain, eps);
        });
        let normed = &work.hidden.values;
        self.taps.keep(TapPoint::Hidden, &[batch.logits.len(), hidden], || normed.clone());
        Ok(())
    }

    /// Head, gathered over ranks, and the choice at every position.
    pub(super) fn sample_positions(
        &mut self,
        batch: &Batch,
        rows: &mut RowTable,
        output: &mut Output,
    ) -> Result<(), Error> {
        let vocab = self.config.vocab_size;
        let pass = self.work.sizes.logits_rows;
        for first in (0..batch.logits.len()).step_by(pass) {
            let count = pass.min(batch.logits.len() - first);
            self.logits_of(first, count)?;
            self.taps.append(TapPoint::Logits, vocab, &self.work.logits);
            for (index, logits) in self.work.logits.chunks(vocab).enumerate() {
                fill_slot(batch, first + index, logits, rows, output, &mut self.sampling);
            }
        }
        Ok(())
    }

    /// Logits of `count` rows from `first` into `work.logits`, the whole vocabulary.
    fn logits_of(&mut self, first: usize, count: usize) -> Result<(), Error> {
        let (vocab, part) = (self.config.vocab_size, self.model.plan.vocab.clone());
        let work = &mut self.work;
        let inputs = work.hidden.rows(self.config.hidden_size).range(first, first + count);
        if part.len() == vocab {
            work.logits.resize(count * vocab, 0.0);
            self.kernels.gemm(inputs, &self.model.head, &mut work.logits);
            return Ok(());
        }
        work.local_logits.resize(count * part.len(), 0.0);
        self.kernels.gemm(inputs, &self.model.head, &mut work.local_logits);
        let Some(peers) = &mut self.peers else {
            // Solo: other ranks' part of the vocabulary cannot be sampled.
            work.logits.clear();
            work.logits.resize(count * vocab, f32::NEG_INFINITY);
            for (row, local) in work.logits.chunks_mut(vocab).zip(work.local_logits.chunks(part.len())) {
                row[part.clone()].copy_from_slice(local);
            }
            return Ok(());
        };
        let logits = &mut work.logits;
        let is_whole = peers.exchange(&work.local_logits, |parts| {
            logits.clear();
            for row in 0..count {
                for part in parts {
                    let width = part.len() / count;
                    logits.extend_from_slice(&part[row * width..][..width]);
                }
            }
            logits.len() == count * vocab
        })?;
        if is_whole { Ok(()) } else { Err(peers.poison("was given another step than its peers")) }
    }
}
