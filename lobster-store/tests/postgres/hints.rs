//! Hints, on a server that tells what it executes: they travel in no transaction of anything else, and many of them as one. Without a
//! pooler: by one, each is a transaction of several statements.

use crate::kit::*;
use lobster_servers::postgres::{Durability, Postgres};
use lobster_store::{
    Tiers,
    contract::{Grant, Hold, Submitted, Transacted, Work},
};
use std::time::{Duration, Instant};

/// Between two notifications of one process: as `postgres/wake.rs` has it.
const BREATH: Duration = Duration::from_millis(5);

/// What the server has executed: the transaction (`%v`), and the statement.
fn executed(server: &Postgres) -> Vec<(String, String)> {
    let lines = server.log().replace("\n\t", " ");
    let told = lines.lines().filter_map(|line| line.split_once("|LOG:  "));
    let told = told.filter(|(_, text)| text.starts_with("execute ") || text.starts_with("statement: "));
    told.map(|(transaction, text)| (transaction.to_owned(), text.to_owned())).collect()
}

fn notifies(text: &str) -> bool {
    text.to_lowercase().contains("notify")
}

/// How often something was said so far.
fn said(server: &Postgres) -> usize {
    executed(server).iter().filter(|(_, text)| notifies(text)).count()
}

/// Since then no more was said than by one who takes a breath each time.
fn breathes(server: &Postgres, began: Instant, before: usize) {
    let said = said(server) - before;
    let took = began.elapsed();
    assert!(said > 0 && said as u128 <= took.as_micros() / BREATH.as_micros() + 2, "{said} notifications in {took:?}");
}

/// Submits a run in the transaction of a step.
async fn submits_within(tiers: &Tiers, grant: &Grant, number: u64) {
    let (journal, Grant { run, epoch, .. }) = (tiers.journal.clone(), grant.clone());
    let work: Work = Box::new(move |transaction| {
        Box::pin(async move {
            let made = journal.submit_in(transaction, new_run(number)).await.expect("it is a transaction of this store");
            assert_eq!(made, Submitted::Created);
            Some(row(run, epoch, 1))
        })
    });
    let hold = Hold { incarnation: incarnation(1), run, epoch, head: 1, most: LONG };
    assert_eq!(tiers.journal.transact(hold, work).await.expect("a transaction is answered"), Transacted::Done);
}

#[test]
fn a_hint_travels_in_no_transaction_of_anything_else_and_many_travel_as_one() {
    let server = Postgres::start(Durability::Fast).expect("a private server can be started");
    server.set("log_line_prefix", "%v|");
    server.set("log_statement", "all");
    let url = worker(&server.fresh_database());
    block_on(async {
        let (speaks, hears) = (process(&url).await, process(&url).await);
        let (me, hints) = (incarnation(1), || hears.tiers.wake.hints());
        let listens = async {
            while hears.tiers.wake.stride() == 1 {
                tokio::task::yield_now().await;
            }
        };
        soon(listens).await;

        // After a statement that commits by itself, after a transaction, and after an end.
        let heard = hints();
        let grant = owner(&speaks.tiers, me, 1).await.remove(0);
        soon(hears.tiers.wake.hinted(heard)).await;
        let heard = hints();
        submits_within(&speaks.tiers, &grant, 2).await;
        soon(hears.tiers.wake.hinted(heard)).await;
        let heard = hints();
        append(&speaks.tiers, batch(me, true, vec![ends(&grant, 1, finish(grant.run, HostClock::now()))])).await;
        soon(hears.tiers.wake.hinted(heard)).await;

        let (began, before, heard) = (Instant::now(), said(&server), hints());
        let submits: Vec<_> = (11..=310)
            .map(|number| {
                let tiers = speaks.tiers.clone();
                tokio::spawn(async move { create(&tiers, number).await })
            })
            .collect();
        for submit in submits {
            soon(submit).await.expect("it is created");
        }
        soon(hears.tiers.wake.hinted(heard)).await;
        breathes(&server, began, before);

        // Somebody hints all the time.
        let (began, before, heard) = (Instant::now(), said(&server), hints());
        let hears_twenty = async {
            while hints() < heard + 20 {
                speaks.tiers.wake.hint();
                tokio::task::yield_now().await;
            }
        };
        soon(hears_twenty).await;
        breathes(&server, began, before);
    });
    let executed = executed(&server);
    let together = |transaction: &str| executed.iter().filter(|(other, _)| other == transaction).count();
    let business = executed.iter().find(|(_, text)| text.contains("lobster.business")).expect("a step's transaction is told");
    assert!(together(&business.0) > 3, "what is executed in one transaction is told as that");
    for (transaction, text) in executed.iter().filter(|(_, text)| notifies(text)) {
        assert!(!text.contains("\"lobster\"."), "it names a table: {text}");
        assert_eq!(together(transaction), 1, "it is not alone in its transaction: {text}");
    }
}
