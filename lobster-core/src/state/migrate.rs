//! From an older version of a state to the next.
//!
//! Invariant: a migration works on encoded content and a copy: what is recorded stays as it is until a step changes it.

use super::content::{Content, StateContent};
use crate::{codec, error::BoxError};
use lobster_store::contract::record::Codec;
use serde::{Serialize, de::DeserializeOwned};
use std::collections::BTreeMap;

/// How a state of version `from` becomes one of version `from + 1`. Written by `#[state(version = 2, migrate(1 = path))]`.
#[derive(Clone, Copy, Debug)]
pub struct Migration {
    /// The version it starts from.
    pub from: u32,
    /// Changes the members in place. An error leaves the run as it is, and says why.
    pub apply: fn(&mut Members) -> Result<(), BoxError>,
}

/// The members of a state of an older version, by name. What a migration leaves is what the next one, or the code, finds.
///
/// ```
/// use lobster_core::{BoxError, Field, Members, State};
///
/// #[derive(State, Default)]
/// #[state(version = 2, migrate(1 = in_cents))]
/// struct Basket {
///     cents: Field<u64>,
/// }
///
/// /// Version 1 had `euros: Field<u64>`.
/// fn in_cents(members: &mut Members) -> Result<(), BoxError> {
///     let euros: u64 = members.take_value("euros")?.unwrap_or_default();
///     members.set_value("cents", &(euros * 100))
/// }
/// ```
#[derive(Debug, Default)]
pub struct Members(BTreeMap<String, Content>);

impl Members {
    /// Names of the members that have content.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }
    /// Gives a member another name. One without content stays without.
    pub fn rename(&mut self, from: &str, to: impl Into<String>) {
        if let Some(content) = self.0.remove(from) {
            self.0.insert(to.into(), content);
        }
    }
    /// Drops a member; says whether it had content.
    pub fn remove(&mut self, name: &str) -> bool {
        self.0.remove(name).is_some()
    }
    /// Takes the value of a base or field out; `None`: it has no content.
    ///
    /// # Errors
    /// It is a log or a table, or does not decode as `T`.
    pub fn take_value<T: DeserializeOwned>(&mut self, name: &str) -> Result<Option<T>, BoxError> {
        match self.0.remove(name) {
            None => Ok(None),
            Some(Content::Value(bytes)) => Ok(Some(codec::decode_raw(&bytes)?)),
            Some(other) => Err(unfit(name, &other, "a value")),
        }
    }
    /// Takes the items of a log out; empty if it has none.
    ///
    /// # Errors
    /// It is no log, or an item does not decode as `T`.
    pub fn take_log<T: DeserializeOwned>(&mut self, name: &str) -> Result<Vec<T>, BoxError> {
        match self.0.remove(name) {
            None => Ok(Vec::new()),
            Some(Content::Items(items)) => Ok(items.iter().map(|item| codec::decode_raw(item)).collect::<Result<_, _>>()?),
            Some(other) => Err(unfit(name, &other, "a log")),
        }
    }
    /// Takes the entries of a table out; empty if it has none.
    ///
    /// # Errors
    /// It is no table, or an entry does not decode as `K` and `V`.
    pub fn take_table<K: DeserializeOwned + Ord, V: DeserializeOwned>(&mut self, name: &str) -> Result<BTreeMap<K, V>, BoxError> {
        match self.0.remove(name) {
            None => Ok(BTreeMap::new()),
            Some(Content::Entries(entries)) => {
                let decode =
                    |(key, value): (bytes::Bytes, bytes::Bytes)| Ok((codec::decode_raw(&key)?, codec::decode_raw(&value)?));
                Ok(entries.into_iter().map(decode).collect::<Result<_, codec::CodecError>>()?)
            }
            Some(other) => Err(unfit(name, &other, "a table")),
        }
    }
    /// Sets the value of a base or field.
    ///
    /// # Errors
    /// It has no encoding, or one over the limit.
    pub fn set_value<T: Serialize>(&mut self, name: impl Into<String>, value: &T) -> Result<(), BoxError> {
        self.0.insert(name.into(), Content::Value(codec::raw(value)?));
        Ok(())
    }
    /// Sets the items of a log.
    ///
    /// # Errors
    /// One has no encoding, or one over the limit.
    pub fn set_log<T: Serialize>(&mut self, name: impl Into<String>, items: &[T]) -> Result<(), BoxError> {
        let items = items.iter().map(codec::raw).collect::<Result<_, _>>()?;
        self.0.insert(name.into(), Content::Items(items));
        Ok(())
    }
    /// Sets the entries of a table.
    ///
    /// # Errors
    /// One has no encoding, or one over the limit.
    pub fn set_table<K: Serialize, V: Serialize>(
        &mut self,
        name: impl Into<String>,
        entries: impl IntoIterator<Item = (K, V)>,
    ) -> Result<(), BoxError> {
        let encode = |(key, value): (K, V)| Ok((codec::raw(&key)?, codec::raw(&value)?));
        let entries: Result<_, codec::CodecError> = entries.into_iter().map(encode).collect();
        self.0.insert(name.into(), Content::Entries(entries?));
        Ok(())
    }
}

fn unfit(name: &str, found: &Content, wanted: &str) -> BoxError {
    format!("member `{name}` is {}, not {wanted}", found.kind()).into()
}

/// Why recorded content is nothing for this code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Unfit {
    /// It is of a newer version: somebody else's to execute.
    Newer(u32),
    /// Migration or decoding failed.
    Misfit(String),
}

/// Content at the code's version, and whether it was migrated.
pub(crate) fn migrate(
    content: StateContent,
    version: u32,
    migrations: &[Migration],
) -> Result<(BTreeMap<String, Content>, bool), Unfit> {
    let StateContent { version: mut at, codec, members } = content;
    if at > version {
        return Err(Unfit::Newer(at));
    }
    if codec != Codec::Json as i32 {
        return Err(Unfit::Misfit(format!("codec {codec} is not known to this code")));
    }
    let (migrated, mut members) = (at < version, Members(members));
    while at < version {
        let migration = migrations.iter().find(|migration| migration.from == at);
        let migration = migration.ok_or_else(|| Unfit::Misfit(format!("version {at} has no migration to {}", at + 1)))?;
        (migration.apply)(&mut members)
            .map_err(|error| Unfit::Misfit(format!("the migration from version {at} failed: {error}")))?;
        at += 1;
    }
    Ok((members.0, migrated))
}

#[cfg(test)]
mod tests {
    //! What any released version wrote is read by this one: the files under `golden/` never change.

    use super::*;
    use crate::state::{Base, Field, Log, Member, State, Table, loan};
    use lobster_store::contract::record::StateChange;
    use prost::Message;

    /// The third version of a shop. The first had `euros` and `names`, the second `cents` and `names`.
    #[derive(Default)]
    struct Shop {
        town: Base<String>,
        cents: Field<u64>,
        sales: Table<u64, String>,
        notes: Log<String>,
    }

    fn in_cents(members: &mut Members) -> Result<(), BoxError> {
        let euros: u64 = members.take_value("euros")?.unwrap_or_default();
        members.set_value("cents", &(euros * 100))
    }

    fn by_number(members: &mut Members) -> Result<(), BoxError> {
        let names: Vec<String> = members.take_log("names")?;
        members.set_table("sales", (0_u64..).zip(names))
    }

    impl State for Shop {
        const NAME: &'static str = "Shop";
        const VERSION: u32 = 3;
        const MIGRATIONS: &'static [Migration] =
            &[Migration { from: 1, apply: in_cents }, Migration { from: 2, apply: by_number }];
        fn members(&mut self, visit: &mut dyn FnMut(&'static str, &mut dyn Member)) {
            visit("town", &mut self.town);
            visit("cents", &mut self.cents);
            visit("sales", &mut self.sales);
            visit("notes", &mut self.notes);
        }
    }

    fn golden(hex: &str) -> StateContent {
        let hex = hex.trim().as_bytes();
        let digit = |byte: u8| char::from(byte).to_digit(16).expect("a hexadecimal digit") as u8;
        let bytes: Vec<u8> = hex.chunks(2).map(|pair| digit(pair[0]) << 4 | digit(pair[1])).collect();
        let mut content = StateContent::default();
        content.apply(StateChange::decode(&bytes[..]).expect("a change of a state")).expect("it is the first");
        content
    }

    #[test]
    fn what_each_version_wrote_is_read() {
        for (version, hex) in [
            (1, include_str!("golden/shop.1.hex")),
            (2, include_str!("golden/shop.2.hex")),
            (3, include_str!("golden/shop.3.hex")),
        ] {
            let content = golden(hex);
            assert_eq!(content.version, version);
            let shop: Shop = loan::read(content).expect("it is migrated");
            let sales: Vec<_> = shop.sales.iter().map(|(number, name)| (*number, name.as_str())).collect();
            assert_eq!((shop.town.as_str(), *shop.cents), ("Brest", 1200), "version {version}");
            assert_eq!(sales, [(0, "roll"), (1, "soup")], "version {version}");
            assert_eq!(shop.notes.to_vec(), ["open"], "version {version}");
        }
    }

    #[test]
    fn what_this_version_writes_is_what_its_file_holds() {
        let mut shop = Shop::default();
        shop.town.set("Brest".into()).unwrap();
        *shop.cents = 1200;
        shop.sales = [(0, "roll".to_owned()), (1, "soup".to_owned())].into_iter().collect();
        shop.notes.push("open".into());
        let change = loan::first_change(shop);
        let hex: String = change.encode_to_vec().iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, include_str!("golden/shop.3.hex").trim());
    }

    #[test]
    fn a_migrated_state_that_cannot_be_recorded_as_a_whole_is_left_as_it_is() {
        let of = |mib: usize| {
            let note = || Content::Items(vec![format!("\"{}\"", "x".repeat(1 << 20)).into(); mib]);
            let mut content = golden(include_str!("golden/shop.1.hex"));
            content.members.insert("notes".into(), note());
            content
        };
        let read = |mib| loan::read::<Shop>(of(mib)).map(|shop| shop.notes.len());
        assert_eq!(read(15), Ok(15));
        assert!(matches!(read(16), Err(Unfit::Misfit(why)) if why.contains("the limit is 16777216")));
        // One that needs no migration is recorded as it changes, whatever its size.
        let current = StateContent { members: of(20).members, ..golden(include_str!("golden/shop.3.hex")) };
        let fits = StateContent { members: current.members.into_iter().filter(|(name, _)| name == "notes").collect(), ..current };
        assert_eq!(loan::read::<Shop>(fits).map(|shop| shop.notes.len()), Ok(20));
    }

    #[test]
    fn the_first_change_of_a_large_migrated_state_is_recorded_with_all_of_it() {
        let mut content = golden(include_str!("golden/shop.1.hex"));
        content.members.insert("notes".into(), Content::Items(vec![format!("\"{}\"", "x".repeat(1 << 20)).into(); 15]));
        let change =
            loan::change_of::<Shop>(content, |shop| shop.notes.extend(vec!["y".repeat(1 << 20); 7])).expect("it is recorded");
        let mut again = StateContent::default();
        again.apply(change).expect("it is whole");
        assert_eq!((again.version, loan::read::<Shop>(again).map(|shop| shop.notes.len())), (3, Ok(22)));
    }

    #[test]
    fn a_newer_version_and_a_missing_or_failing_migration_are_told() {
        let newer = StateContent { version: 4, ..golden(include_str!("golden/shop.3.hex")) };
        assert_eq!(loan::read::<Shop>(newer).map(|_| ()), Err(Unfit::Newer(4)));
        let why = |unfit: Result<Shop, Unfit>| match unfit.map(|_| ()) {
            Err(Unfit::Misfit(why)) => why,
            other => panic!("{other:?}"),
        };
        let older = StateContent { version: 0, ..golden(include_str!("golden/shop.1.hex")) };
        assert!(why(loan::read(older)).contains("version 0 has no migration to 1"));
        let mut broken = golden(include_str!("golden/shop.1.hex"));
        broken.members.insert("euros".into(), Content::Value("\"many\"".into()));
        assert!(why(loan::read(broken)).contains("the migration from version 1 failed"));
        let mut broken = golden(include_str!("golden/shop.3.hex"));
        broken.members.insert("cents".into(), Content::Items(Vec::new()));
        assert!(why(loan::read(broken)).contains("a log is recorded, the code has a field"));
        let other = StateContent { codec: 77, ..golden(include_str!("golden/shop.3.hex")) };
        assert!(why(loan::read(other)).contains("codec 77"));
    }
}
