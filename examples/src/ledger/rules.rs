//! The ledger's rules, in memory and without any waiting: what a request means, given everything before it.
//! A decision here counts only once its rows are synced; whoever fails to write them must drop the whole of `Rules`.

use std::collections::{HashMap, HashSet};

use super::wire::{Act, Answer, Begun, Counts, NAME_BYTES_MAX, Receipt, Watch};

/// What has become of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Executed.
    Happened(Receipt),
    /// Not seen so far.
    NotSeen,
    /// Closed before it was executed.
    Closed,
}

/// One row of `requests`.
#[derive(Debug, PartialEq, Eq, serde::Serialize)]
pub struct RequestRow {
    pub at_ms: u64,
    pub ask: &'static str,
    pub key: String,
    pub order_id: Option<u32>,
    pub answer: &'static str,
}

/// Everything the ledger knows that later answers depend on.
#[derive(Debug, Default)]
pub struct Rules {
    pub fates: HashMap<String, Fate>,
    pub counts: Counts,
    /// New keys wait from this count of executed ones on.
    pub hold: Option<u64>,
    /// The processes that have begun a body.
    pub at_work: HashSet<u32>,
}

/// What is to be done with an `Act`.
pub enum Decision {
    /// Answer it; a receipt that is not `repeated` goes into `effects`.
    Answer(RequestRow, Answer),
    /// It is new and has to wait for the next kill.
    Wait,
}

impl Rules {
    pub fn act(&mut self, act: &Act, at_ms: u64) -> Decision {
        let row = |answer| RequestRow { at_ms, ask: act.kind.word(), key: act.key.clone(), order_id: Some(act.order), answer };
        if let Err(message) = name_fits(&act.key) {
            self.counts.requests += 1;
            return Decision::Answer(row("invalid"), Answer::Invalid { message });
        }
        let (word, answer) = match self.fates.get(&act.key) {
            Some(Fate::Happened(first)) if !is_for(first, act) => ("conflict", Answer::Conflict { first: first.clone() }),
            Some(Fate::Happened(first)) => ("repeated", Answer::Receipt { receipt: first.clone(), repeated: true }),
            Some(Fate::Closed) => ("closed", Answer::Closed),
            Some(Fate::NotSeen) | None if self.hold.is_some_and(|hold| self.counts.executed >= hold) => return Decision::Wait,
            Some(Fate::NotSeen) | None => ("executed", Answer::Receipt { receipt: self.execute(act, at_ms), repeated: false }),
        };
        self.counts.requests += 1;
        if matches!(word, "repeated" | "closed") {
            self.counts.refused += 1;
        }
        Decision::Answer(row(word), answer)
    }

    fn execute(&mut self, act: &Act, at_ms: u64) -> Receipt {
        self.counts.executed += 1;
        let number = format!("{}-{:06}", act.kind.word(), self.counts.executed);
        let receipt = Receipt { number, kind: act.kind, order: act.order, amount: act.amount, at_ms };
        self.fates.insert(act.key.clone(), Fate::Happened(receipt.clone()));
        receipt
    }

    /// A request that waited and whose sender was killed meanwhile: it is written down and never executed.
    pub fn drop_call(&mut self, act: &Act, at_ms: u64) -> RequestRow {
        self.counts.requests += 1;
        RequestRow { at_ms, ask: act.kind.word(), key: act.key.clone(), order_id: Some(act.order), answer: "dropped" }
    }

    pub fn did_happen(&mut self, key: String, at_ms: u64) -> (RequestRow, Answer) {
        self.counts.requests += 1;
        let (word, answer) = self.told(&key);
        (RequestRow { at_ms, ask: "did_happen", key, order_id: None, answer: word }, answer)
    }

    /// The last part of the answer says whether it was this very request that closed the key.
    pub fn close(&mut self, key: String, at_ms: u64) -> (RequestRow, Answer, bool) {
        self.counts.requests += 1;
        let fresh = name_fits(&key).is_ok() && !self.fates.contains_key(&key);
        if fresh {
            self.fates.insert(key.clone(), Fate::Closed);
        }
        let (word, answer) = self.told(&key);
        (RequestRow { at_ms, ask: "close", key, order_id: None, answer: word }, answer, fresh)
    }

    fn told(&self, key: &str) -> (&'static str, Answer) {
        if let Err(message) = name_fits(key) {
            return ("invalid", Answer::Invalid { message });
        }
        match self.fates.get(key) {
            Some(Fate::Happened(first)) => ("happened", Answer::Receipt { receipt: first.clone(), repeated: true }),
            Some(Fate::Closed) => ("closed", Answer::Closed),
            Some(Fate::NotSeen) | None => ("not_seen", Answer::NotSeen),
        }
    }

    pub fn begun(&mut self, body: &Begun) -> Answer {
        if let Err(message) = name_fits(&body.step) {
            return Answer::Invalid { message };
        }
        self.counts.bodies += 1;
        self.at_work.insert(body.pid);
        Answer::Noted
    }

    /// The process to be killed now, if a watch has come to its end.
    pub fn reached(&self, watch: &Watch) -> Option<u32> {
        let at_work = || watch.pids.iter().copied().find(|pid| self.at_work.contains(pid));
        (self.counts.executed >= watch.executed).then(at_work).flatten()
    }
}

fn is_for(receipt: &Receipt, act: &Act) -> bool {
    (receipt.kind, receipt.order, receipt.amount) == (act.kind, act.order, act.amount)
}

fn name_fits(name: &str) -> Result<(), String> {
    match name.len() {
        0 => Err("a key or step name must not be empty".to_owned()),
        length if length > NAME_BYTES_MAX => {
            Err(format!("a key or step name of {length} bytes is too long, allowed are {NAME_BYTES_MAX}"))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::wire::Kind;
    use super::*;

    fn act(key: &str) -> Act {
        Act { key: key.into(), kind: Kind::Charge, order: 1, amount: Some(5.into()) }
    }

    fn answer(rules: &mut Rules, act: &Act) -> (&'static str, Answer) {
        match rules.act(act, 1) {
            Decision::Answer(row, answer) => (row.answer, answer),
            Decision::Wait => panic!("nothing holds this request"),
        }
    }

    #[test]
    fn a_key_is_executed_once_and_answered_with_its_first_receipt() {
        let mut rules = Rules::default();
        let Answer::Receipt { receipt, repeated: false } = answer(&mut rules, &act("a")).1 else { panic!("it is new") };
        assert_eq!(answer(&mut rules, &act("a")), ("repeated", Answer::Receipt { receipt, repeated: true }));
        assert_eq!(rules.counts, Counts { requests: 2, executed: 1, refused: 1, bodies: 0, kills: 0 });
    }

    #[test]
    fn a_key_used_for_something_else_is_a_conflict() {
        let mut rules = Rules::default();
        answer(&mut rules, &act("a"));
        for other in [Act { order: 2, ..act("a") }, Act { kind: Kind::Ship, ..act("a") }, Act { amount: None, ..act("a") }] {
            assert_eq!(answer(&mut rules, &other).0, "conflict");
        }
        assert_eq!(rules.counts.executed, 1);
    }

    #[test]
    fn a_closed_key_refuses_a_late_arrival_and_an_executed_one_cannot_be_closed() {
        let mut rules = Rules::default();
        assert_eq!(rules.did_happen("a".into(), 1).1, Answer::NotSeen);
        let (_, closed, fresh) = rules.close("a".into(), 1);
        assert_eq!((closed, fresh), (Answer::Closed, true));
        assert_eq!(answer(&mut rules, &act("a")), ("closed", Answer::Closed));
        assert_eq!(rules.did_happen("a".into(), 1).1, Answer::Closed);

        let first = answer(&mut rules, &act("b")).1;
        let (_, told, fresh) = rules.close("b".into(), 1);
        assert!(matches!((first, told), (Answer::Receipt { receipt: a, .. }, Answer::Receipt { receipt: b, .. }) if a == b));
        assert!(!fresh);
    }

    #[test]
    fn new_keys_wait_at_the_hold_and_known_ones_do_not() {
        let mut rules = Rules { hold: Some(1), ..Rules::default() };
        answer(&mut rules, &act("a"));
        assert!(matches!(rules.act(&act("b"), 1), Decision::Wait));
        assert_eq!(answer(&mut rules, &act("a")).0, "repeated");
        rules.hold = Some(2);
        assert_eq!(answer(&mut rules, &act("b")).0, "executed");
    }

    #[test]
    fn empty_and_oversized_names_are_refused() {
        let mut rules = Rules::default();
        let long = "k".repeat(NAME_BYTES_MAX + 1);
        for name in ["", long.as_str()] {
            assert_eq!(answer(&mut rules, &act(name)).0, "invalid");
            assert!(matches!(rules.did_happen(name.into(), 1).1, Answer::Invalid { .. }));
            assert!(matches!(rules.close(name.into(), 1), (_, Answer::Invalid { .. }, false)));
        }
        assert_eq!(rules.counts.executed, 0);
    }
}
