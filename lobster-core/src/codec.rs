//! Values to bytes and back: JSON, its limit, and the canonical digest of an input.
//!
//! Invariant: a value over the limit is refused here, before anything is recorded.

use crate::{error::panic_text, state::member::Trouble};
use bytes::Bytes;
use lobster_store::contract::{
    Digest, limits,
    record::{Codec, Payload},
};
use serde::{Serialize, de::DeserializeOwned};
use sha2::{Digest as _, Sha256};
use std::panic::catch_unwind;

/// Why a value has no encoding, or bytes no value.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CodecError {
    #[error("cannot encode {what}: {error}")]
    Encode { what: &'static str, error: serde_json::Error },
    #[error("cannot decode {what}: {error}")]
    Decode { what: &'static str, error: serde_json::Error },
    #[error("the encoded {what} has {bytes} bytes; the limit is {limit}", limit = limits::PAYLOAD_BYTES)]
    TooLarge { what: &'static str, bytes: usize },
    #[error("codec {0} is not known to this code")]
    Unknown(i32),
    #[error("cannot decode {what}: {panic}")]
    Panicked { what: &'static str, panic: String },
}

/// What a step or a task returns: sees through `Result` aliases, so that no macro has to parse them.
#[diagnostic::on_unimplemented(
    message = "a step or task returns a `Result` whose value can be serialized and deserialized, and whose error converts into a boxed error",
    label = "not what a step or task may return",
    note = "the value needs `serde::Serialize + serde::de::DeserializeOwned + Send`; any `std::error::Error + Send + Sync` will do as error"
)]
pub trait Returned {
    /// The value.
    type Value: Serialize + DeserializeOwned + Send + 'static;
    /// The error. What it must be is asked where it is used: a bound here would have to hold for every lifetime.
    type Error;
    /// Value or error.
    ///
    /// # Errors
    /// What the body returned as one.
    fn split(self) -> Result<Self::Value, Self::Error>;
}

impl<T, E> Returned for Result<T, E>
where
    T: Serialize + DeserializeOwned + Send + 'static,
{
    type Value = T;
    type Error = E;
    fn split(self) -> Result<T, E> {
        self
    }
}

/// Encodes a value, within the payload limit.
pub(crate) fn encode<T: Serialize + ?Sized>(value: &T) -> Result<Payload, CodecError> {
    encode_into(Vec::with_capacity(128), value)
}

fn encode_into<T: Serialize + ?Sized>(mut data: Vec<u8>, value: &T) -> Result<Payload, CodecError> {
    let what = std::any::type_name::<T>();
    serde_json::to_writer(&mut data, value).map_err(|error| CodecError::Encode { what, error })?;
    if data.len() > limits::PAYLOAD_BYTES {
        return Err(CodecError::TooLarge { what, bytes: data.len() });
    }
    Ok(Payload { codec: Codec::Json as i32, data: data.into() })
}

/// Decodes a value.
pub(crate) fn decode<T: DeserializeOwned>(payload: &Payload) -> Result<T, CodecError> {
    match Codec::try_from(payload.codec) {
        Ok(Codec::Json) => decode_raw(&payload.data),
        _ => Err(CodecError::Unknown(payload.codec)),
    }
}

/// Encodes a value of a state, within the payload limit. How is said once, by its state: [`STATES`].
pub(crate) fn raw<T: Serialize + ?Sized>(value: &T) -> Result<Bytes, CodecError> {
    encode(value).map(|payload| payload.data)
}

/// The same for a value that had so many bytes before, and will hardly have many more.
pub(crate) fn raw_again<T: Serialize + ?Sized>(value: &T, bytes: usize) -> Result<Bytes, CodecError> {
    encode_into(Vec::with_capacity(bytes), value).map(|payload| payload.data)
}

/// Codec of all values of states that this code writes.
pub(crate) const STATES: Codec = Codec::Json;

/// Decodes a value of a state. What decodes is the user's code: a panic of it is one more reason why there is no value.
pub(crate) fn decode_raw<T: DeserializeOwned>(data: &[u8]) -> Result<T, CodecError> {
    let what = std::any::type_name::<T>();
    match catch_unwind(|| serde_json::from_slice(data)) {
        Ok(decoded) => decoded.map_err(|error| CodecError::Decode { what, error }),
        Err(panic) => Err(CodecError::Panicked { what, panic: panic_text(&*panic) }),
    }
}

/// Debug builds decode what they are about to record, encode it again, and compare.
///
/// # Errors
/// It does not decode, or comes back as something else.
pub(crate) fn stable<T: Serialize + DeserializeOwned>(data: &Bytes) -> Result<(), Trouble> {
    if cfg!(debug_assertions) {
        let again = raw(&decode_raw::<T>(data)?)?;
        // A hash map or set comes back in another order.
        if again != *data && unordered(&decode_raw(&again)?) != unordered(&decode_raw(data)?) {
            return Err(Trouble::Unstable);
        }
    }
    Ok(())
}

/// A value's text with everything in it sorted.
fn unordered(value: &serde_json::Value) -> String {
    use serde_json::Value;
    let mut parts: Vec<String> = match value {
        Value::Array(items) => items.iter().map(unordered).collect(),
        Value::Object(entries) => entries.iter().map(|(key, value)| format!("{key:?}:{}", unordered(value))).collect(),
        other => return other.to_string(),
    };
    parts.sort_unstable();
    format!("[{}]", parts.join(","))
}

/// Digest of a value's canonical encoding: maps in key order at every depth, so that insertion order does not matter.
pub(crate) fn digest(payload: &Payload) -> Digest {
    let mut hasher = Sha256::new();
    match serde_json::from_slice::<serde_json::Value>(&payload.data) {
        Ok(value) => feed(&value, &mut hasher),
        Err(_) => hasher.update(&payload.data),
    }
    hasher.finalize().into()
}

fn feed(value: &serde_json::Value, hasher: &mut Sha256) {
    use serde_json::Value;
    let text = |hasher: &mut Sha256, tag: u8, text: &str| {
        hasher.update([tag]);
        hasher.update((text.len() as u64).to_le_bytes());
        hasher.update(text);
    };
    match value {
        Value::Null => hasher.update(b"z"),
        Value::Bool(false) => hasher.update(b"f"),
        Value::Bool(true) => hasher.update(b"t"),
        Value::Number(number) => text(hasher, b'n', &number.to_string()),
        Value::String(string) => text(hasher, b's', string),
        Value::Array(items) => {
            hasher.update(b"a");
            hasher.update((items.len() as u64).to_le_bytes());
            items.iter().for_each(|item| feed(item, hasher));
        }
        Value::Object(map) => {
            hasher.update(b"o");
            hasher.update((map.len() as u64).to_le_bytes());
            let mut entries: Vec<_> = map.iter().collect();
            entries.sort_unstable_by_key(|(key, _)| *key);
            for (key, item) in entries {
                text(hasher, b'k', key);
                feed(item, hasher);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_that_does_not_come_back_is_told_in_debug_builds() {
        #[derive(Serialize, serde::Deserialize)]
        struct Forgetful {
            #[serde(skip_deserializing)]
            count: u32,
        }
        let told = stable::<Forgetful>(&raw(&Forgetful { count: 3 }).unwrap());
        assert_eq!(told.is_err(), cfg!(debug_assertions));
        let set: std::collections::HashSet<u32> = (0..100).collect();
        stable::<std::collections::HashSet<u32>>(&raw(&set).unwrap()).unwrap();
        for float in [0.1 + 0.2, f64::MIN_POSITIVE, 1.0 / 3.0, 123_456_789.123_456_79, 5e-324] {
            assert_eq!(decode_raw::<f64>(&raw(&float).unwrap()).unwrap().to_bits(), float.to_bits());
        }
    }

    #[test]
    fn map_order_does_not_change_a_digest() {
        let json = |text: &str| Payload { codec: Codec::Json as i32, data: text.to_owned().into() };
        let one = digest(&json(r#"{"a":1,"b":{"c":[1,2],"d":null}}"#));
        assert_eq!(one, digest(&json(r#"{ "b":{"d":null,"c":[1,2]},"a":1 }"#)));
        assert_ne!(one, digest(&json(r#"{"a":1,"b":{"c":[2,1],"d":null}}"#)));
        assert_ne!(digest(&json(r#"["ab","c"]"#)), digest(&json(r#"["a","bc"]"#)));
    }

    #[test]
    fn the_original_error_of_a_serializer_is_shown() {
        let map = std::collections::HashMap::from([((1, 2), 3)]);
        let error = encode(&map).expect_err("JSON has no tuple keys");
        assert!(error.to_string().contains("key must be a string"), "{error}");
    }
}
