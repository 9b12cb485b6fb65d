//! Installations: schemas beside one another, who makes them, who may use them. A superuser makes them, by the pooler if the run has one.

use crate::kit::*;
use lobster_servers::{
    psql,
    shared::{self, by_the_pooler},
};
use lobster_store::{
    Tiers,
    contract::{Beat, Boot, Failed, Folded, Incarnation, Renewed, Restored, RunFilter},
    postgres::{self, Options, Postgres, Role},
};

async fn verify(url: &str, role: Role) -> Result<(), Failed> {
    Postgres::verify(&Options::from_url(url).expect("a URL"), role).await
}

#[test]
fn two_installations_in_one_database_do_not_see_each_other() {
    let url = shared::postgres();
    block_on(async {
        let way = by_the_pooler(&url);
        let (here, there) = (process(&way).await, process(&with(&way, "lobster_schema=orders")).await);
        let grant = owner(&here.tiers, incarnation(1), 1).await.remove(0);
        assert_eq!(there.tiers.catalog.count(RunFilter::default()).await.expect("a count is answered"), 0);
        assert_eq!(there.tiers.members.peers().await.expect("peers are answered"), []);
        create(&there.tiers, 1).await;
        join(&there.tiers, incarnation(2)).await;
        let other = claim(&there.tiers, incarnation(2), 9).await;
        assert_eq!(other.len(), 1, "the same id and the same key, another run");
        append_one(&here.tiers, incarnation(1), &grant, 1, true).await;
        let stored = there.tiers.catalog.read(grant.run).await.expect("a read is answered").expect("it has one of its own");
        assert_eq!(stored.summary.tail, 0);
        let mut eye = Session::of(&url).await;
        let ids = "SELECT (a.value <> b.value)::text FROM lobster.meta a, orders.meta b WHERE a.name = 'installation' AND b.name = a.name";
        assert_eq!(eye.ask(ids).await, "true");
        let (heard, spoke) = (here.tiers.wake.hints(), there.tiers.wake.hints());
        there.tiers.wake.hint();
        soon(there.tiers.wake.hinted(spoke)).await;
        create(&there.tiers, 2).await;
        assert_eq!(here.tiers.wake.hints(), heard, "nor do they wake each other");
    });
}

#[test]
fn many_processes_may_make_the_schema_at_once() {
    let url = by_the_pooler(&shared::postgres());
    block_on(async {
        let opens: Vec<_> = (0..8)
            .map(|_| {
                let url = url.clone();
                tokio::spawn(async move { process(&url).await })
            })
            .collect();
        let mut all = Vec::new();
        for opens in opens {
            all.push(soon(opens).await.expect("it opens"));
        }
        create(&all[0].tiers, 1).await;
        for process in &all {
            assert_eq!(process.tiers.catalog.find("key-1").await.expect("a key is looked up"), Some(run_id(1)));
        }
    });
}

#[test]
fn a_process_that_may_not_migrate_says_what_to_apply_and_writes_nothing() {
    let url = shared::postgres();
    let way = by_the_pooler(&url);
    let careful = with(&way, "lobster_migrate=false");
    block_on(async {
        let mut eye = Session::of(&url).await;
        for failed in [failed(try_process(&careful).await), failed(verify(&way, Role::Worker).await)] {
            assert!(matches!(&failed, Failed::Refused(why) if why.contains("postgres::sql(\"lobster\", 0)")), "{failed}");
            assert_eq!(eye.ask("SELECT to_regnamespace('lobster')::text").await, "");
        }
        psql::sql(&url, &postgres::sql(postgres::SCHEMA, 0)).expect("a person can apply it");
        assert_eq!(postgres::sql(postgres::SCHEMA, 1), "", "there is nothing more to do");
        verify(&way, Role::Worker).await.expect("everything is there");
        let process = process(&careful).await;
        create(&process.tiers, 1).await;
    });
}

#[test]
fn roles_can_do_what_they_are_for_and_nothing_else() {
    let url = shared::postgres();
    psql::sql(&url, &postgres::sql(postgres::SCHEMA, 0)).expect("a person can apply it");
    let users = ["owner", "worker", "submit", "view", "nobody"].map(|name| (name, format!("{name}_{}", database(&url))));
    let user = |name: &str| {
        let (_, user) = users.iter().find(|(role, _)| *role == name).expect("it is one of them");
        by_the_pooler(&role(&url, user))
    };
    psql::sql(&url, &postgres::roles(postgres::SCHEMA)).expect("a superuser can apply it");
    psql::sql(&url, &postgres::roles(postgres::SCHEMA)).expect("and again");
    for (role, user) in &users {
        let group = if *role == "nobody" { String::new() } else { format!("IN ROLE lobster_{role}") };
        psql::sql(&url, &format!("CREATE ROLE {user} LOGIN {group};")).expect("a superuser makes users");
    }
    block_on(async {
        verify(&user("worker"), Role::Worker).await.expect("a worker is a worker");
        verify(&user("submit"), Role::Submit).await.expect("a submitter is a submitter");
        verify(&user("view"), Role::View).await.expect("a viewer is a viewer");
        let less = failed(verify(&user("submit"), Role::Worker).await);
        assert!(
            matches!(&less, Failed::Refused(why) if why.contains("INSERT on deltas") && why.contains("DELETE on runs")),
            "{less}"
        );
        let none = failed(try_process(&user("nobody")).await);
        assert!(matches!(&none, Failed::Refused(why) if why.contains("permission denied for schema lobster")), "{none}");

        let submits = process(&user("submit")).await;
        create(&submits.tiers, 1).await;
        create(&submits.tiers, 2).await;
        let works = process(&user("worker")).await;
        let me = incarnation(1);
        join(&works.tiers, me).await;
        let grant = claim(&works.tiers, me, 1).await.remove(0);
        submits.tiers.journal.cancel(grant.run, outcome(grant.run), HostClock::now()).await.expect("a submitter may cancel");
        let more = failed(submits.tiers.journal.append(batch(me, true, vec![offer(&grant, 1)])).await);
        assert!(matches!(&more, Failed::Refused(why) if why.contains("permission denied for table")), "{more}");
        append(&works.tiers, batch(me, true, vec![ends(&grant, 0, finish(grant.run, HostClock::now()))])).await;

        let views = process(&user("view")).await;
        let found = views.tiers.catalog.outcomes(&[grant.run]).await.expect("a viewer may read").remove(0);
        assert!(found.is_some_and(|ended| ended.is_some()));
        let writes = failed(views.tiers.journal.submit(vec![new_run(3)]).await);
        assert!(matches!(&writes, Failed::Refused(why) if why.contains("permission denied for table")), "{writes}");

        let mut worker = Session::of(&user("worker")).await;
        for text in [
            "CREATE TABLE lobster.mine (n int)",
            "DROP TABLE lobster.runs",
            "TRUNCATE lobster.runs",
            "ALTER TABLE lobster.runs ADD n int",
        ] {
            assert!(worker.try_tell(text).await.is_err(), "a worker must not {text}");
        }
        let mut owner = Session::of(&user("owner")).await;
        owner.tell("ALTER TABLE lobster.runs ADD n int").await;
        // A prepared statement of before the change goes on working.
        create(&submits.tiers, 4).await;
        assert_eq!(claim(&works.tiers, me, 4).await.len(), 2);
    });
}

/// Every kind of call, each through a statement that its connection may have prepared before: none fails.
async fn everything(tiers: &Tiers, me: Incarnation, number: u64) {
    let run = create(tiers, number).await;
    let grant = claim(tiers, me, 1).await.remove(0);
    assert_eq!(grant.run, run);
    let beat = Beat { seq: number, at: Boot::default(), lapsed: false };
    assert_eq!(tiers.members.renew(me, beat).await.expect("a renewal is answered"), Renewed::Good);
    append_one(tiers, me, &grant, 1, true).await;
    append_one(tiers, me, &grant, 2, false).await;
    let restored = tiers.journal.restore(me, std::slice::from_ref(&grant)).await.expect("a restore is answered");
    assert!(matches!(&restored[0], Restored::Recording(recording) if recording.tail == 2));
    assert_eq!(tiers.journal.fold(fold(&grant, me, 2)).await.expect("a fold is answered"), Folded::Done);
    assert!(tiers.journal.attend(me).await.expect("an attend is answered").is_empty());
    let stored = tiers.catalog.read(run).await.expect("a read is answered").expect("it is there");
    assert_eq!((stored.summary.tail, stored.summary.task), (2, task()));
    assert_eq!(tiers.catalog.list(RunFilter::default(), 100).await.expect("a list is answered").len() as u64, number);
    assert_eq!(tiers.members.peers().await.expect("peers are answered").len(), 1);
    assert!(append(tiers, batch(me, true, vec![ends(&grant, 2, finish(run, HostClock::now()))])).await[0].then);
    assert!(tiers.catalog.outcomes(&[run]).await.expect("outcomes are answered")[0].as_ref().is_some_and(Option::is_some));
}

/// Without a pooler, whose sessions have nothing prepared.
#[test]
fn a_living_node_notices_nothing_of_tables_that_change_underneath_it() {
    let url = shared::postgres();
    block_on(async {
        let mut person = Session::of(&url).await;
        // One connection, so that it is the one that has prepared everything.
        let process = process(&with(&worker(&url), "lobster_connections=1")).await;
        let me = incarnation(1);
        join(&process.tiers, me).await;
        everything(&process.tiers, me, 1).await;
        let tables = ["runs", "inputs", "deltas", "changes", "manifests", "parts", "outcomes", "nodes", "node_tasks", "meta"];
        let add = tables.map(|table| format!("ALTER TABLE lobster.{table} ADD COLUMN note text DEFAULT 'new';"));
        person.tell(&add.concat()).await;
        everything(&process.tiers, me, 2).await;
        // Types of columns that statements return: what was prepared for the old ones does not fit any more.
        person
            .tell(
                "ALTER TABLE lobster.runs ALTER COLUMN task TYPE varchar, ALTER COLUMN key TYPE varchar, ALTER COLUMN reason TYPE varchar;
                ALTER TABLE lobster.nodes ALTER COLUMN name TYPE varchar; ALTER TABLE lobster.node_tasks ALTER COLUMN task TYPE varchar",
            )
            .await;
        // First of all within a transaction.
        let stored = process.tiers.catalog.read(run_id(2)).await.expect("a read is answered").expect("it is there");
        assert_eq!(stored.summary.task, task());
        everything(&process.tiers, me, 3).await;
        // What a newer binary does that adds something.
        person.tell("BEGIN; ALTER TABLE lobster.runs ADD COLUMN more int8; UPDATE lobster.meta SET value = 2 WHERE name = 'schema'; COMMIT").await;
        everything(&process.tiers, me, 4).await;
        let newer = failed(try_process(&url).await);
        assert!(matches!(newer, Failed::NewerVersion { found: 2, known: 1 }), "{newer}");
    });
}
