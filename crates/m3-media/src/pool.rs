//! Decoding off the async threads, with a bound on how many media are decoded at once and on the memory that they take
//! together. What does not fit waits in line; nothing is queued without end, because every waiter is a request.

use crate::decode::{self, decode_image};
use crate::error::{Error, Result};
use crate::picture::{Clip, Meta, Picture};
use crate::policy::Limits;
use crate::video;
use bytes::Bytes;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Memory is counted in pieces of this many bytes.
const PIECE: u64 = 1 << 20;

/// Decodes under bounds. One per server; cheap to clone.
#[derive(Clone)]
pub struct Pool {
    limits: Arc<Limits>,
    turns: Arc<Semaphore>,
    memory: Arc<Semaphore>,
    pieces: u32,
}

impl Pool {
    /// A pool of `decoders` media at once which together take at most `bytes` of memory while they are decoded; a medium
    /// that alone would take more is decoded alone.
    pub fn new(limits: Limits, decoders: usize, bytes: u64) -> Pool {
        let pieces = u32::try_from(bytes / PIECE).unwrap_or(u32::MAX).max(1);
        Pool {
            limits: Arc::new(limits),
            turns: Arc::new(Semaphore::new(decoders.max(1))),
            memory: Arc::new(Semaphore::new(pieces as usize)),
            pieces,
        }
    }

    /// The limits on every medium.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Decodes a picture. If the future is dropped while a thread decodes, the place stays taken until it has finished.
    ///
    /// # Errors
    /// As [`decode_image`].
    pub async fn image(&self, bytes: Bytes) -> Result<Picture> {
        let turn = self.turn().await?;
        let (limits, head) = (self.limits.clone(), bytes.clone());
        let header = off_thread(move || decode::header(&head, &limits)).await?;
        let memory = self.memory(header.working_bytes()).await?;
        let limits = self.limits.clone();
        off_thread(move || {
            let _held = (turn, memory);
            decode_image(&bytes, &limits)
        })
        .await
    }

    /// Decodes the frames of a video that `choose` picks, each passed through `each` as it comes; see
    /// [`video::decode`]. Dropping the future ends the work.
    ///
    /// # Errors
    /// As [`video::decode`].
    pub async fn video(
        &self,
        bytes: Bytes,
        choose: impl FnMut(&Meta) -> Vec<u64>,
        each: impl FnMut(Picture) -> Result<Picture>,
    ) -> Result<Clip> {
        let _turn = self.turn().await?;
        let _memory = self.memory(self.limits.max_clip_bytes).await?;
        video::decode(&bytes, &self.limits, choose, each).await
    }

    async fn turn(&self) -> Result<OwnedSemaphorePermit> {
        self.turns.clone().acquire_owned().await.map_err(|_| ended())
    }

    /// Turns are taken before memory, and who has both ends by itself, so waiting here always ends.
    async fn memory(&self, bytes: u64) -> Result<OwnedSemaphorePermit> {
        let pieces = u32::try_from(bytes.div_ceil(PIECE)).unwrap_or(u32::MAX).min(self.pieces);
        self.memory.clone().acquire_many_owned(pieces).await.map_err(|_| ended())
    }
}

async fn off_thread<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(|_| Error::Internal("decoding a medium failed".into()))?
}

fn ended() -> Error {
    Error::Internal("decoding of media has ended".into())
}

#[cfg(test)]
mod tests;
