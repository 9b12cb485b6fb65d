//! The future that calling a step returns.
//!
//! Invariant: it adds nothing but its name and a warning when it is not awaited.

use pin_project_lite::pin_project;
use std::{
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

pin_project! {
    /// A step that was called: its place in the run is taken, it runs when it is awaited.
    #[must_use = "a step does nothing until it is awaited"]
    pub struct Step<F> {
        #[pin]
        future: F,
    }
}

impl<F> Step<F> {
    /// Wraps the future of a call.
    pub fn new(future: F) -> Self {
        Self { future }
    }
}

impl<F: Future> Future for Step<F> {
    type Output = F::Output;
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        self.project().future.poll(cx)
    }
}

impl<F> fmt::Debug for Step<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Step")
    }
}
