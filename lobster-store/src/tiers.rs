//! The tiers that an engine stands on, as one value.
//!
//! Invariant: the engine sees promises, never products.

use crate::contract::{Catalog, Journal, Members, Wake};
use std::{fmt, sync::Arc};

/// One installation's stores. Cheap to clone.
#[derive(Clone)]
pub struct Tiers {
    /// Runs and deltas.
    pub journal: Arc<dyn Journal>,
    /// Nodes.
    pub members: Arc<dyn Members>,
    /// Reads.
    pub catalog: Arc<dyn Catalog>,
    /// Hints.
    pub wake: Arc<dyn Wake>,
    /// What it is, for logs: a word and a place, never a secret.
    pub label: String,
}

impl fmt::Debug for Tiers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Tiers").field(&self.label).finish()
    }
}

impl Tiers {
    /// One value that keeps all promises.
    pub fn of<S: Journal + Members + Catalog + Wake>(store: Arc<S>, label: impl Into<String>) -> Self {
        Self { journal: store.clone(), members: store.clone(), catalog: store.clone(), wake: store, label: label.into() }
    }
}
