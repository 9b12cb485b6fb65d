//! Hosts whose clocks are wrong: what is due is due by one clock.

use crate::kit::*;
use lobster_servers::shared;
use lobster_store::{
    Tiers,
    contract::{Beat, Boot, Clock, NewRun, Renewed, RunFilter, Seen, Submitted, Then, Wall},
    postgres::{Options, Postgres},
};
use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

/// The clock of a host that is so many milliseconds ahead.
#[derive(Clone, Debug)]
struct Ahead(Arc<AtomicI64>);

impl Clock for Ahead {
    fn boot(&self) -> Boot {
        HostClock.boot()
    }
    fn wall(&self) -> Wall {
        Wall(HostClock::now().0 + self.0.load(Ordering::Relaxed))
    }
}

async fn host(url: &str, local: &Path, ahead: i64) -> (Tiers, Ahead) {
    let options = Options::from_url(url).expect("a URL of a test").local_path(local);
    let clock = Ahead(Arc::new(AtomicI64::new(ahead)));
    let store = Postgres::open(options, Arc::new(clock.clone())).await.expect("the store can be opened");
    (Tiers::of(store, "postgres"), clock)
}

#[test]
fn a_host_whose_clock_is_wrong_submits_and_evicts_for_the_right_time() {
    let url = way(&shared::postgres());
    block_on(async {
        let local = tempfile::tempdir().expect("a directory can be made");
        let right = process(&url).await;
        join(&right.tiers, incarnation(1)).await;
        for (number, ahead) in [(1, 60_000), (2, -60_000)] {
            let (tiers, clock) = host(&url, local.path(), ahead).await;
            let run = NewRun { due: clock.wall(), ..new_run(number) };
            let id = run.id;
            assert!(matches!(tiers.journal.submit(vec![run]).await.expect("an answer")[..], [Submitted::Created]));
            let grants = claim(&right.tiers, incarnation(1), 9).await;
            assert_eq!(grants.iter().map(|grant| grant.run).collect::<Vec<_>>(), [id], "{ahead} ms ahead: due at once");

            // Evicted by a host that is wrong, for a time that is far by its clock, and then for one that has come.
            let Seen { wake, .. } = append(&right.tiers, batch(incarnation(1), true, vec![offer(&grants[0], 1)])).await.remove(0);
            let away = |due| Then::Evict { due, wake, reason: "waits".to_owned() };
            let later = clock.wall().plus(Duration::from_secs(30));
            append(&tiers, batch(incarnation(1), true, vec![ends(&grants[0], 1, away(later))])).await;
            assert_eq!(claim(&right.tiers, incarnation(1), 9).await, [], "{ahead} ms ahead: not due for half a minute");
            let seen = tiers.catalog.list(RunFilter::default(), 9).await.expect("a list");
            let seen = seen.iter().find(|seen| seen.id == id).expect("it is listed");
            assert_eq!(seen.due, later, "read back as it was said");
            let submitted = clock.wall().0 - seen.submitted.0;
            assert!((0..=60_000).contains(&(submitted + 50)), "{submitted} ms ago by its own clock");
            let by_others = right.tiers.catalog.read(id).await.expect("a read").expect("it is there").summary.due;
            assert!((by_others.0 - (later.0 - ahead)).abs() < 5_000, "by the clocks of others");
        }
    });
}

#[test]
fn a_step_of_the_clock_is_seen_with_the_next_answer() {
    let url = way(&shared::postgres());
    block_on(async {
        let (local, right) = (tempfile::tempdir().expect("a directory can be made"), process(&url).await);
        let (tiers, clock) = host(&url, local.path(), 0).await;
        join(&tiers, incarnation(1)).await;
        let submit = async |number, after| {
            let run = NewRun { due: clock.wall().plus(after), ..new_run(number) };
            tiers.journal.submit(vec![run]).await.expect("an answer");
        };
        let claimed = async || claim(&right.tiers, incarnation(1), 9).await.len();
        let half_a_minute = async |number| {
            let seen = right.tiers.catalog.read(run_id(number)).await.expect("a read").expect("it is there").summary.due;
            (seen.0 - HostClock::now().0 - 25_000).abs() < 5_500
        };
        const HALF_A_MINUTE: Duration = Duration::from_secs(30);
        submit(1, HALF_A_MINUTE).await;
        assert!(half_a_minute(1).await);
        clock.0.store(60_000, Ordering::Relaxed);
        submit(2, Duration::ZERO).await;
        assert_eq!(claimed().await, 1, "at once is at once, whoever knows");
        submit(3, HALF_A_MINUTE).await;
        assert!(half_a_minute(3).await, "the submit before has told");
        clock.0.store(-60_000, Ordering::Relaxed);
        let beat = Beat { seq: 1, at: clock.boot(), lapsed: false };
        assert_eq!(tiers.members.renew(incarnation(1), beat).await.expect("an answer"), Renewed::Good);
        submit(4, HALF_A_MINUTE).await;
        assert!(half_a_minute(4).await, "a renewal tells too");
        assert_eq!(claimed().await, 0);
    });
}
