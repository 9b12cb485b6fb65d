//! Under retention the file stays as large as what is alive.

use crate::{kit::*, scratch::Scratch};
use lobster_store::contract::{Catalog, Journal, Wall};
use std::{fs, path::Path};

fn size(path: &Path) -> u64 {
    fs::metadata(path).map_or(0, |data| data.len())
}

#[test]
fn file_and_log_stay_bounded_under_retention() {
    let dir = Scratch::new();
    let path = dir.join("store.db");
    block_on(async {
        let store = open(&path).await;
        let me = incarnation(1);
        join(&store, me).await;
        let mut largest = (0, 0);
        for round in 0..12 {
            let numbers = round * 300..round * 300 + 300;
            store.submit(numbers.map(new_run).collect()).await.expect("a submit is answered");
            let grants = claim(&store, me, 300).await;
            assert_eq!(grants.len(), 300);
            append(&store, me, false, grants.iter().map(|grant| offer(grant, 1, 8000)).collect()).await;
            let seen = append(&store, me, true, grants.iter().map(|grant| finish(grant, 1, Wall(1))).collect()).await;
            assert!(seen.iter().all(|seen| seen.then));
            while store.sweep(Wall(2), 100).await.expect("a sweep is answered") > 0 {}
            largest = (largest.0.max(size(&path)), largest.1.max(size(&dir.join("store.db-wal"))));
        }
        // One round is about three megabytes, twelve are forty.
        assert!(largest.0 < 14 << 20, "the file grew to {} bytes", largest.0);
        assert!(largest.1 < 48 << 20, "the log grew to {} bytes", largest.1);
        assert_eq!(store.count(Default::default()).await.expect("a count is answered"), 0);
        for _ in 0..8 {
            store.sweep(Wall(2), 100).await.expect("a sweep is answered");
        }
        drop(store);
        let store = open(&path).await;
        create(&store, 99_999).await;
        assert!(size(&path) < 6 << 20, "{} bytes are left of nothing", size(&path));
    });
}
