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

fn body(facts: Vec<Fact>) -> Bytes {
    facts.into_iter().flat_map(encode_delta).collect::<Vec<u8>>().into()
}

/// A valid row of [`facts`]: last seq, body, checksum.
fn row() -> (Seq, Bytes, Mark) {
    let (to, body) = (FROM + 5, body(facts()));
    let crc = row_crc(RUN, EPOCH, FROM, to, &body);
    (to, body, crc)
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
    for (kind, word) in [(Kind::Input, "input"), (Kind::Outcome, "outcome"), (Kind::Verdict, "verdict")] {
        let good = Sealed::new(kind, RUN, &Input { payload: Some(payload("1")) });
        assert_corrupt(good.open::<Input>(kind, OTHER), 0, word);
        for other in [Kind::Input, Kind::Outcome, Kind::Verdict].into_iter().filter(|other| *other != kind) {
            assert_corrupt(good.open::<Input>(other, RUN), 0, other.word());
        }
    }
}

#[test]
fn a_row_is_no_sealed_record() {
    let body = body(vec![Fact::Result(result())]);
    let crc = row_crc(RUN, 0, 0, 0, &body);
    assert_corrupt(Sealed { body, crc }.open::<Deltas>(Kind::Input, RUN), 0, "input");
}

#[test]
fn a_body_that_is_no_message_is_refused_even_if_its_checksum_fits() {
    let body = Bytes::from_static(&[0xff; 40]);
    let crc = seal("outcome", RUN, [0, 0, 0], &body);
    assert_corrupt(Sealed { body: body.clone(), crc }.open::<Outcome>(Kind::Outcome, RUN), 0, "outcome");
    assert_corrupt(open_row(RUN, EPOCH, FROM, FROM, &body, row_crc(RUN, EPOCH, FROM, FROM, &body)), FROM, "delta");
}

#[test]
fn a_length_bomb_is_refused() {
    // A payload that claims to be four gigabytes long.
    let bomb = Bytes::from_static(&[0x0a, 0xff, 0xff, 0xff, 0xff, 0x0f, 0x00]);
    let crc = seal("input", RUN, [0, 0, 0], &bomb);
    assert_corrupt(Sealed { body: bomb.clone(), crc }.open::<Input>(Kind::Input, RUN), 0, "input");
    assert_corrupt(open_row(RUN, EPOCH, FROM, FROM, &bomb, row_crc(RUN, EPOCH, FROM, FROM, &bomb)), FROM, "delta");
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
fn a_row_comes_back() {
    let (to, body, crc) = row();
    assert_eq!(open_row(RUN, EPOCH, FROM, to, &body, crc).expect("nobody touched it"), facts());
}

#[test]
fn a_flipped_bit_in_a_row_is_found() {
    let (to, good, crc) = row();
    for body in flipped(&good) {
        assert_corrupt(open_row(RUN, EPOCH, FROM, to, &body, crc), FROM, "delta");
    }
    for bit in 0..32 {
        assert_corrupt(open_row(RUN, EPOCH, FROM, to, &good, crc ^ (1 << bit)), FROM, "delta");
    }
}

#[test]
fn a_row_that_was_cut_or_grew_is_found() {
    let (to, good, crc) = row();
    for len in 0..good.len() {
        assert_corrupt(open_row(RUN, EPOCH, FROM, to, &good.slice(..len), crc), FROM, "delta");
    }
    assert_corrupt(open_row(RUN, EPOCH, FROM, to, &longer(&good), crc), FROM, "delta");
}

#[test]
fn a_row_moved_to_another_run_seq_or_epoch_is_refused() {
    let (to, body, crc) = row();
    assert_corrupt(open_row(OTHER, EPOCH, FROM, to, &body, crc), FROM, "delta");
    assert_corrupt(open_row(RUN, EPOCH + 1, FROM, to, &body, crc), FROM, "delta");
    assert_corrupt(open_row(RUN, EPOCH - 1, FROM, to, &body, crc), FROM, "delta");
    assert_corrupt(open_row(RUN, EPOCH, FROM + 1, to + 1, &body, crc), FROM + 1, "delta");
    assert_corrupt(open_row(RUN, EPOCH, FROM, to + 1, &body, crc), FROM, "delta");
    assert_corrupt(open_row(RUN, FROM, EPOCH, to, &body, crc), EPOCH, "delta");
}

#[test]
fn a_row_holds_as_many_deltas_as_its_seqs_say() {
    let body = body(facts());
    for (from, to) in [(FROM, FROM + 4), (FROM, FROM + 6), (0, 5), (FROM, FROM - 1), (1, u64::MAX), (u64::MAX, 0)] {
        assert_corrupt(open_row(RUN, EPOCH, from, to, &body, row_crc(RUN, EPOCH, from, to, &body)), from, "delta");
    }
}

#[test]
fn a_fact_of_an_unknown_kind_is_refused() {
    // A delta with a field 15 that this code does not know, between two that it does.
    let unknown = [0x0a, 0x02, 0x7a, 0x00];
    let known = body(vec![Fact::Result(result())]);
    let body = Bytes::from([known.as_ref(), &unknown, known.as_ref()].concat());
    assert_corrupt(open_row(RUN, EPOCH, FROM, FROM + 2, &body, row_crc(RUN, EPOCH, FROM, FROM + 2, &body)), FROM, "delta");
}

#[test]
fn rows_are_encoded_deltas_put_behind_one_another() {
    let deltas = Deltas { deltas: facts().into_iter().map(|fact| Delta { fact: Some(fact) }).collect() };
    assert_eq!(body(facts()), deltas.encode_to_vec());
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
}

#[test]
fn the_stored_form_of_each_delta_is_golden() {
    for (fact, golden) in facts().into_iter().zip(GOLDEN_ROWS) {
        let body = body(vec![fact.clone()]);
        let crc = row_crc(RUN, EPOCH, FROM, FROM, &body);
        assert_golden("a delta", crc, &body, golden);
        assert_eq!(open_row(RUN, EPOCH, FROM, FROM, &body, crc).expect("nobody touched it"), [fact]);
    }
}

const GOLDEN_INPUT: &str = "0df3dfad 0a100801120c7b226f72646572223a34327d";
const GOLDEN_OUTCOME: &str = "04389344 122d080212034534321a0d63617264206465636c696e65642206080112027b7d2a0b6c6566742f6368617267653\
    003";
const GOLDEN_VERDICT: &str = "339d014a 0a2e0a100a046c65667412066368617267651802120608011202313920012880909282e7333099909282e733380\
    240011801";
const GOLDEN_ROWS: [&str; 6] = [
    "7a629e3d 0a300a2e0a100a046c65667412066368617267651802120608011202313920012880909282e7333099909282e73\
    338024001",
    "0e89d422 0a5812560a180a046c656674120663686172676522086f726465722d343210021a2d080212034534321a0d63617\
    264206465636c696e65642206080112027b7d2a0b6c6566742f636861726765300320e8979282e73328013001",
    "ee698758 0a621a600a100a046c656674120663686172676518001080a8d6b9071880c8afa02522146c6f625f30313233343\
    536373839616263646566280130033a0439643362408084bbec9e0248015210abababababababababababababababab58809\
    09282e733",
    "45af8299 0a2322210a100a046c6566741206636861726765180010051a04373761612080f4c0c6cb02",
    "00600eec 0a1a2a180a046c656674120663686172676522086f726465722d3432",
    "ff1b7828 0a1a32180a046c656674120663686172676522086f726465722d3432",
];
