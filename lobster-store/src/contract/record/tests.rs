//! Damaged bytes never become a value, a valid record in another place neither, and what is written today can be read for
//! ever: these bytes are golden. Their checksums were verified with another implementation of CRC32 (zlib's).

use super::*;
use uuid::Uuid;

const RUN: RunId = RunId(Uuid::from_u128(0x0190_b0c4_5a00_7000_8000_0000_0000_002a));
const OTHER: RunId = RunId(Uuid::from_u128(0x0190_b0c4_5a00_7000_8000_0000_0000_002b));
const EPOCH: Epoch = 3;
const FROM: Seq = 7;

fn payload(json: &'static str) -> Payload {
    Payload { codec: Codec::Json.into(), data: Bytes::from_static(json.as_bytes()) }
}

fn step(which: Which) -> Option<StepName> {
    Some(StepName { scope: "left".into(), name: "charge".into(), which: Some(which) })
}

fn failure() -> Failure {
    Failure {
        kind: FailureKind::Exhausted.into(),
        code: "E42".into(),
        message: "card declined".into(),
        data: Some(payload("{}")),
        step: "left/charge".into(),
        attempts: 3,
    }
}

fn result() -> StepResult {
    StepResult {
        step: step(Which::Occurrence(2)),
        came: Some(Came::Value(payload("19"))),
        attempts: 1,
        began_ms: 1_780_000_000_000,
        ended_ms: 1_780_000_000_025,
        kind: StepKind::Irreversible.into(),
        generation: 1,
    }
}

/// One fact of each kind, with every field filled.
fn facts() -> Vec<Fact> {
    let attempt = Attempt {
        step: step(Which::Key("order-42".into())),
        number: 2,
        failure: Some(failure()),
        due_ms: 1_780_000_001_000,
        in_doubt: true,
        probes: 0,
        generation: 1,
    };
    let intent = Intent {
        step: step(Which::Occurrence(0)),
        window_ns: 2_000_000_000,
        max_duration_ns: 10_000_000_000,
        key: "lob_0123456789abcdef".into(),
        generation: 1,
        epoch: EPOCH,
        boot_id: "9d3b".into(),
        sent_ns: 77_000_000_000,
        attempt: 1,
        incarnation: Bytes::from_static(&[0xAB; 16]),
        sent_ms: 1_780_000_000_000,
        lost: 0,
    };
    let window = Window { step: step(Which::Occurrence(0)), intent: 5, boot_id: "77aa".into(), end_ns: 89_000_000_000 };
    let named = StepName { scope: "left".into(), name: "charge".into(), which: Some(Which::Key("order-42".into())) };
    vec![
        Fact::Result(result()),
        Fact::Attempt(attempt),
        Fact::Intent(intent),
        Fact::Window(window),
        Fact::Detached(named.clone()),
        Fact::Attached(named),
    ]
}

/// One change of each kind, with every field filled.
fn changes() -> Vec<Changed> {
    let member = |member: &str, whole, what| MemberChange { member: member.into(), whole, what: Some(what) };
    let entry = |key, value| Entry { key: Bytes::from_static(key), value };
    let entries = vec![entry(b"\"a\"", Some(Bytes::from_static(b"7"))), entry(b"\"b\"", None)];
    let state = StateChange {
        state: "basket".into(),
        version: 2,
        codec: Codec::Json.into(),
        whole: true,
        members: vec![
            member("total", true, What::Value(Bytes::from_static(b"19"))),
            member("log", false, What::Items(Items { items: vec![Bytes::from_static(b"1"), Bytes::from_static(b"2")] })),
            member("stock", false, What::Entries(Entries { entries })),
        ],
    };
    vec![Changed::State(state), Changed::Round(round())]
}

fn round() -> Round {
    let attempt = Attempt { number: 1, failure: Some(failure()), due_ms: 1_780_000_001_000, ..Attempt::default() };
    Round { step: step(Which::Occurrence(1)), done: 12, attempt: Some(attempt) }
}

/// One part of each kind.
fn parts() -> Vec<Whole> {
    let entry = Entry { key: Bytes::from_static(b"\"a\""), value: Some(Bytes::from_static(b"7")) };
    vec![
        Whole::Value(Bytes::from_static(b"19")),
        Whole::Items(Items { items: vec![Bytes::from_static(b"1"), Bytes::from_static(b"2")] }),
        Whole::Entries(Entries { entries: vec![entry] }),
    ]
}

fn manifest() -> Manifest {
    let part = |id, bytes| PartRef { id, crc: 0x8000_0001, bytes, segment: 2 };
    let members = vec![MemberParts { member: "log".into(), parts: vec![part(4, 9), part(9, 1 << 20)] }];
    Manifest {
        seq: 12,
        mark: 0xdead_beef,
        rows: 5,
        digest: 0x0bad_cafe,
        states: vec![StateParts { state: "basket".into(), version: 2, codec: Codec::Json.into(), members }],
        rounds: vec![round()],
        next_part: 10,
    }
}

/// Encoded with seqs that count up from [`FROM`].
fn body(facts: Vec<Fact>) -> Bytes {
    (FROM..).zip(facts).flat_map(|(seq, fact)| encode_delta(seq, fact)).collect::<Vec<u8>>().into()
}

fn changes_body(changes: impl IntoIterator<Item = (Seq, Changed)>) -> Bytes {
    changes.into_iter().flat_map(|(seq, changed)| encode_change(seq, changed)).collect::<Vec<u8>>().into()
}

/// Opens half a row; the seqs of what it holds.
type Open = fn(RunId, Epoch, Seq, Seq, &Bytes, u32) -> Result<Vec<Seq>, Failed>;

/// Half a row: how it is checked, and its word.
struct Half {
    crc: fn(RunId, Epoch, Seq, Seq, &[u8]) -> u32,
    open: Open,
    word: &'static str,
    /// A valid one: its last seq and its body.
    to: Seq,
    body: Bytes,
}

impl Half {
    fn crc(&self) -> u32 {
        (self.crc)(RUN, EPOCH, FROM, self.to, &self.body)
    }

    /// These bytes at this place are refused, although their checksum fits.
    #[track_caller]
    fn assert_refused(&self, from: Seq, to: Seq, body: &Bytes) {
        assert_corrupt((self.open)(RUN, EPOCH, from, to, body, (self.crc)(RUN, EPOCH, from, to, body)), from, self.word);
    }
}

fn halves() -> [Half; 2] {
    fn seqs<T>(records: Vec<(Seq, T)>) -> Vec<Seq> {
        records.into_iter().map(|(seq, _)| seq).collect()
    }
    let deltas = Half {
        crc: delta_crc,
        open: |run, epoch, from, to, body, crc| open_deltas(run, epoch, from, to, body, crc).map(seqs),
        word: "delta",
        to: FROM + 5,
        body: body(facts()),
    };
    let changes = Half {
        crc: change_crc,
        open: |run, epoch, from, to, body, crc| open_changes(run, epoch, from, to, body, crc).map(seqs),
        word: "change",
        to: FROM + 1,
        body: changes_body((FROM..).zip(changes())),
    };
    [deltas, changes]
}

fn outcome() -> Sealed {
    Sealed::new(Kind::Outcome, RUN, &Outcome { ending: Some(Ending::Failure(failure())) })
}

/// Every copy of `bytes` in which one bit is the other way.
fn flipped(bytes: &Bytes) -> impl Iterator<Item = Bytes> {
    (0..bytes.len() * 8).map(|bit| {
        let mut copy = bytes.to_vec();
        copy[bit / 8] ^= 1 << (bit % 8);
        copy.into()
    })
}

fn longer(bytes: &Bytes) -> Bytes {
    [bytes.as_ref(), &[0]].concat().into()
}

#[track_caller]
fn assert_corrupt<T: std::fmt::Debug>(found: Result<T, Failed>, place: Seq, word: &str) {
    match found {
        Err(Failed::Corrupt { run: RUN | OTHER, seq, record, .. }) => assert_eq!((seq, record), (place, word)),
        other => panic!("damaged bytes came out as {other:?}"),
    }
}

#[test]
fn a_sealed_record_comes_back() {
    let found: Outcome = outcome().open(Kind::Outcome, RUN).expect("nobody touched it");
    assert_eq!(found.ending, Some(Ending::Failure(failure())));
}

#[test]
fn a_flipped_bit_in_a_sealed_record_is_found() {
    let good = outcome();
    for body in flipped(&good.body) {
        assert_corrupt(Sealed { body, crc: good.crc }.open::<Outcome>(Kind::Outcome, RUN), 0, "outcome");
    }
    for bit in 0..32 {
        let broken = Sealed { body: good.body.clone(), crc: good.crc ^ (1 << bit) };
        assert_corrupt(broken.open::<Outcome>(Kind::Outcome, RUN), 0, "outcome");
    }
}

#[test]
fn a_sealed_record_that_was_cut_or_grew_is_found() {
    let good = outcome();
    for len in 0..good.body.len() {
        let cut = Sealed { body: good.body.slice(..len), crc: good.crc };
        assert_corrupt(cut.open::<Outcome>(Kind::Outcome, RUN), 0, "outcome");
    }
    assert_corrupt(Sealed { body: longer(&good.body), crc: good.crc }.open::<Outcome>(Kind::Outcome, RUN), 0, "outcome");
}

#[test]
fn a_sealed_record_of_another_run_or_kind_is_refused() {
    const KINDS: [(Kind, &str); 4] =
        [(Kind::Input, "input"), (Kind::Outcome, "outcome"), (Kind::Verdict, "verdict"), (Kind::Manifest, "manifest")];
    for (kind, word) in KINDS {
        let good = Sealed::new(kind, RUN, &Input { payload: Some(payload("1")) });
        assert_corrupt(good.open::<Input>(kind, OTHER), 0, word);
        for (other, word) in KINDS.into_iter().filter(|(other, _)| *other != kind) {
            assert_corrupt(good.open::<Input>(other, RUN), 0, word);
        }
    }
}

#[test]
fn a_manifest_comes_back() {
    let found: Manifest = Sealed::new(Kind::Manifest, RUN, &manifest()).open(Kind::Manifest, RUN).expect("nobody touched it");
    assert_eq!(found, manifest());
}

#[test]
fn a_row_or_a_part_is_no_sealed_record_and_no_other_row_or_part() {
    let [deltas, changes] = halves();
    let part = Part { whole: Some(parts().remove(1)) }.seal(RUN, 0);
    let of = |half: &Half| Sealed { body: half.body.clone(), crc: (half.crc)(RUN, 0, 0, 0, &half.body) };
    for (sealed, is_part) in [(of(&deltas), false), (of(&changes), false), (part, true)] {
        assert_corrupt(sealed.open::<Deltas>(Kind::Input, RUN), 0, "input");
        assert_corrupt(sealed.open::<Manifest>(Kind::Manifest, RUN), 0, "manifest");
        assert_eq!(Part::open(RUN, 0, &sealed).is_ok(), is_part);
    }
    assert_corrupt((changes.open)(RUN, EPOCH, FROM, deltas.to, &deltas.body, deltas.crc()), FROM, "change");
    assert_corrupt((deltas.open)(RUN, EPOCH, FROM, changes.to, &changes.body, changes.crc()), FROM, "delta");
}

#[test]
fn a_body_that_is_no_message_is_refused_even_if_its_checksum_fits() {
    let body = Bytes::from_static(&[0xff; 40]);
    let crc = seal("outcome", RUN, [0, 0, 0], &body);
    assert_corrupt(Sealed { body: body.clone(), crc }.open::<Outcome>(Kind::Outcome, RUN), 0, "outcome");
    halves().iter().for_each(|half| half.assert_refused(FROM, FROM, &body));
    let crc = seal("part", RUN, [4, 0, 0], &body);
    assert_corrupt(Part::open(RUN, 4, &Sealed { body, crc }), 0, "part");
}

#[test]
fn a_length_bomb_is_refused() {
    // A payload that claims to be four gigabytes long.
    let bomb = Bytes::from_static(&[0x0a, 0xff, 0xff, 0xff, 0xff, 0x0f, 0x00]);
    let crc = seal("input", RUN, [0, 0, 0], &bomb);
    assert_corrupt(Sealed { body: bomb.clone(), crc }.open::<Input>(Kind::Input, RUN), 0, "input");
    halves().iter().for_each(|half| half.assert_refused(FROM, FROM, &bomb));
    let crc = seal("part", RUN, [4, 0, 0], &bomb);
    assert_corrupt(Part::open(RUN, 4, &Sealed { body: bomb, crc }), 0, "part");
}

#[test]
fn a_record_over_its_limit_is_refused() {
    let at_limit = |len: usize| {
        let body = Bytes::from(vec![0x22; len]);
        Sealed { crc: seal("input", RUN, [0, 0, 0], &body), body }
    };
    let why = |len| match at_limit(len).open::<Input>(Kind::Input, RUN) {
        Err(Failed::Corrupt { why, .. }) => why,
        other => panic!("no input at all came out as {other:?}"),
    };
    assert!(why(limits::RECORD_BYTES + 1).contains("more than any record"));
    assert!(!why(limits::RECORD_BYTES).contains("more than any record"), "at the limit it is the content that is wrong");
}

#[test]
fn a_row_or_a_part_over_its_limit_is_refused() {
    let why = |found: Result<(), Failed>| match found {
        Err(Failed::Corrupt { why, .. }) => why,
        other => panic!("nothing at all came out as {other:?}"),
    };
    for (len, over) in [(2 * limits::RECORD_BYTES, false), (2 * limits::RECORD_BYTES + 1, true)] {
        let body = Bytes::from(vec![0x22; len]);
        for half in halves() {
            let found = (half.open)(RUN, EPOCH, FROM, FROM, &body, (half.crc)(RUN, EPOCH, FROM, FROM, &body));
            assert_eq!(why(found.map(drop)).contains("more than any row"), over);
        }
        let sealed = Sealed { crc: seal("part", RUN, [4, 0, 0], &body), body };
        assert_eq!(why(Part::open(RUN, 4, &sealed).map(drop)).contains("more than any part"), over);
    }
}

#[test]
fn a_row_comes_back() {
    let [deltas, half] = halves();
    let found = open_deltas(RUN, EPOCH, FROM, deltas.to, &deltas.body, deltas.crc()).expect("nobody touched it");
    assert_eq!(found, (FROM..).zip(facts()).collect::<Vec<_>>());
    let found = open_changes(RUN, EPOCH, FROM, half.to, &half.body, half.crc()).expect("nobody touched it");
    assert_eq!(found, (FROM..).zip(changes()).collect::<Vec<_>>());
}

#[test]
fn a_flipped_bit_in_a_row_is_found() {
    for half in halves() {
        for body in flipped(&half.body) {
            assert_corrupt((half.open)(RUN, EPOCH, FROM, half.to, &body, half.crc()), FROM, half.word);
        }
        for bit in 0..32 {
            assert_corrupt((half.open)(RUN, EPOCH, FROM, half.to, &half.body, half.crc() ^ (1 << bit)), FROM, half.word);
        }
    }
}

#[test]
fn a_row_that_was_cut_or_grew_is_found() {
    for half in halves() {
        for len in 0..half.body.len() {
            assert_corrupt((half.open)(RUN, EPOCH, FROM, half.to, &half.body.slice(..len), half.crc()), FROM, half.word);
        }
        assert_corrupt((half.open)(RUN, EPOCH, FROM, half.to, &longer(&half.body), half.crc()), FROM, half.word);
    }
}

#[test]
fn a_row_moved_to_another_run_seq_or_epoch_is_refused() {
    for Half { open, word, to, body, crc, .. } in halves() {
        let crc = crc(RUN, EPOCH, FROM, to, &body);
        assert_corrupt(open(OTHER, EPOCH, FROM, to, &body, crc), FROM, word);
        assert_corrupt(open(RUN, EPOCH + 1, FROM, to, &body, crc), FROM, word);
        assert_corrupt(open(RUN, EPOCH - 1, FROM, to, &body, crc), FROM, word);
        assert_corrupt(open(RUN, EPOCH, FROM + 1, to + 1, &body, crc), FROM + 1, word);
        assert_corrupt(open(RUN, EPOCH, FROM, to + 1, &body, crc), FROM, word);
        assert_corrupt(open(RUN, FROM, EPOCH, to, &body, crc), EPOCH, word);
    }
}

#[test]
fn a_row_lies_on_seqs_that_exist() {
    for half in halves() {
        for (from, to) in [(0, half.to), (FROM, FROM - 1), (u64::MAX, 0), (0, 0)] {
            half.assert_refused(from, to, &half.body);
        }
    }
}

#[test]
fn a_row_holds_only_what_is_of_its_seqs() {
    for half in halves() {
        for (from, to) in [(FROM + 1, half.to), (FROM, half.to - 1), (half.to + 1, half.to + 9), (1, FROM - 1)] {
            half.assert_refused(from, to, &half.body);
        }
        let wider = (half.open)(RUN, EPOCH, 1, u64::MAX, &half.body, (half.crc)(RUN, EPOCH, 1, u64::MAX, &half.body));
        let seqs: Vec<_> = (FROM..=half.to).collect();
        assert_eq!(wider.expect("a half may leave seqs to the other one"), seqs);
    }
}

#[test]
fn records_of_a_row_are_in_the_order_of_their_seqs() {
    let [deltas, half] = halves();
    let of_deltas = |seqs: &[Seq]| -> Bytes {
        seqs.iter().flat_map(|seq| encode_delta(*seq, Fact::Result(result()))).collect::<Vec<u8>>().into()
    };
    for seqs in [[8, 7], [7, 7], [7, 0], [0, 7]] {
        deltas.assert_refused(FROM, FROM + 5, &of_deltas(&seqs));
    }
    let of_changes = |seqs: &[Seq]| changes_body(seqs.iter().copied().zip(changes()));
    for seqs in [[8, 7], [7, 0], [0, 7]] {
        half.assert_refused(FROM, FROM + 5, &of_changes(&seqs));
    }
    let shared = of_changes(&[8, 8]);
    let found = open_changes(RUN, EPOCH, FROM, FROM + 5, &shared, change_crc(RUN, EPOCH, FROM, FROM + 5, &shared));
    assert_eq!(found.expect("one step may change two states"), [8, 8].into_iter().zip(changes()).collect::<Vec<_>>());
}

#[test]
fn a_record_of_an_unknown_kind_is_refused() {
    let [deltas, half] = halves();
    // An element with a field 14 that this code does not know, behind one that it does: both of seq 8 or before.
    let unknown = [0x0a, 0x04, 0x72, 0x00, 0x78, 0x08];
    let known = body(vec![Fact::Result(result())]);
    deltas.assert_refused(FROM, FROM + 2, &[known.as_ref(), &unknown].concat().into());
    let known = changes_body([(FROM, changes().remove(0))]);
    half.assert_refused(FROM, FROM + 2, &[known.as_ref(), &unknown].concat().into());
    let body = Bytes::from_static(&[0x72, 0x00]);
    let crc = seal("part", RUN, [4, 0, 0], &body);
    assert_corrupt(Part::open(RUN, 4, &Sealed { body, crc }), 0, "part");
}

#[test]
fn a_change_that_leaves_out_what_changed_is_refused() {
    let [_, half] = halves();
    let empty = MemberChange { member: "log".into(), whole: false, what: None };
    let known = MemberChange { what: Some(What::Value(Bytes::new())), ..empty.clone() };
    let state = StateChange { members: vec![known, empty], ..StateChange::default() };
    half.assert_refused(FROM, FROM, &changes_body([(FROM, Changed::State(state))]));
    half.assert_refused(FROM, FROM, &changes_body([(FROM, Changed::Round(Round { step: None, ..round() }))]));
    // The end of a state's members is no missing one.
    let none = changes_body([(FROM, Changed::State(StateChange::default()))]);
    let found = open_changes(RUN, EPOCH, FROM, FROM, &none, change_crc(RUN, EPOCH, FROM, FROM, &none));
    assert_eq!(found.map(|changes| changes.len()).ok(), Some(1));
}

#[test]
fn rows_are_encoded_records_put_behind_one_another() {
    let deltas = (FROM..).zip(facts()).map(|(seq, fact)| Delta { fact: Some(fact), seq }).collect();
    assert_eq!(body(facts()), Deltas { deltas }.encode_to_vec());
    let list = (FROM..).zip(changes()).map(|(seq, changed)| Change { changed: Some(changed), seq }).collect();
    assert_eq!(changes_body((FROM..).zip(changes())), Changes { changes: list }.encode_to_vec());
}

#[test]
fn a_mark_is_of_everything_in_its_row() {
    assert_eq!(row_mark(Some(7), None), 7);
    assert_eq!(row_mark(None, Some(7)), 7);
    let both = row_mark(Some(7), Some(8));
    assert_eq!(both, digest(7, 8));
    for other in [row_mark(Some(8), Some(7)), row_mark(Some(7), Some(9)), row_mark(Some(9), Some(8)), 7, 8] {
        assert_ne!(both, other);
    }
}

#[test]
fn a_part_comes_back() {
    for (id, whole) in (4..).zip(parts()) {
        let sealed = Part { whole: Some(whole.clone()) }.seal(RUN, id);
        assert_eq!(Part::open(RUN, id, &sealed).expect("nobody touched it"), whole);
    }
}

#[test]
fn a_part_that_was_damaged_cut_or_moved_is_refused() {
    for whole in parts() {
        let good = Part { whole: Some(whole) }.seal(RUN, 4);
        let with = |body| Sealed { body, crc: good.crc };
        for body in flipped(&good.body) {
            assert_corrupt(Part::open(RUN, 4, &with(body)), 0, "part");
        }
        for bit in 0..32 {
            assert_corrupt(Part::open(RUN, 4, &Sealed { crc: good.crc ^ (1 << bit), ..good.clone() }), 0, "part");
        }
        for len in 0..good.body.len() {
            assert_corrupt(Part::open(RUN, 4, &with(good.body.slice(..len))), 0, "part");
        }
        assert_corrupt(Part::open(RUN, 4, &with(longer(&good.body))), 0, "part");
        assert_corrupt(Part::open(RUN, 5, &good), 0, "part");
        assert_corrupt(Part::open(OTHER, 4, &good), 0, "part");
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Fails with the whole line, so that a deliberate change can be read and judged.
#[track_caller]
fn assert_golden(name: &str, crc: u32, body: &[u8], golden: &str) {
    assert_eq!(format!("{crc:08x} {}", hex(body)), golden, "the stored form of {name} has changed");
}

#[test]
fn the_stored_form_of_each_sealed_record_is_golden() {
    let input = Sealed::new(Kind::Input, RUN, &Input { payload: Some(payload("{\"order\":42}")) });
    assert_golden("an input", input.crc, &input.body, GOLDEN_INPUT);
    let outcome = outcome();
    assert_golden("an outcome", outcome.crc, &outcome.body, GOLDEN_OUTCOME);
    let fate = Fate { happened: Some(Happened::Result(result())), forced: true };
    let verdict = Sealed::new(Kind::Verdict, RUN, &fate);
    assert_golden("a verdict", verdict.crc, &verdict.body, GOLDEN_VERDICT);
    let manifest = Sealed::new(Kind::Manifest, RUN, &manifest());
    assert_golden("a manifest", manifest.crc, &manifest.body, GOLDEN_MANIFEST);
}

#[test]
fn the_stored_form_of_each_delta_is_golden() {
    for (fact, golden) in facts().into_iter().zip(GOLDEN_DELTAS) {
        let body = body(vec![fact.clone()]);
        let crc = delta_crc(RUN, EPOCH, FROM, FROM, &body);
        assert_golden("a delta", crc, &body, golden);
        assert_eq!(open_deltas(RUN, EPOCH, FROM, FROM, &body, crc).expect("nobody touched it"), [(FROM, fact)]);
    }
}

#[test]
fn the_stored_form_of_each_change_is_golden() {
    for (changed, golden) in changes().into_iter().zip(GOLDEN_CHANGES) {
        let body = changes_body([(FROM, changed.clone())]);
        let crc = change_crc(RUN, EPOCH, FROM, FROM, &body);
        assert_golden("a change", crc, &body, golden);
        assert_eq!(open_changes(RUN, EPOCH, FROM, FROM, &body, crc).expect("nobody touched it"), [(FROM, changed)]);
    }
}

#[test]
fn the_stored_form_of_each_part_is_golden() {
    for (whole, golden) in parts().into_iter().zip(GOLDEN_PARTS) {
        let Sealed { body, crc } = Part { whole: Some(whole) }.seal(RUN, 4);
        assert_golden("a part", crc, &body, golden);
    }
}

#[test]
fn a_digest_of_checksums_is_golden() {
    assert_eq!(format!("{:08x}", digest(0x7a62_9e3d, 0x0e89_d422)), GOLDEN_DIGEST);
}

const GOLDEN_INPUT: &str = "0df3dfad 0a100801120c7b226f72646572223a34327d";
const GOLDEN_OUTCOME: &str = "04389344 122d080212034534321a0d63617264206465636c696e65642206080112027b7d2a0b6c6566742f6368617267653\
    003";
const GOLDEN_VERDICT: &str = "339d014a 0a2e0a100a046c65667412066368617267651802120608011202313920012880909282e7333099909282e733380\
    240011801";
const GOLDEN_MANIFEST: &str = "9796eff8 080c15efbeadde180525fecaad0b2a2f0a066261736b6574100218012221\
    0a036c6f67120b0804150100008018092002120d08091501000080188080402002324e0a100a046c65667412066368617267\
    651801100c1a3810011a2d080212034534321a0d63617264206465636c696e65642206080112027b7d2a0b6c6566742f6368\
    61726765300320e8979282e733380a";
const GOLDEN_DELTAS: [&str; 6] = [
    "0a08195a 0a320a2e0a100a046c65667412066368617267651802120608011202313920012880909282e7333099909282e73\
     3380240017807",
    "4594fbb3 0a5a12560a180a046c656674120663686172676522086f726465722d343210021a2d080212034534321a0d63617\
     264206465636c696e65642206080112027b7d2a0b6c6566742f636861726765300320e8979282e733280130017807",
    "a9bc7714 0a641a600a100a046c656674120663686172676518001080a8d6b9071880c8afa02522146c6f625f30313233343\
     536373839616263646566280130033a0439643362408084bbec9e0248015210abababababababababababababababab58809\
     09282e7337807",
    "00bee29c 0a2522210a100a046c6566741206636861726765180010051a04373761612080f4c0c6cb027807",
    "bc4935bc 0a1c2a180a046c656674120663686172676522086f726465722d34327807",
    "aab90c84 0a1c32180a046c656674120663686172676522086f726465722d34327807",
];
const GOLDEN_CHANGES: [&str; 2] = [
    "292bc183 0a4c0a480a066261736b65741002180120012a0d0a05746f74616c10011a0231392a0d0a036c6f6722060a01310\
     a01322a1a0a0573746f636b2a110a080a032261221201370a050a032262227807",
    "710c9d51 0a52124e0a100a046c65667412066368617267651801100c1a3810011a2d080212034534321a0d6361726420646\
     5636c696e65642206080112027b7d2a0b6c6566742f636861726765300320e8979282e7337807",
];
const GOLDEN_PARTS: [&str; 3] = ["034229ed 0a023139", "59ba37dc 12060a01310a0132", "c7419bb6 1a0a0a080a03226122120137"];
const GOLDEN_DIGEST: &str = "bf0136c7";
