//! Opening: which store, which tasks, which numbers, which parts. The one place that names products.
//!
//! Invariant: nothing is started before everything that can be checked was checked.

use crate::{
    check::{self, Report},
    client::Client,
    codec::Returned,
    committer,
    engine::{Lobster, Outcome, Shared, Stores},
    error::{BoxError, Error},
    host::{Host, HostRef, OsHost},
    keeper,
    registry::{Registered, Registry, Task, TaskFn},
    settings::Settings,
    watch::{self, Watch},
    worker,
};
use lobster_store::{Tiers, contract::Clock, memory::Memory};
use std::{fmt, future::Future, sync::Arc};

/// What an engine or a client is made of. From [`Lobster::open`].
#[must_use = "nothing is opened before `start` or `connect`"]
pub struct Builder {
    url: String,
    tiers: Option<Tiers>,
    tasks: Vec<Registered>,
    node: Option<String>,
    settings: Settings,
    host: Option<HostRef>,
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("tasks", &self.tasks.iter().map(|task| task.name).collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}

impl Builder {
    pub(crate) fn new(url: &str) -> Self {
        Self { url: url.to_owned(), tiers: None, tasks: Vec::new(), node: None, settings: Settings::default(), host: None }
    }

    /// Registers a task. A name registered twice is an error at [`start`](Builder::start).
    pub fn task<M, Fut>(mut self, task: impl TaskFn<M, Fut>) -> Self
    where
        M: Task,
        Fut: Future + Send + 'static,
        Fut::Output: Returned<Value = M::Output>,
        <Fut::Output as Returned>::Error: Into<BoxError>,
    {
        self.tasks.push(Registered::new(task));
        self
    }

    /// A fixed name for this node, instead of `<host>-<slot>` with the first free slot. Refused while a live process of this host has it.
    pub fn node(mut self, name: impl Into<String>) -> Self {
        self.node = Some(name.into());
        self
    }

    /// Numbers; see [`Settings`].
    pub fn settings(mut self, settings: Settings) -> Self {
        self.settings = settings;
        self
    }

    /// Surroundings other than the process and its tokio runtime: for testing kits.
    pub fn host(mut self, host: Arc<dyn Host>) -> Self {
        self.host = Some(host);
        self
    }

    /// Stores other than those a URL can name: for tiers of one's own, and for testing kits.
    pub fn tiers(mut self, tiers: Tiers) -> Self {
        self.tiers = Some(tiers);
        self
    }

    /// Joins, recovers what a former process of this host left, and executes.
    ///
    /// ```no_run
    /// # use lobster_core::{Ctx, Lobster, Result, task};
    /// # #[task] async fn greet(_ctx: Ctx, name: String) -> Result<String> { Ok(format!("hello {name}")) }
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<()> {
    /// let lobster = Lobster::open("sqlite://shop.db").task(greet).node("till-1").start().await?;
    /// println!("{} executes", lobster.node());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `Invalid`: no tokio runtime, a URL that names no store, settings that cannot work together (the message names the inequality), a
    /// task registered twice, a bad name. `Refused`: a live process has this node's name, or the store is not usable for good.
    /// `NewerVersion`: the database is of a newer version; it was left untouched. `Unavailable`: the store did not answer.
    pub async fn start(self) -> Result<Lobster, Error> {
        let (tasks, node) = (self.tasks, self.node);
        let stores = open(self.url, self.tiers, self.settings, self.host).await?;
        let registry = Registry::build(tasks)?;
        if let Some(node) = &node {
            crate::name::check("the name of the node", node)?;
        }
        let fresh = keeper::fresh(&stores.host);
        let member = keeper::join(&stores.tiers, &stores.settings, &registry, node.clone(), fresh).await?;
        let history = stores.tiers.members.history();
        let client = Client::new(stores.clone());
        let shared = Shared::new(stores, registry, client.clone(), member);
        client.serve(&shared);
        keeper::renew(&shared, 1, history).await;
        let mut watch = Watch::new();
        // A predecessor that is provably dead is revoked before the first claim: its runs go on at once.
        watch.look(&shared).await;
        shared.point("P0");
        let host = shared.host.clone();
        host.spawn_lease(Box::pin(keeper::run(shared.clone(), node, history)))
            .map_err(|error| Error::new(crate::ErrorKind::Unavailable, format!("no thread for the lease: {error}")))?;
        for _ in 0..shared.committer.loops() {
            host.spawn(Box::pin(committer::run(shared.clone())));
        }
        host.spawn(Box::pin(worker::run(shared.clone())));
        host.spawn(Box::pin(watch::run(shared.clone(), watch)));
        tracing::info!(node = %shared.member().name, store = %shared.tiers.label, "joined");
        Ok(Lobster { shared })
    }

    /// Looks at every stored run that has not ended, and lists what would keep this code from going on with it: an unknown task or a
    /// newer version, damaged records, an input, a result or a state that does not decode or migrate, a state of a newer version. Executes
    /// nothing, joins nothing, writes nothing to any run: run it before a deploy, against the database of the old code.
    ///
    /// States and results are checked if their types are known from the steps that a task lists (`#[task(steps = [..])]`); others are
    /// listed as [`Unchecked`](crate::FindingKind::Unchecked), and so is what a step returns that is generic over it.
    ///
    /// # Errors
    /// As [`start`](Builder::start).
    ///
    /// ```
    /// # use lobster_core::{Ctx, Lobster, Result, task};
    /// # #[task]
    /// # async fn checkout(_ctx: Ctx, item: String) -> Result<String> { Ok(item) }
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<()> {
    /// let report = Lobster::open("memory:").task(checkout).check().await?;
    /// for finding in report.failures() {
    ///     eprintln!("{finding}");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn check(self) -> Result<Report, Error> {
        let stores = open(self.url, self.tiers, self.settings, self.host).await?;
        check::check(&stores, &Registry::build(self.tasks)?).await
    }

    /// Opens the store to submit and look; executes nothing and does not join.
    ///
    /// ```no_run
    /// # use lobster_core::{Ctx, Lobster, Result, task};
    /// # #[task] async fn greet(_ctx: Ctx, name: String) -> Result<String> { Ok(format!("hello {name}")) }
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<()> {
    /// let client = Lobster::open("sqlite://shop.db").connect().await?;
    /// let run = client.submit(greet, "world".to_owned()).key("greeting-1").await?; // some other process executes it
    /// println!("{:?}", client.why_not_running(run.id()).await?);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`start`](Builder::start).
    pub async fn connect(self) -> Result<Client, Error> {
        let stores = open(self.url, self.tiers, self.settings, self.host).await?;
        Ok(Client::new(stores))
    }
}

async fn open(url: String, tiers: Option<Tiers>, settings: Settings, host: Option<HostRef>) -> Outcome<Stores> {
    settings.check()?;
    let host: HostRef = match host {
        Some(host) => host,
        None => Arc::new(OsHost::current().ok_or_else(|| Error::invalid("lobster is opened inside a tokio runtime"))?),
    };
    let tiers = match tiers {
        Some(tiers) => tiers,
        None => tiers_of(&url, host.clone()).await?,
    };
    Ok(Stores { host, tiers, settings })
}

/// The stores that a URL names.
async fn tiers_of(url: &str, clock: Arc<dyn Clock>) -> Outcome<Tiers> {
    if url == "memory:" {
        return Ok(Tiers::of(Memory::new(clock), "memory"));
    }
    #[cfg(feature = "sqlite")]
    if let Some(path) =
        url.strip_prefix("sqlite://").or_else(|| url.strip_prefix("sqlite:")).or_else(|| url.ends_with(".db").then_some(url))
    {
        if path.is_empty() {
            return Err(Error::invalid(format!("`{url}` names no file: write `sqlite://shop.db`")));
        }
        let store = lobster_store::sqlite::Sqlite::open(std::path::Path::new(path), clock).await?;
        return Ok(Tiers::of(store, format!("sqlite {path}")));
    }
    #[cfg(feature = "postgres")]
    if url.starts_with("postgres://") || url.starts_with("postgresql://") {
        let options = lobster_store::postgres::Options::from_url(url)?;
        let label = options.to_string();
        // Large, and rarely awaited: whoever starts an engine need not make room for it.
        let store = Box::pin(lobster_store::postgres::Postgres::open(options, clock)).await?;
        return Ok(Tiers::of(store, label));
    }
    Err(Error::invalid(format!(
        "`{}` names no store that this build knows: `memory:`, `sqlite://file.db` (feature `sqlite`) or `postgres://..` (feature `postgres`)",
        redacted(url)
    )))
}

/// A URL without what may be a secret in it.
fn redacted(url: &str) -> String {
    match url.split_once("://") {
        Some((scheme, rest)) if rest.contains('@') => format!("{scheme}://.."),
        _ => url.to_owned(),
    }
}
