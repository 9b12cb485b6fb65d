//! Chance, all of it from one seed: separate streams, so that one more draw here changes nothing there.
//!
//! Invariant: a stream's numbers depend on its seed, its name and the count of draws, and on nothing else.

use std::time::Duration;

/// A stream of numbers (SplitMix64: S. Vigna, <https://prng.di.unimi.it/splitmix64.c>).
#[derive(Clone, Debug)]
pub(crate) struct Rng {
    state: u64,
    drawn: u64,
}

fn mix(mut word: u64) -> u64 {
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

impl Rng {
    /// The stream `name`, number `index`, of a seed.
    pub fn new(seed: u64, name: &str, index: u64) -> Self {
        let named = name.bytes().fold(mix(seed ^ 0x6c6f_6273_7465_7200), |state, byte| mix(state ^ u64::from(byte)));
        Self { state: mix(named ^ index), drawn: 0 }
    }
    /// How many numbers were drawn.
    pub fn drawn(&self) -> u64 {
        self.drawn
    }
    pub fn next(&mut self) -> u64 {
        self.drawn += 1;
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.state)
    }
    /// Uniform in `0..n`; 0 if `n` is 0.
    pub fn below(&mut self, n: u64) -> u64 {
        let wide = u128::from(self.next()) * u128::from(n);
        u64::try_from(wide >> 64).unwrap_or(0)
    }
    /// Uniform in `low..=high`.
    pub fn within(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high.saturating_sub(low) + 1)
    }
    /// True `permille` times in a thousand.
    pub fn chance(&mut self, permille: u32) -> bool {
        self.below(1000) < u64::from(permille)
    }
    /// One of these, which are not none.
    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        let index = self.below(from.len() as u64);
        from[usize::try_from(index).unwrap_or(0)]
    }
    /// Uniform milliseconds in `low..=high`.
    pub fn ms(&mut self, low: u64, high: u64) -> Duration {
        Duration::from_millis(self.within(low, high))
    }
}
