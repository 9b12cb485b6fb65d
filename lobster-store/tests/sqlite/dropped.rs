//! A future that is dropped midway leaves no transaction open and no call half done.

use crate::{kit::*, scratch::Scratch};
use lobster_store::contract::{Catalog, Journal, Submitted};
use std::{future::Future, pin::pin, task::Poll};

/// Polls `future` so many times, then drops it.
pub async fn polled(times: usize, future: impl Future) {
    let mut future = pin!(future);
    for _ in 0..times {
        let mut once = false;
        let done = std::future::poll_fn(|cx| match future.as_mut().poll(cx) {
            Poll::Ready(_) => Poll::Ready(true),
            Poll::Pending if once => Poll::Ready(false),
            Poll::Pending => {
                once = true;
                Poll::Pending
            }
        });
        if done.await {
            return;
        }
    }
}

#[test]
fn calls_dropped_midway_are_whole_or_nothing() {
    let dir = Scratch::new();
    block_on(async {
        let store = open(&dir.join("store.db")).await;
        let mut existing = 0;
        for number in 0..150 {
            polled((number % 6) as usize, store.submit(vec![new_run(number)])).await;
            polled((number % 5) as usize, store.read(run_id(number))).await;
            // The next calls work, and the same submit again says what became of the first.
            match store.submit(vec![new_run(number)]).await.expect("a submit is answered")[0] {
                Submitted::Created => {}
                Submitted::Existing { id, same } => {
                    assert_eq!((id, same), (run_id(number), true));
                    existing += 1;
                }
            }
            let stored = store.read(run_id(number)).await.expect("a read is answered").expect("it was submitted");
            assert_eq!(stored.summary.tags, ["tag"]);
        }
        assert_eq!(store.count(Default::default()).await.expect("a count is answered"), 150);
        assert!(existing > 0, "no dropped call was ever on its way");
    });
}

#[test]
fn a_runtime_that_ends_midway_leaves_the_file_usable() {
    let dir = Scratch::new();
    let path = dir.join("store.db");
    for number in 0..20 {
        let path = path.clone();
        block_on(async move {
            let store = open(&path).await;
            polled((number % 5) as usize, store.submit((number * 100..number * 100 + 50).map(new_run).collect())).await;
        });
    }
    block_on(async {
        let store = open(&path).await;
        create(&store, 99_999).await;
        let count = store.count(Default::default()).await.expect("a count is answered");
        assert_eq!(count % 50, 1, "a submit applied by half");
    });
}
