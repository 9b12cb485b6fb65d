//! Bytes on their way in one direction: each chunk with the moment at which it may arrive.
//!
//! Invariant: they leave in the order in which they came.

use std::{collections::VecDeque, io, time::Duration};
use tokio::{
    io::AsyncWriteExt,
    net::tcp::WriteHalf,
    time::{Instant, sleep_until},
};

/// What one direction of one connection may hold; beyond that its sender has to wait.
const BYTES_MAX: usize = 64 << 20;

#[derive(Default)]
pub(super) struct Held {
    chunks: VecDeque<(Instant, Vec<u8>)>,
    /// How much of the first chunk has left.
    written: usize,
    bytes: usize,
}

impl Held {
    pub fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    /// Is there more than the last so many bytes?
    pub fn exceeds(&self, last: usize) -> bool {
        self.bytes - self.written > last
    }

    pub fn has_room(&self) -> bool {
        self.bytes < BYTES_MAX
    }

    pub fn push(&mut self, chunk: &[u8], delay: Duration) {
        if !chunk.is_empty() {
            self.bytes += chunk.len();
            self.chunks.push_back((Instant::now() + delay, chunk.to_owned()));
        }
    }

    /// Writes some of what is due, once something is, but nothing of the last so many bytes. Dropped before it is done, it has written
    /// nothing.
    pub async fn write(&mut self, to: &mut WriteHalf<'_>, last: usize) -> io::Result<()> {
        let most = (self.bytes - self.written).saturating_sub(last);
        let Some((due, chunk)) = self.chunks.front() else { return Ok(()) };
        sleep_until(*due).await;
        let end = chunk.len().min(self.written + most);
        self.written += to.write(&chunk[self.written..end]).await?;
        if self.written == chunk.len() {
            self.bytes -= chunk.len();
            self.written = 0;
            self.chunks.pop_front();
        }
        Ok(())
    }

    /// All that has not left.
    pub fn into_bytes(self) -> Vec<u8> {
        let all: Vec<u8> = self.chunks.into_iter().flat_map(|(_, chunk)| chunk).collect();
        all[self.written..].to_owned()
    }
}
