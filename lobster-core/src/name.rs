//! Names, keys, and what is derived from them: step ids and idempotency keys.
//!
//! Invariant: the derivations below never change; golden values hold them (`docs/stability.md`).

use crate::error::{Error, Result};
use lobster_store::contract::{
    RunId, limits,
    record::{StepName, Which},
};
use sha2::{Digest as _, Sha256};
use std::fmt::Write;
use uuid::Uuid;

/// The caller's key of a run: 1 to 200 bytes of text without control characters.
///
/// ```
/// use lobster_core::Key;
/// let key: Key = "order-42".into();
/// assert_eq!(key.as_str(), "order-42");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key(String);

impl Key {
    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl<S: Into<String>> From<S> for Key {
    fn from(text: S) -> Self {
        Self(text.into())
    }
}

/// Checks a key, name or tag.
pub(crate) fn check(what: &str, text: &str) -> Result<(), Error> {
    match complaint(text) {
        None => Ok(()),
        Some(complaint) => Err(Error::invalid(format!("{what} {complaint}"))),
    }
}

/// What is wrong with a key, name or tag, if anything.
pub(crate) fn complaint(text: &str) -> Option<String> {
    if text.is_empty() {
        return Some("is empty".into());
    }
    if text.len() > limits::NAME_BYTES {
        return Some(format!("has {} bytes; the limit is {}", text.len(), limits::NAME_BYTES));
    }
    text.chars().find(|c| c.is_control()).map(|c| format!("holds the control character {c:?}"))
}

/// A step's identity for people: `scope/name#2` or `scope/name[key]`.
pub(crate) fn display(step: &StepName) -> String {
    let mut text = String::with_capacity(step.scope.len() + step.name.len() + 8);
    if !step.scope.is_empty() {
        text.push_str(&step.scope);
        text.push('/');
    }
    text.push_str(&step.name);
    match &step.which {
        Some(Which::Key(key)) => write!(text, "[{key}]"),
        Some(Which::Occurrence(n)) => write!(text, "#{n}"),
        None => Ok(()),
    }
    .expect("writing to a string cannot fail");
    text
}

/// Every field with its length in front: no two identities have the same bytes.
fn identity(step: &StepName) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(64);
    let mut field = |field: &[u8]| {
        bytes.extend_from_slice(&(field.len() as u32).to_be_bytes());
        bytes.extend_from_slice(field);
    };
    field(step.scope.as_bytes());
    field(step.name.as_bytes());
    match &step.which {
        Some(Which::Key(key)) => {
            field(b"key");
            field(key.as_bytes());
        }
        Some(Which::Occurrence(n)) => {
            field(b"occurrence");
            field(&n.to_be_bytes());
        }
        None => field(b"none"),
    }
    bytes
}

/// The public id of a step: UUIDv5 of its run and identity (RFC 9562, section 5.5).
pub(crate) fn step_id(run: RunId, step: &StepName) -> Uuid {
    Uuid::new_v5(&run.0, &identity(step))
}

/// The idempotency key of an irreversible step: the first 128 bits of SHA-256 over effect root, identity and generation, as 32
/// hexadecimal digits. Version, epoch and attempt are not part of it: every retry of a call carries the same key.
pub(crate) fn idempotency_key(root: RunId, step: &StepName, generation: u32) -> String {
    let mut hasher = Sha256::new();
    hasher.update(b"lobster idempotency key 1");
    hasher.update(root.0.as_bytes());
    hasher.update(identity(step));
    hasher.update(generation.to_be_bytes());
    let digest = hasher.finalize();
    let mut text = String::with_capacity(32);
    for byte in &digest[..16] {
        write!(text, "{byte:02x}").expect("writing to a string cannot fail");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(scope: &str, name: &str, which: Which) -> StepName {
        StepName { scope: scope.into(), name: name.into(), which: Some(which) }
    }

    #[test]
    fn derivations_have_golden_values() {
        let run = RunId("0190c6b4-5a00-7000-8000-000000000001".parse().expect("a UUID"));
        let charge = step("", "charge", Which::Occurrence(0));
        assert_eq!(step_id(run, &charge).to_string(), "dace355d-77af-5c5e-92f2-db2a2109997d");
        assert_eq!(idempotency_key(run, &charge, 0), "e4dbbd45b615685bda95a427dd06af8b");
        assert_eq!(idempotency_key(run, &charge, 1), "54721e346c1c831e6c2724e764b7abe3");
        let keyed = step("left", "charge", Which::Key("42".into()));
        assert_eq!(idempotency_key(run, &keyed, 0), "f93cc109f5c52edfdd527a4dd381ec52");
    }

    #[test]
    fn identities_that_read_alike_differ() {
        let run = RunId(Uuid::nil());
        let all = [
            step("", "a#1", Which::Occurrence(0)),
            step("", "a", Which::Occurrence(1)),
            step("", "a", Which::Key("1".into())),
            step("a", "1", Which::Occurrence(0)),
        ];
        for (i, one) in all.iter().enumerate() {
            for other in &all[i + 1..] {
                assert_ne!(step_id(run, one), step_id(run, other));
                assert_ne!(idempotency_key(run, one, 0), idempotency_key(run, other, 0));
            }
        }
    }

    #[test]
    fn hostile_names_are_refused() {
        for (name, word) in [("", "empty"), ("a\0b", "control"), ("a\nb", "control"), (&"x".repeat(201), "limit")] {
            assert!(complaint(name).is_some_and(|complaint| complaint.contains(word)), "{name:?}");
        }
        assert_eq!(complaint("Zürich 🦞 'quoted' \"twice\""), None);
        assert_eq!(complaint(&"x".repeat(200)), None);
    }
}
