//! Networks that cut, hold, slow down and swallow: a call ends in time, says what is known of it, and the same again finds out the rest.
//! Where the run has a pooler, the network is the one before it.

use crate::kit::*;
use lobster_servers::{
    proxy::Proxy,
    shared::{self, by_the_pooler},
};
use lobster_store::{
    Tiers,
    contract::{Answer, Failed, Folded, Grant, Seen, Submitted},
};
use std::time::{Duration, Instant};

const COMMIT: &[u8] = b"COMMIT\0";

/// A store behind a proxy, and a node with a run.
struct Line {
    /// Past the proxy.
    url: String,
    /// Each statement that commits by itself does so by one more.
    pooled: bool,
    proxy: Proxy,
    process: Process,
    grant: Grant,
}

impl Line {
    async fn new(parameters: &str) -> Self {
        let url = shared::postgres();
        let way = way(&url);
        let proxy = Proxy::start(address(&way));
        let way = with(&proxy.url_through(&way), parameters);
        let process = process(&way).await;
        let grant = owner(&process.tiers, incarnation(1), 1).await.remove(0);
        Self { url, pooled: way.contains("lobster_pooled=true"), proxy, process, grant }
    }

    fn tiers(&self) -> &Tiers {
        &self.process.tiers
    }

    /// Cuts the connection whose statement has this bound value, as it commits.
    fn cut_at(&self, value: &str, applied: bool) {
        let needles: &[&[u8]] = if self.pooled { &[value.as_bytes(), COMMIT] } else { &[value.as_bytes()] };
        self.proxy.cut_when_client_sends_all(needles, applied);
    }

    async fn offer(&self, seq: u64) -> Result<Seen, Failed> {
        let answers = self.tiers().journal.append(batch(incarnation(1), true, vec![offer(&self.grant, seq)])).await?;
        match answers.into_iter().next() {
            Some(Answer::Seen(seen)) => Ok(seen),
            // What the server still has of a call that was given up.
            Some(Answer::Busy) => Err(Failed::Unavailable("busy".to_owned())),
            None => panic!("an offer without an answer"),
        }
    }

    /// Offers until there is an answer.
    async fn settle(&self, seq: u64) -> Seen {
        let asks = async {
            loop {
                match self.offer(seq).await {
                    Ok(seen) => return seen,
                    Err(failed) => assert!(failed.is_transient(), "{failed}"),
                }
            }
        };
        soon(asks).await
    }
}

/// A cut as the statement, or its COMMIT, is sent: the server gets it or not, and the caller cannot know.
async fn cut_in_a_statement(parameters: &str) {
    let line = Line::new(parameters).await;
    for (seq, applied) in (1..).zip([false, true, true, false]) {
        line.cut_at(&format!("row {seq} of"), applied);
        let failed = failed(line.offer(seq).await);
        assert!(matches!(failed, Failed::Unknown(_)) && line.proxy.fired(), "{failed}");
        let seen = line.settle(seq).await;
        assert_eq!((seen.rows, seen.tail), (usize::from(!applied), seq), "the same again finds what happened");
        assert_eq!(seen.mark, row(line.grant.run, line.grant.epoch, seq).mark);
    }
}

#[test]
fn a_statement_whose_answer_is_lost_is_unknown_and_found_by_the_same_again() {
    block_on(cut_in_a_statement("lobster_connections=2"));
}

#[test]
fn a_commit_whose_answer_is_lost_is_unknown_and_found_by_the_same_again() {
    block_on(cut_in_a_statement("lobster_pooled=true"));
}

#[test]
fn a_fold_and_a_submit_whose_answers_are_lost_are_found_by_the_same_again() {
    block_on(async {
        let line = Line::new("lobster_connections=2").await;
        append_one(line.tiers(), incarnation(1), &line.grant, 1, true).await;
        // Past what the server still has of one that was given up.
        let folds = async || loop {
            match line.tiers().journal.fold(fold(&line.grant, incarnation(1), 1)).await {
                Ok(Folded::Busy) => {}
                answer => return answer,
            }
        };
        for applied in [false, true] {
            // A name in its manifest, and the end of its transaction.
            line.proxy.cut_when_client_sends_all(&[b"total", COMMIT], applied);
            let failed = failed(soon(folds()).await);
            assert!(matches!(failed, Failed::Unknown(_)), "{failed}");
        }
        assert_eq!(soon(folds()).await.expect("a fold is answered"), Folded::Done);
        for (number, applied) in [(7, false), (8, true)] {
            line.cut_at(&format!("key-{number}"), applied);
            let failed = failed(line.tiers().journal.submit(vec![new_run(number)]).await);
            assert!(matches!(failed, Failed::Unknown(_)), "{failed}");
            let again = line.tiers().journal.submit(vec![new_run(number)]).await.expect("a submit is answered");
            let there = Submitted::Existing { id: run_id(number), same: true };
            assert_eq!(again, [if applied { there } else { Submitted::Created }]);
        }
    });
}

/// A call while the network does something to it.
async fn bad_line(line: &Line, seq: u64, fault: impl Fn(&Proxy)) {
    fault(&line.proxy);
    let began = Instant::now();
    let failed = failed(line.offer(seq).await);
    assert!(failed.is_transient(), "{failed}");
    let took = began.elapsed();
    assert!(took < Duration::from_secs(5), "{took:?}: {failed}");
    line.proxy.pass();
    line.proxy.cut();
    let seen = line.settle(seq).await;
    assert_eq!(seen.tail, seq);
}

#[test]
fn a_call_ends_in_time_whatever_the_network_does() {
    block_on(async {
        let line = Line::new("lobster_deadline_ms=1000&lobster_connections=3").await;
        bad_line(&line, 1, |proxy| proxy.hold_to_server(true)).await;
        bad_line(&line, 2, |proxy| proxy.hold_to_client(true)).await;
        bad_line(&line, 3, |proxy| proxy.black(true)).await;
        bad_line(&line, 4, Proxy::half_open).await;
        bad_line(&line, 5, |proxy| {
            proxy.refuse(true);
            proxy.reset();
        })
        .await;
        // Slow is not broken.
        line.proxy.delay(Duration::from_millis(20));
        assert_eq!(line.settle(6).await.tail, 6);
    });
}

#[test]
fn connections_that_went_dead_while_they_were_idle_cost_one_look() {
    block_on(async {
        let line = Line::new("lobster_connections=4").await;
        let run = [line.grant.run];
        let many = (0..4).map(|_| {
            let tiers = line.tiers().clone();
            tokio::spawn(async move { tiers.catalog.outcomes(&run).await.expect("outcomes are answered") })
        });
        for one in many.collect::<Vec<_>>() {
            one.await.expect("it does not panic");
        }
        // Idle for so long that they are looked at before they are used.
        let idle = HostClock::since_boot();
        while HostClock::since_boot() - idle < Duration::from_millis(1200) {
            tokio::task::yield_now().await;
        }
        // Nor is there a way to new ones. A look at each of them would take two seconds.
        line.proxy.black(true);
        line.proxy.refuse(true);
        let began = Instant::now();
        let failed = failed(line.tiers().catalog.outcomes(&run).await);
        assert!(matches!(failed, Failed::Unavailable(_)), "nothing of it was sent: {failed}");
        assert!(began.elapsed() < Duration::from_secs(6), "{:?}", began.elapsed());
    });
}

#[test]
fn a_process_that_was_away_within_a_transaction_is_told_that_nothing_happened() {
    block_on(async {
        let line = Line::new("lobster_connections=1").await;
        append_one(line.tiers(), incarnation(1), &line.grant, 1, true).await;
        // The answer to its BEGIN comes too late: the server has ended the session.
        line.proxy.hold_to_client(true);
        let (tiers, fold) = (line.tiers().clone(), fold(&line.grant, incarnation(1), 1));
        let folds = tokio::spawn({
            let (tiers, fold) = (tiers.clone(), fold.clone());
            async move { tiers.journal.fold(fold).await }
        });
        let mut eye = Session::of(&line.url).await;
        let idle = "EXISTS (SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND state = 'idle in transaction')";
        eye.until(&format!("SELECT {idle}")).await;
        eye.until(&format!("SELECT NOT {idle}")).await;
        line.proxy.hold_to_client(false);
        let failed = failed(soon(folds).await.expect("it does not panic"));
        assert!(matches!(failed, Failed::Unavailable(_)), "{failed}");
        assert_eq!(tiers.journal.fold(fold).await.expect("a fold is answered"), Folded::Done);
    });
}

#[test]
fn a_line_that_died_without_a_word_is_found_out_and_hints_are_heard_again() {
    block_on(async {
        let url = shared::postgres();
        let proxy = Proxy::start(address(&url));
        // Hints are heard by the direct way, which has the same proxy.
        let ear = process(&by_the_pooler(&proxy.url_through(&worker(&url)))).await;
        let (speaker, mut eye) = (process(&way(&url)).await, Session::of(&url).await);
        let heard = ear.tiers.wake.hints();
        // Nobody tells the listener: its system goes on believing in the line.
        proxy.half_open();
        let speaks = async {
            loop {
                speaker.tiers.wake.hint();
                // Each hint locks all databases of the server for a moment: a few a second are enough.
                eye.ask("SELECT pg_sleep(0.2)::text").await;
            }
        };
        soon(async {
            tokio::select! {
                _ = ear.tiers.wake.hinted(heard) => {}
                () = speaks => {}
            }
        })
        .await;
    });
}
