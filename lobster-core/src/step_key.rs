//! Keys of steps: values as text.
//!
//! Invariant: values of one type with different texts have different keys, also inside tuples.

use std::{borrow::Cow, fmt::Write};

/// A step's key, as text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key(pub(crate) String);

/// Turns a value into a step's key. Values of one type with different texts have different keys; strings inside tuples are
/// escaped, so `("a", "b,c")` and `("a,b", "c")` differ.
pub trait StepKey {
    /// Appends the text.
    fn write(&self, text: &mut String);
}

macro_rules! plain_keys {
    ($($kind:ty),*) => {$(
        impl StepKey for $kind {
            fn write(&self, text: &mut String) {
                write!(text, "{self}").expect("writing to a string cannot fail");
            }
        }
    )*};
}
plain_keys!(u8, u16, u32, u64, u128, usize, i8, i16, i32, i64, i128, isize, bool, char, str, String, uuid::Uuid, crate::RunId);

impl StepKey for Cow<'_, str> {
    fn write(&self, text: &mut String) {
        text.push_str(self);
    }
}

impl<K: StepKey + ?Sized> StepKey for &K {
    fn write(&self, text: &mut String) {
        (**self).write(text);
    }
}

macro_rules! tuple_keys {
    ($($name:ident)+) => {
        impl<$($name: StepKey),+> StepKey for ($($name,)+) {
            #[allow(non_snake_case, reason = "the type parameters name the fields")]
            fn write(&self, text: &mut String) {
                let ($($name,)+) = self;
                let mut parts = Vec::new();
                $({
                    let mut part = String::new();
                    $name.write(&mut part);
                    parts.push(part.replace('\\', "\\\\").replace(',', "\\,"));
                })+
                text.push_str(&parts.join(","));
            }
        }
    };
}
tuple_keys!(A);
tuple_keys!(A B);
tuple_keys!(A B C);
tuple_keys!(A B C D);

/// The key of a value.
pub fn key<K: StepKey + ?Sized>(value: &K) -> Key {
    let mut text = String::new();
    value.write(&mut text);
    Key(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_tuples_do_not_run_together() {
        assert_eq!(key(&7).0, "7");
        assert_eq!(key("a").0, "a");
        assert_eq!(key(&(1, "x")).0, "1,x");
        assert_ne!(key(&("a", "b,c")), key(&("a,b", "c")));
        assert_ne!(key(&("a\\", "b")), key(&("a", "\\b")));
    }
}
