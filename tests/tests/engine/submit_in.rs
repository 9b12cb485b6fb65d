//! Runs that are submitted inside of a transaction: they are there if and only if it is committed.
//!
//! Rule: the tables and the outside world are the judges, on every store that knows such transactions.

use lobster_core::{
    Client, Ctx, Error, ErrorKind, PgTx, Reason, Result, RunFailed, RunState, Settings, SqliteTx, StepCtx, StepErrorExt,
    StepFailed, Tx, step,
    store::{contract::limits, memory::MemoryTx},
    task,
};
use lobster_tests::{Place, happen, happened, on_each};
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeMap,
    sync::{LazyLock, Mutex},
    time::Duration,
};

/// An order, whose payment is followed by a shipment.
#[derive(Clone, Serialize, Deserialize)]
struct Order {
    /// The store, and what tells this test's world from others.
    world: String,
    how: String,
}

impl Order {
    fn new(place: &Place, how: &str) -> Self {
        Self { world: format!("{} {}", place.url(), Ctx::detached().run_id()), how: how.to_owned() }
    }
    /// The key of its shipment.
    fn shipment(&self) -> String {
        // URLs are long.
        format!("ship {}", &self.world[self.world.len() - 36..])
    }
}

/// Clients of other stores, by world.
static STRANGERS: LazyLock<Mutex<BTreeMap<String, Client>>> = LazyLock::new(Mutex::default);

fn kind(answer: std::result::Result<lobster_core::Handle<ship>, Error>) -> String {
    match answer {
        Ok(_) => "submitted".into(),
        Err(error) => format!("{:?}", error.kind()),
    }
}

/// What the step does besides paying; what each submit was answered.
async fn follow(ctx: &StepCtx, tx: &mut impl Tx, order: &Order) -> Result<Vec<String>> {
    happen(&order.world, "paid");
    let key = order.shipment();
    let other = Order { how: "another".into(), ..order.clone() };
    let first = ctx.submit_in(tx, ship, order.clone()).key(key.as_str()).tag("shipping").await?;
    let mut answers = Vec::new();
    match (order.how.as_str(), ctx.attempt()) {
        ("undone", _) => Err("never").fatal()?,
        ("later", 1) => Err("not now")?,
        ("panic", 1) => panic!("boom"),
        ("twice", _) => {
            let again = ctx.submit_in(tx, ship, order.clone()).key(key.as_str()).await?;
            assert_eq!(again.id(), first.id());
            answers.push(kind(ctx.submit_in(tx, ship, other).key(key).await));
        }
        ("bad", _) => {
            for bad in ["".to_owned(), "a\0b".into(), "x".repeat(limits::NAME_BYTES + 1)] {
                answers.push(kind(ctx.submit_in(tx, ship, order.clone()).key(bad.as_str()).await));
                answers.push(kind(ctx.submit_in(tx, ship, order.clone()).tag(bad).await));
            }
            let large = Order { how: "x".repeat(limits::PAYLOAD_BYTES), ..order.clone() };
            answers.push(kind(ctx.submit_in(tx, ship, large).await));
            let longest = "x".repeat(limits::NAME_BYTES);
            answers.push(kind(ctx.submit_in(tx, ship, order.clone()).key(longest).delay(Duration::from_secs(3600)).await));
        }
        ("strange", _) => {
            let stranger = STRANGERS.lock().unwrap().get(&order.world).cloned().expect("the test has named it");
            answers.push(kind(stranger.submit_in(tx, ship, order.clone()).key("strange").await));
        }
        ("unknown", _) => _ = ctx.submit_in(tx, nobody, order.world.clone()).key(format!("{key} nobody")).await?,
        _ => {}
    }
    Ok(answers)
}

#[step(transactional, max_duration = 5s, retry(attempts = 3, first = 1ms))]
async fn pay_in_file(ctx: &StepCtx, tx: &mut SqliteTx, order: &Order) -> Result<Vec<String>> {
    follow(ctx, tx, order).await
}

#[step(transactional, max_duration = 5s, retry(attempts = 3, first = 1ms))]
async fn pay_at_server(ctx: &StepCtx, tx: &mut PgTx, order: &Order) -> Result<Vec<String>> {
    follow(ctx, tx, order).await
}

#[step(transactional, max_duration = 5s, retry(attempts = 3, first = 1ms))]
async fn pay_in_memory(ctx: &StepCtx, tx: &mut MemoryTx, order: &Order) -> Result<Vec<String>> {
    follow(ctx, tx, order).await
}

async fn pay(ctx: &Ctx, order: &Order) -> Result<Vec<String>, StepFailed> {
    match order.world.split(':').next() {
        Some("sqlite") => pay_in_file(ctx, order).await,
        Some("memory") => pay_in_memory(ctx, order).await,
        _ => pay_at_server(ctx, order).await,
    }
}

#[task]
async fn checkout(ctx: Ctx, order: Order) -> Result<Vec<String>> {
    Ok(pay(&ctx, &order).await?)
}

#[step]
async fn pack(_ctx: &StepCtx, world: &str) -> Result<u64> {
    Ok(happen(world, "shipped"))
}

#[task]
async fn ship(ctx: Ctx, order: Order) -> Result<u64> {
    Ok(pack(&ctx, &order.world).await?)
}

/// A task that no process executes.
#[task]
async fn nobody(_ctx: Ctx, _world: String) -> Result<()> {
    Ok(())
}

/// With polls so rare that whatever is found in time was hinted at.
fn hinted() -> Settings {
    let mut settings = Settings::test();
    settings.run.poll = Duration::from_secs(3600);
    settings
}

on_each! {
    async fn a_run_that_a_step_has_submitted_runs_once_and_at_once(place) {
        let lobster = place.open().settings(hinted()).task(checkout).task(ship).start().await.unwrap();
        let order = Order::new(&place, "plain");
        lobster.submit(checkout, order.clone()).await.unwrap().outcome().await.unwrap();
        let run = lobster.find(order.shipment()).await.unwrap().expect("the step is committed");
        assert_eq!(lobster.run(ship, run).outcome().await.unwrap(), 1);
        assert_eq!(lobster.runs().tag("shipping").list().await.unwrap().iter().map(|run| run.id).collect::<Vec<_>>(), [run]);
        // Submitted from outside, the key is the same run.
        assert_eq!(lobster.submit(ship, order.clone()).key(order.shipment()).await.unwrap().id(), run);
        assert_eq!((happened(&order.world, "paid"), happened(&order.world, "shipped")), (1, 1));
    }

    async fn a_run_of_an_attempt_that_is_undone_never_was(place) {
        let lobster = place.open().task(checkout).task(ship).start().await.unwrap();
        let order = Order::new(&place, "undone");
        let failed = lobster.submit(checkout, order.clone()).await.unwrap().outcome().await.unwrap_err();
        assert!(matches!(failed, RunFailed::Failed(_)), "{failed:?}");
        assert_eq!(lobster.find(order.shipment()).await.unwrap(), None);
        assert_eq!(lobster.runs().task("ship").count().await.unwrap(), 0);
        for (how, attempts) in [("later", 2), ("panic", 2)] {
            let order = Order::new(&place, how);
            lobster.submit(checkout, order.clone()).await.unwrap().outcome().await.unwrap();
            let run = lobster.find(order.shipment()).await.unwrap().expect("the last attempt is committed");
            assert_eq!(lobster.run(ship, run).outcome().await.unwrap(), 1, "{how}");
            assert_eq!(happened(&order.world, "paid"), attempts, "{how}");
        }
        assert_eq!(lobster.runs().task("ship").count().await.unwrap(), 2, "what an undone attempt submitted is gone");
    }

    async fn a_key_that_is_taken_leaves_the_transaction_as_it_was(place) {
        let lobster = place.open().task(checkout).task(ship).start().await.unwrap();
        let order = Order::new(&place, "twice");
        let answers = lobster.submit(checkout, order.clone()).await.unwrap().outcome().await.unwrap();
        assert_eq!(answers, ["Conflict"]);
        let run = lobster.find(order.shipment()).await.unwrap().expect("the first submit counts");
        assert_eq!(lobster.run(ship, run).outcome().await.unwrap(), 1);
        // Taken before the transaction began: found, and no conflict for whoever asks for the same.
        let order = Order::new(&place, "plain");
        let before = lobster.submit(ship, order.clone()).key(order.shipment()).await.unwrap();
        lobster.submit(checkout, order.clone()).await.unwrap().outcome().await.unwrap();
        assert_eq!(before.outcome().await.unwrap(), 1);
        assert_eq!((happened(&order.world, "paid"), happened(&order.world, "shipped")), (1, 1));
        // By another input: the step is told, and undone by its own error.
        let order = Order::new(&place, "plain");
        let other = Order { how: "another".into(), ..order.clone() };
        lobster.submit(ship, other).key(order.shipment()).await.unwrap();
        let failed = lobster.submit(checkout, order.clone()).await.unwrap().outcome().await.unwrap_err();
        assert!(failed.to_string().contains("another task or input"), "{failed}");
    }

    async fn what_is_wrong_with_a_submit_is_told_before_anything_is_written(place) {
        let lobster = place.open().task(checkout).task(ship).start().await.unwrap();
        let answers = lobster.submit(checkout, Order::new(&place, "bad")).await.unwrap().outcome().await.unwrap();
        let expected = [vec!["Invalid"; 6], vec!["TooLarge", "submitted"]].concat();
        assert_eq!(answers, expected);
        assert_eq!(lobster.runs().task("ship").count().await.unwrap(), 2);
    }

    async fn a_task_that_nobody_executes_waits(place) {
        let lobster = place.open().task(checkout).task(ship).start().await.unwrap();
        let order = Order::new(&place, "unknown");
        lobster.submit(checkout, order.clone()).await.unwrap().outcome().await.unwrap();
        let run = lobster.find(format!("{} nobody", order.shipment())).await.unwrap().expect("it is submitted");
        assert_eq!(lobster.run(nobody, run).state().await.unwrap(), RunState::Ready);
        let why = lobster.why_not_running(run).await.unwrap();
        assert!(matches!(why, Some(Reason::NoNode { .. })), "{why:?}");
    }

    async fn the_transaction_of_another_store_is_refused_and_goes_on(place) {
        let lobster = place.open().task(checkout).task(ship).start().await.unwrap();
        let same = match place.url().split(':').next() {
            Some("sqlite") => Place::sqlite(),
            Some("memory") => Place::memory(),
            _ => Place::postgres(),
        };
        for other in [same, if place.url().starts_with("memory") { Place::sqlite() } else { Place::memory() }] {
            let client = other.open().connect().await.unwrap();
            let order = Order::new(&place, "strange");
            STRANGERS.lock().unwrap().insert(order.world.clone(), client.clone());
            let answers = lobster.submit(checkout, order.clone()).await.unwrap().outcome().await.unwrap();
            assert_eq!(answers, ["Refused"], "{}", other.url());
            assert_eq!((client.find("strange").await.unwrap(), lobster.find("strange").await.unwrap()), (None, None));
            let run = lobster.find(order.shipment()).await.unwrap().expect("the transaction was committed");
            assert_eq!(lobster.run(ship, run).outcome().await.unwrap(), 1);
        }
    }
}

/// A context without an engine has nowhere to submit to.
#[tokio::test]
async fn a_detached_step_is_told_so() {
    #[step]
    async fn lonely(ctx: &StepCtx) -> Result<String> {
        struct Nothing;
        impl Tx for Nothing {
            fn business(&mut self) -> &mut lobster_core::store::contract::Business {
                self
            }
        }
        Ok(kind(ctx.submit_in(&mut Nothing, ship, Order { world: String::new(), how: String::new() }).key("k").await))
    }
    assert_eq!(lonely(&Ctx::detached()).await.unwrap(), format!("{:?}", ErrorKind::Invalid));
}

/// Transactions that the application begins itself.
mod postgres {
    use super::*;
    use lobster_core::Handle;
    use sqlx::{Connection, Executor, PgConnection, Postgres, Transaction};
    use tokio::task::JoinSet;

    /// A database with orders of its own, a client that executes nothing, and connections of the application.
    struct Shop {
        place: Place,
        client: Client,
    }

    impl Shop {
        async fn open() -> Self {
            let place = Place::postgres();
            let client = place.open().connect().await.unwrap();
            let shop = Self { place, client };
            shop.look().await.execute("CREATE TABLE orders (item TEXT)").await.unwrap();
            shop
        }
        /// As the application: behind a pooler, by it.
        async fn connect(&self) -> PgConnection {
            connect(&self.place).await
        }
        /// To look on, with a session to itself.
        async fn look(&self) -> PgConnection {
            PgConnection::connect(self.place.database()).await.unwrap()
        }
        fn order(&self) -> Order {
            Order::new(&self.place, "plain")
        }
        /// A row of the shop's, and the run of its shipment, in one transaction.
        async fn buy(&self, tx: &mut Transaction<'_, Postgres>, order: &Order) -> Result<Handle<ship>, Error> {
            sqlx::query("INSERT INTO orders VALUES ($1)").bind(&order.world).persistent(false).execute(&mut **tx).await.unwrap();
            self.client.submit_in(tx, ship, order.clone()).key(order.shipment()).await
        }
        async fn orders(&self) -> i64 {
            sqlx::query_scalar("SELECT count(*) FROM orders").fetch_one(&mut self.look().await).await.unwrap()
        }
        /// Waits until somebody waits for somebody else's transaction.
        async fn until_somebody_waits(&self) {
            let mut look = self.look().await;
            let text = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";
            while sqlx::query_scalar::<_, i64>(text).fetch_one(&mut look).await.unwrap() == 0 {}
        }
    }

    /// The way of the engine, without what its URL says to it alone.
    async fn connect(place: &Place) -> PgConnection {
        let url = place.url().split('?').next().unwrap();
        PgConnection::connect(url).await.unwrap()
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_commit_makes_the_run_and_a_nudge_tells_of_it() {
        let shop = Shop::open().await;
        let lobster = shop.place.open().settings(hinted()).task(ship).start().await.unwrap();
        let (order, mut connection) = (shop.order(), shop.connect().await);
        let mut tx = connection.begin().await.unwrap();
        let run = shop.buy(&mut tx, &order).await.unwrap();
        assert_eq!(lobster.find(order.shipment()).await.unwrap(), None, "nobody sees it before");
        assert_eq!(run.state().await.unwrap_err().kind(), ErrorKind::NotFound);
        lobster.nudge();
        tx.commit().await.unwrap();
        shop.client.nudge();
        assert_eq!(run.outcome().await.unwrap(), 1);
        assert_eq!(lobster.find(order.shipment()).await.unwrap(), Some(run.id()));
        assert_eq!((shop.orders().await, happened(&order.world, "shipped")), (1, 1));
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_poll_finds_the_run_that_nobody_told_of() {
        let shop = Shop::open().await;
        let _lobster = shop.place.open().task(ship).start().await.unwrap();
        let (order, mut connection) = (shop.order(), shop.connect().await);
        let mut tx = connection.begin().await.unwrap();
        let run = shop.buy(&mut tx, &order).await.unwrap();
        tx.commit().await.unwrap();
        assert_eq!(run.outcome().await.unwrap(), 1);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_transaction_that_is_rolled_back_or_dropped_leaves_no_run() {
        let shop = Shop::open().await;
        for dropped in [false, true] {
            let (order, mut connection) = (shop.order(), shop.connect().await);
            let mut tx = connection.begin().await.unwrap();
            let run = shop.buy(&mut tx, &order).await.unwrap();
            if dropped {
                drop(tx)
            } else {
                tx.rollback().await.unwrap()
            }
            assert_eq!(shop.client.find(order.shipment()).await.unwrap(), None);
            assert_eq!(run.state().await.unwrap_err().kind(), ErrorKind::NotFound);
            assert!(matches!(run.outcome().await, Err(RunFailed::Purged)));
            // The key is as free as ever, and the connection goes on.
            let mut tx = connection.begin().await.unwrap();
            let other = shop.buy(&mut tx, &order).await.unwrap();
            assert_ne!(other.id(), run.id());
            drop(tx);
            // A savepoint that is rolled back takes the run along, and leaves the rest.
            let mut tx = connection.begin().await.unwrap();
            let mut inner = tx.begin().await.unwrap();
            shop.buy(&mut inner, &order).await.unwrap();
            inner.rollback().await.unwrap();
            tx.commit().await.unwrap();
            assert_eq!(shop.client.find(order.shipment()).await.unwrap(), None);
        }
        assert_eq!(shop.orders().await, 0);
        assert_eq!(shop.client.runs().count().await.unwrap(), 0);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_conflict_spoils_nothing() {
        let shop = Shop::open().await;
        let (order, mut connection) = (shop.order(), shop.connect().await);
        let mut tx = connection.begin().await.unwrap();
        let first = shop.buy(&mut tx, &order).await.unwrap();
        assert_eq!(shop.buy(&mut tx, &order).await.unwrap().id(), first.id());
        let other = Order { how: "another".into(), ..order.clone() };
        assert_eq!(shop.buy(&mut tx, &other).await.unwrap_err().kind(), ErrorKind::Conflict);
        let large = Order { how: "x".repeat(limits::PAYLOAD_BYTES), ..order.clone() };
        assert_eq!(shop.buy(&mut tx, &large).await.unwrap_err().kind(), ErrorKind::TooLarge);
        let bad = shop.client.submit_in(&mut tx, ship, order.clone()).key("a\0b").await.unwrap_err();
        assert_eq!(bad.kind(), ErrorKind::Invalid);
        tx.commit().await.unwrap();
        assert_eq!((shop.orders().await, shop.client.runs().count().await.unwrap()), (4, 1));
        // Of another transaction, by now.
        let mut tx = connection.begin().await.unwrap();
        assert_eq!(shop.buy(&mut tx, &order).await.unwrap().id(), first.id());
        assert_eq!(shop.buy(&mut tx, &other).await.unwrap_err().kind(), ErrorKind::Conflict);
        tx.commit().await.unwrap();
        assert_eq!((shop.orders().await, shop.client.runs().count().await.unwrap()), (6, 1));
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_key_of_an_open_transaction_is_waited_for() {
        let shop = Shop::open().await;
        for (first_commits, second_commits) in [(true, true), (true, false), (false, true), (false, false)] {
            let (order, mut one, mut two) = (shop.order(), shop.connect().await, shop.connect().await);
            let mut first = one.begin().await.unwrap();
            let mut second = two.begin().await.unwrap();
            let mine = shop.buy(&mut first, &order).await.unwrap().id();
            let waits = async { shop.buy(&mut second, &order).await.unwrap().id() };
            let ends = async {
                shop.until_somebody_waits().await;
                if first_commits { first.commit().await.unwrap() } else { first.rollback().await.unwrap() }
            };
            let (theirs, ()) = tokio::join!(waits, ends);
            assert_eq!(theirs == mine, first_commits);
            if second_commits {
                second.commit().await.unwrap()
            } else {
                second.rollback().await.unwrap()
            }
            let expected = (first_commits || second_commits).then_some(theirs);
            assert_eq!(shop.client.find(order.shipment()).await.unwrap(), expected, "{first_commits} {second_commits}");
        }
        assert_eq!(shop.orders().await, 4, "each row with its transaction");
        assert_eq!(shop.client.runs().count().await.unwrap(), 3);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_submit_outside_finds_the_run_of_the_transaction_that_it_waited_for() {
        let shop = Shop::open().await;
        let (order, mut connection) = (shop.order(), shop.connect().await);
        let mut tx = connection.begin().await.unwrap();
        let mine = shop.buy(&mut tx, &order).await.unwrap().id();
        let other = Order { how: "another".into(), ..order.clone() };
        let waits = async { shop.client.submit(ship, other).key(order.shipment()).await };
        let ends = async {
            shop.until_somebody_waits().await;
            tx.commit().await.unwrap();
        };
        let (answer, ()) = tokio::join!(waits, ends);
        assert_eq!(answer.unwrap_err().kind(), ErrorKind::Conflict);
        assert_eq!(shop.client.find(order.shipment()).await.unwrap(), Some(mine));
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_lock_timeout_of_the_caller_ends_the_wait() {
        let shop = Shop::open().await;
        let (order, mut one, mut two) = (shop.order(), shop.connect().await, shop.connect().await);
        let mut first = one.begin().await.unwrap();
        shop.buy(&mut first, &order).await.unwrap();
        let mut second = two.begin().await.unwrap();
        second.execute("SET LOCAL lock_timeout = '20ms'").await.unwrap();
        assert_eq!(shop.buy(&mut second, &order).await.unwrap_err().kind(), ErrorKind::Unavailable);
        second.rollback().await.unwrap();
        first.commit().await.unwrap();
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_snapshot_that_is_too_old_for_the_key_is_a_serialization_failure() {
        let shop = Shop::open().await;
        let (order, mut connection) = (shop.order(), shop.connect().await);
        let mut tx = connection.begin_with("BEGIN ISOLATION LEVEL REPEATABLE READ").await.unwrap();
        tx.execute("SELECT FROM orders").await.unwrap();
        let before = shop.client.submit(ship, order.clone()).key(order.shipment()).await.unwrap();
        assert_eq!(shop.buy(&mut tx, &order).await.unwrap_err().kind(), ErrorKind::Unavailable);
        tx.rollback().await.unwrap();
        let mut tx = connection.begin_with("BEGIN ISOLATION LEVEL REPEATABLE READ").await.unwrap();
        assert_eq!(shop.buy(&mut tx, &order).await.unwrap().id(), before.id());
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn outside_of_a_transaction_nothing_is_written() {
        let shop = Shop::open().await;
        let (order, mut connection) = (shop.order(), shop.connect().await);
        let refused = async |connection: &mut PgConnection| {
            let answer = shop.client.submit_in(connection, ship, order.clone()).key(order.shipment()).await;
            assert_eq!(answer.unwrap_err().kind(), ErrorKind::Refused);
            assert_eq!(shop.client.find(order.shipment()).await.unwrap(), None);
        };
        refused(&mut connection).await;
        // Many at once: behind a pooler, each message of one may go to the session that another has just used.
        let mut many = JoinSet::new();
        for _ in 0..16 {
            let (client, order, mut connection) = (shop.client.clone(), shop.order(), shop.connect().await);
            many.spawn(async move {
                let key = order.shipment();
                client.submit_in(&mut connection, ship, order).key(key).await.unwrap_err()
            });
        }
        while let Some(error) = many.join_next().await {
            let error = error.unwrap();
            assert!(error.to_string().contains("not inside of a transaction"), "{error}");
        }
        // One that sqlx believes to be inside of a transaction, and is not any more.
        let mut tx = connection.begin().await.unwrap();
        tx.execute("COMMIT").await.unwrap();
        refused(&mut tx).await;
        drop(tx);
        // One that it does not know to be inside.
        let mut connection = shop.connect().await;
        connection.execute("BEGIN").await.unwrap();
        let run = shop.client.submit_in(&mut connection, ship, order.clone()).key(order.shipment()).await.unwrap();
        connection.execute("COMMIT").await.unwrap();
        assert_eq!(shop.client.find(order.shipment()).await.unwrap(), Some(run.id()));
        assert_eq!(run.state().await.unwrap(), RunState::Ready);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn the_transaction_of_another_database_is_refused_and_goes_on() {
        let shop = Shop::open().await;
        let stranger = Place::postgres();
        let mut connection = connect(&stranger).await;
        let order = shop.order();
        for opened in [false, true] {
            if opened {
                stranger.open().connect().await.unwrap();
            }
            let mut tx = connection.begin().await.unwrap();
            let answer = shop.client.submit_in(&mut tx, ship, order.clone()).key(order.shipment()).await;
            assert_eq!(answer.unwrap_err().kind(), ErrorKind::Refused);
            tx.execute("CREATE TABLE IF NOT EXISTS goes_on (n INT)").await.unwrap();
            tx.commit().await.unwrap();
        }
        let theirs = stranger.open().connect().await.unwrap();
        assert_eq!((theirs.runs().count().await.unwrap(), shop.client.runs().count().await.unwrap()), (0, 0));
        // Nor does a client of another store take it.
        for place in [Place::memory(), Place::sqlite()] {
            let client = place.open().connect().await.unwrap();
            let mut tx = connection.begin().await.unwrap();
            let answer = client.submit_in(&mut tx, ship, order.clone()).await;
            assert_eq!(answer.unwrap_err().kind(), ErrorKind::Refused);
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn the_settings_of_the_transaction_stay_as_they_are() {
        let shop = Shop::open().await;
        let (order, mut connection) = (shop.order(), shop.connect().await);
        let mut tx = connection.begin().await.unwrap();
        tx.execute("SET LOCAL search_path = ''; SET LOCAL synchronous_commit = local; SET LOCAL lock_timeout = '7s'")
            .await
            .unwrap();
        shop.client.submit_in(&mut tx, ship, order.clone()).key(order.shipment()).await.unwrap();
        for (name, expected) in [("search_path", "\"\""), ("synchronous_commit", "local"), ("lock_timeout", "7s")] {
            let setting = sqlx::query_scalar::<_, String>("SELECT current_setting($1)").bind(name).persistent(false);
            let found = setting.fetch_one(&mut *tx).await.unwrap();
            assert_eq!(found, expected, "{name}");
        }
        tx.commit().await.unwrap();
        assert!(shop.client.find(order.shipment()).await.unwrap().is_some());
    }
}
