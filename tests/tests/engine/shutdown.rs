//! A shutdown lets every step that runs come to its end, and nothing begins after it.

use lobster_core::{Ctx, Lobster, Result, RunState, Settings, StepCtx, step, task};
use std::{collections::BTreeMap, sync::Mutex, time::Duration};

/// Bodies begun, by round and number.
static BEGUN: Mutex<BTreeMap<(u64, u64), u32>> = Mutex::new(BTreeMap::new());

#[step]
async fn slow(_ctx: &StepCtx, round: u64, n: u64) -> Result<u64> {
    *BEGUN.lock().expect("no test panics with it").entry((round, n)).or_default() += 1;
    tokio::time::sleep(Duration::from_millis(3)).await;
    Ok(n)
}

#[task]
async fn counted(ctx: Ctx, which: (u64, u64)) -> Result<u64> {
    let (round, n) = which;
    Ok(slow(&ctx, round, n).await?)
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_whose_claim_was_under_way_are_handed_over_as_well() {
    const RUNS: u64 = 32;
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite://{}", folder.path().join("a.db").display());
    let client = Lobster::open(&url).connect().await.unwrap();
    for round in 0..20 {
        let runs = (0..RUNS).map(|n| (format!("{round}-{n}").into(), (round, n)));
        let handles = client.submit_all(counted, runs).await.unwrap();
        let open = || Lobster::open(&url).task(counted).settings(Settings::test());
        let lobster = open().start().await.unwrap();
        // From the first look for work to some way into the steps.
        tokio::time::sleep(Duration::from_micros(400 * round)).await;
        let drained = lobster.shutdown(Duration::from_secs(10)).await;
        assert_eq!(drained.left_behind, 0);
        assert_eq!(client.runs().state(RunState::Running).count().await.unwrap(), 0, "round {round}");
        let begun = BEGUN.lock().unwrap().len();
        tokio::time::sleep(Duration::from_millis(5)).await;
        assert_eq!(BEGUN.lock().unwrap().len(), begun, "round {round}: a step began after the shutdown");

        let lobster = open().start().await.unwrap();
        for handle in handles {
            handle.outcome().await.unwrap();
        }
        lobster.shutdown(Duration::from_secs(10)).await;
        let begun = BEGUN.lock().unwrap();
        assert!((0..RUNS).all(|n| begun[&(round, n)] == 1), "round {round}: {begun:?}");
    }
}
