//! What the code writes is what `proto/records.proto` publishes: each field under its name, number and type, none besides.

use bytes::Bytes;
use lobster_store::contract::record::{
    Attempt, Came, Change, Changed, Changes, Codec, Delta, Deltas, Ending, Entries, Entry, Fact, Failure, FailureKind, Fate,
    Happened, Input, Intent, Items, Manifest, MemberChange, MemberParts, Outcome, Part, PartRef, Payload, Round, StateChange,
    StateParts, StepKind, StepName, StepResult, What, Which, Whole, Window,
};
use prost::Message;
use protox::prost_reflect::{DescriptorPool, DynamicMessage, ReflectMessage, Value};
use std::{collections::BTreeSet, path::Path};

/// Is this what came out of the dynamic decoder for a field set to `self`?
trait Arrives {
    fn arrives(&self, value: &Value) -> bool;
}

macro_rules! scalars {
    ($($rust:ty => $kind:ident),*) => {$(
        impl Arrives for $rust {
            fn arrives(&self, value: &Value) -> bool { matches!(value, Value::$kind(found) if found == self) }
        }
    )*};
}
// No record has a plain `int32`: an `i32` is an enumeration.
scalars!(u32 => U32, u64 => U64, i64 => I64, bool => Bool, String => String, Bytes => Bytes, i32 => EnumNumber);

/// A field of bytes that tells absence from emptiness.
impl Arrives for Option<Bytes> {
    fn arrives(&self, value: &Value) -> bool {
        self.as_ref().is_some_and(|bytes| bytes.arrives(value))
    }
}

impl Arrives for Vec<Bytes> {
    fn arrives(&self, value: &Value) -> bool {
        let items = value.as_list().unwrap_or_default();
        items.len() == self.len() && self.iter().zip(items).all(|(bytes, item)| bytes.arrives(item))
    }
}

/// A message that is the type of a field. Bytes are a message of their own to the encoder, and no record.
trait Record: Message + Clone {}

macro_rules! records {
    ($($message:ident),*) => { $(impl Record for $message {})* };
}
records!(
    Payload,
    StepName,
    Failure,
    StepResult,
    Attempt,
    Intent,
    Window,
    Delta,
    Change,
    StateChange,
    MemberChange,
    Items,
    Entries,
    Entry,
    Round,
    StateParts,
    MemberParts,
    PartRef
);

impl<M: Record> Arrives for Option<M> {
    fn arrives(&self, value: &Value) -> bool {
        let name = |path: &str| path.rsplit("::").next().map(str::to_owned);
        match (self, value) {
            (Some(message), Value::Message(found)) => {
                name(std::any::type_name::<M>()).as_deref() == Some(found.descriptor().name())
                    && message.encode_to_vec() == found.encode_to_vec()
            }
            _ => false,
        }
    }
}

impl<M: Record> Arrives for Vec<M> {
    fn arrives(&self, value: &Value) -> bool {
        let items = value.as_list().unwrap_or_default();
        items.len() == self.len() && self.iter().zip(items).all(|(message, item)| Some(message.clone()).arrives(item))
    }
}

/// The published file, and the fields of it that were seen.
struct Published {
    pool: DescriptorPool,
    seen: BTreeSet<String>,
}

impl Published {
    fn read() -> Self {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("proto");
        let files = protox::compile(["records.proto"], [folder]).expect("the published file compiles");
        let pool = DescriptorPool::from_file_descriptor_set(files).expect("what compiled is consistent");
        Self { pool, seen: BTreeSet::new() }
    }

    /// Decodes `message`, in which one field was set, by the published file.
    fn assert_arrives(&mut self, name: &str, field: &str, oneof: Option<&str>, message: &impl Message, set: &dyn Arrives) {
        let full = format!("lobster.records.v1.{name}");
        let descriptor = self.pool.get_message_by_name(&full).unwrap_or_else(|| panic!("{full} is not published"));
        let bytes = message.encode_to_vec();
        let found = DynamicMessage::decode(descriptor, bytes.as_slice()).expect("a published message decodes");
        assert_eq!(found.unknown_fields().count(), 0, "{name}.{field} has another number there, or another type");
        let fields: Vec<_> = found.fields().collect();
        assert_eq!(fields.len(), 1, "{name}.{field}: {fields:?}");
        let (arrived, value) = &fields[0];
        // An optional field is alone in a oneof that is not written in the file.
        let of = arrived.containing_oneof().filter(|oneof| !oneof.is_synthetic());
        assert_eq!((arrived.name(), of.as_ref().map(|oneof| oneof.name())), (field, oneof), "in {name}");
        assert!(set.arrives(value), "{name}.{field} arrives as {value:?}");
        assert_eq!(found.encode_to_vec(), bytes, "{name}.{field} does not come back");
        self.seen.insert(arrived.full_name().to_owned());
    }
}

/// Checks every field of a message. The pattern makes a field that is missing here an error of the compiler.
macro_rules! check {
    ($published:ident, $message:ident { $($field:ident: $value:expr),* $(; $oneof:ident: $kind:ident { $($variant:ident as $name:ident: $held:expr),* })? }) => {{
        let $message { $($field: _,)* $($oneof: _)? } = $message::default();
        $({
            #[allow(clippy::needless_update, reason = "some messages have one field only")]
            let message = $message { $field: $value, ..$message::default() };
            $published.assert_arrives(stringify!($message), stringify!($field), None, &message, &message.$field);
        })*
        $({
            let known = |kind: &$kind| match kind { $($kind::$variant(_) => ()),* };
            $({
                let held = $held;
                let one = $kind::$variant(held.clone());
                known(&one);
                #[allow(clippy::needless_update, reason = "some messages have one field only")]
                let message = $message { $oneof: Some(one), ..$message::default() };
                $published.assert_arrives(stringify!($message), stringify!($name), Some(stringify!($oneof)), &message, &one_of(held));
            })*
        })?
    }};
}

/// A value as the field of a oneof holds it.
struct OneOf<T>(T);

fn one_of<T>(held: T) -> OneOf<T> {
    OneOf(held)
}

macro_rules! held {
    ($($message:ident),*; $($scalar:ty),*) => {
        $(impl Arrives for OneOf<$message> {
            fn arrives(&self, value: &Value) -> bool { Some(self.0.clone()).arrives(value) }
        })*
        $(impl Arrives for OneOf<$scalar> {
            fn arrives(&self, value: &Value) -> bool { self.0.arrives(value) }
        })*
    };
}
held!(
    Payload, StepName, Failure, StepResult, Attempt, Intent, Window, StateChange, Round, Items, Entries;
    String, u32, bool, Bytes
);

fn payload() -> Payload {
    Payload { codec: Codec::Json.into(), data: Bytes::from_static(b"{}") }
}

fn step() -> StepName {
    StepName { scope: "left".into(), name: "charge".into(), which: Some(Which::Occurrence(3)) }
}

fn failure() -> Failure {
    Failure { kind: FailureKind::Panic.into(), data: Some(payload()), attempts: 2, ..Failure::default() }
}

fn result() -> StepResult {
    StepResult { step: Some(step()), came: Some(Came::Failure(failure())), began_ms: -1, ..StepResult::default() }
}

fn items() -> Items {
    Items { items: vec![Bytes::from_static(b"1"), Bytes::new()] }
}

fn entries() -> Entries {
    let entry = |value| Entry { key: Bytes::from_static(b"k"), value };
    Entries { entries: vec![entry(None), entry(Some(Bytes::new()))] }
}

fn state() -> StateChange {
    let members = vec![MemberChange { member: "m".into(), whole: false, what: Some(What::Items(items())) }];
    StateChange { state: "s".into(), members, ..StateChange::default() }
}

fn round() -> Round {
    Round { step: Some(step()), done: 7, attempt: None }
}

fn members() -> MemberParts {
    MemberParts { member: "m".into(), parts: vec![PartRef { id: 1, crc: u32::MAX, bytes: 2, segment: 3 }, PartRef::default()] }
}

#[test]
fn every_message_is_written_as_published() {
    let mut published = Published::read();
    check!(published, Payload { codec: 1, data: Bytes::from_static(b"\0\xff") });
    check!(published, StepName { scope: "s".into(), name: "n".into(); which: Which { Occurrence as occurrence: 0u32, Key as key: String::new() } });
    check!(
        published,
        Failure { kind: 6, code: "c".into(), message: "m".into(), data: Some(payload()), step: "s".into(), attempts: u32::MAX }
    );
    check!(published, StepResult {
        step: Some(step()), attempts: 1, began_ms: i64::MIN, ended_ms: -2, kind: 2, generation: 3;
        came: Came { Value as value: payload(), Failure as failure: failure() }
    });
    check!(
        published,
        Attempt { step: Some(step()), number: 1, failure: Some(failure()), due_ms: -1, in_doubt: true, generation: 2, probes: 5 }
    );
    check!(
        published,
        Intent {
            step: Some(step()),
            window_ns: u64::MAX,
            max_duration_ns: 2,
            key: "k".into(),
            generation: 3,
            epoch: u64::MAX,
            boot_id: "b".into(),
            sent_ns: u64::MAX,
            attempt: 4,
            incarnation: Bytes::from_static(&[9; 16]),
            sent_ms: -5,
            lost: 2
        }
    );
    check!(published, Window { step: Some(step()), intent: u64::MAX, boot_id: "b".into(), end_ns: u64::MAX });
    check!(published, Delta { seq: u64::MAX; fact: Fact {
        Result as result: result(), Attempt as attempt: Attempt::default(), Intent as intent: Intent::default(),
        Window as window: Window::default(), Detached as detached: step(), Attached as attached: step()
    } });
    check!(published, Deltas { deltas: vec![Delta::default(), Delta { fact: Some(Fact::Result(result())), seq: 3 }] });
    check!(published, Change { seq: u64::MAX; changed: Changed { State as state: state(), Round as round: round() } });
    check!(published, Changes { changes: vec![Change::default(), Change { changed: Some(Changed::Round(round())), seq: 3 }] });
    check!(published, StateChange { state: "s".into(), version: u32::MAX, codec: 1, whole: true, members: state().members });
    check!(published, MemberChange {
        member: "m".into(), whole: true;
        what: What { Value as value: Bytes::new(), Items as items: items(), Entries as entries: entries() }
    });
    check!(published, Items { items: items().items });
    check!(published, Entries { entries: entries().entries });
    for value in [Bytes::new(), Bytes::from_static(b"\0\xff")] {
        check!(published, Entry { key: Bytes::from_static(b"k"), value: Some(value) });
    }
    check!(published, Round { step: Some(step()), done: u64::MAX, attempt: Some(Attempt { number: 2, ..Attempt::default() }) });
    check!(
        published,
        Manifest {
            seq: u64::MAX,
            mark: u32::MAX,
            rows: u64::MAX,
            digest: 1 << 31,
            states: vec![StateParts { members: vec![members()], ..StateParts::default() }],
            rounds: vec![round(), Round::default()],
            next_part: u64::MAX
        }
    );
    check!(published, StateParts { state: "s".into(), version: u32::MAX, codec: 1, members: vec![members()] });
    check!(published, MemberParts { member: "m".into(), parts: members().parts });
    check!(published, PartRef { id: u64::MAX, crc: u32::MAX, bytes: u64::MAX, segment: u64::MAX });
    check!(published, Part {; whole: Whole { Value as value: Bytes::new(), Items as items: items(), Entries as entries: entries() } });
    check!(published, Input { payload: Some(payload()) });
    check!(published, Outcome {; ending: Ending {
        Value as value: payload(), Failure as failure: failure(), Cancelled as cancelled: String::new(),
        Quarantined as quarantined: "q".to_owned()
    } });
    check!(published, Fate { forced: true; happened: Happened { Result as result: result(), Closed as closed: false } });

    let all = published.pool.all_messages().flat_map(|message| message.fields().collect::<Vec<_>>());
    let all: BTreeSet<_> = all.map(|field| field.full_name().to_owned()).collect();
    assert_eq!(published.seen, all, "the code and the published file have the same fields");
}

#[test]
fn every_kind_has_its_published_number() {
    let published = Published::read().pool;
    let kinds = |name: &str| -> Vec<(String, i32)> {
        let kinds = published.get_enum_by_name(&format!("lobster.records.v1.{name}")).expect("the kinds are published");
        kinds.values().map(|value| (value.name().to_owned(), value.number())).collect()
    };
    macro_rules! check {
        ($name:ident, $prefix:literal: $($kind:ident),*) => {{
            let known = |kind: $name| match kind { $($name::$kind => ()),* };
            $(known($name::$kind);)*
            let ours = vec![$((format!("{}_{}", $prefix, stringify!($kind).to_uppercase()), $name::$kind as i32)),*];
            assert_eq!(kinds(stringify!($name)), ours);
        }};
    }
    check!(Codec, "CODEC": Unspecified, Json);
    check!(FailureKind, "FAILURE_KIND": Unspecified, Fatal, Exhausted, Panic, Timeout, Encoding, Refused);
    check!(StepKind, "STEP_KIND": Ordinary, Durable, Irreversible, Transactional);
    assert_eq!(published.all_enums().count(), 3, "no other kinds are published");
}
