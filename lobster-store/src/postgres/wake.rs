//! Hints between processes: LISTEN and NOTIFY.
//!
//! Invariant: a hint never travels in a transaction that writes, and missing one costs a poll and no more.
//!
//! NOTIFY takes a lock of the whole database while it commits. So one task says everything that was hinted since it last spoke, in
//! one notification, and not more often than every few milliseconds.

use super::{
    Postgres,
    failure::Stage,
    newest::{Newest, Timeline},
    options::Options,
    pool::{self, Pool},
    sql::Args,
};
use crate::contract::Wake;
use async_trait::async_trait;
use sqlx::{
    Executor,
    postgres::{PgConnectOptions, PgListener, PgPool, PgPoolOptions},
};
use std::{
    sync::{
        Arc, Mutex, PoisonError, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tokio::sync::{Notify, watch};

/// Between two notifications of one process.
const BREATH: Duration = Duration::from_millis(5);

/// Before a listener that lost its server tries again.
const AGAIN: Duration = Duration::from_secs(1);

/// A line on which nothing was heard for so long is asked whether there is still anybody: between two hosts it may have been cut without a
/// word.
const SILENCE: Duration = Duration::from_secs(30);

/// How long the answer may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// A look costs the server a statement: while hints are heard, an idle node takes every other one only.
const STRIDE: u32 = 2;

/// The hints of one open store.
pub(super) struct Hints {
    /// Are others heard at this moment, as far as anybody knows?
    heard: AtomicBool,
    count: watch::Sender<u64>,
    bell: Arc<Notify>,
}

impl Hints {
    /// Begins to listen, and to speak. What is said from now on is heard, if the server can be reached.
    pub(super) async fn new(options: &Options, name: &str, newest: &Arc<Newest>, pool: &Arc<Pool>) -> Arc<Self> {
        let hints = Arc::new(Self { heard: AtomicBool::new(false), count: watch::Sender::new(0), bell: Arc::default() });
        // Fifty bytes of a long name are enough: whoever hears of others looks once too often.
        let channel = format!("lobster_{:.50}", options.schema);
        if !options.pooled || options.has_direct {
            let ear = Ear::new(pool::named(&options.direct, false, name), newest.clone(), channel.clone(), name.to_owned());
            let listener = pool::timeout(AGAIN, ear.open()).await.flatten();
            if listener.is_none() {
                tracing::warn!("hints of other processes cannot be heard yet: their work is found by polling");
            }
            spawn(ear.listen(Arc::downgrade(&hints), listener));
        }
        spawn(speak(Arc::downgrade(&hints), hints.bell.clone(), Arc::downgrade(pool), channel, name.to_owned()));
        hints
    }

    fn stir(&self) {
        self.count.send_modify(|count| *count += 1);
    }
}

impl Drop for Hints {
    fn drop(&mut self) {
        // The speaker looks up and finds nobody.
        self.bell.notify_one();
    }
}

#[allow(clippy::disallowed_methods, reason = "these tasks change nothing that anybody sees")]
pub(super) fn spawn(task: impl Future<Output = ()> + Send + 'static) {
    tokio::spawn(task);
}

async fn speak(hints: Weak<Hints>, bell: Arc<Notify>, pool: Weak<Pool>, channel: String, name: String) {
    loop {
        bell.notified().await;
        let (Some(_), Some(pool)) = (hints.upgrade(), pool.upgrade()) else { return };
        let args = || Args::default().with(channel.as_str()).with(name.as_str()).done();
        // Whoever misses it polls.
        pool.query(Stage::Read, "SELECT pg_notify($1, $2)", args).await.ok();
        super::pause(BREATH).await;
    }
}

/// What a listener needs.
struct Ear {
    options: PgConnectOptions,
    newest: Arc<Newest>,
    /// Of the server that is listened to.
    timeline: Arc<Mutex<Option<Timeline>>>,
    channel: String,
    name: String,
}

impl Ear {
    fn new(options: PgConnectOptions, newest: Arc<Newest>, channel: String, name: String) -> Self {
        Self { options, newest, timeline: Arc::default(), channel, name }
    }

    /// A line of its own: one that died without a word stays in its driver's hands for as long as the system believes in it.
    fn line(&self) -> PgPool {
        let (measure, found) = (self.newest.clone(), self.timeline.clone());
        let lines = PgPoolOptions::new().max_connections(1).after_connect(move |connection, _| {
            let (measure, found) = (measure.clone(), found.clone());
            Box::pin(async move {
                let admitted = measure.admit(connection).await.map_err(|failed| sqlx::Error::Protocol(failed.to_string()))?;
                *found.lock().unwrap_or_else(PoisonError::into_inner) = admitted;
                Ok(())
            })
        });
        lines.connect_lazy_with(self.options.clone())
    }

    async fn open(&self) -> Option<PgListener> {
        let mut listener = PgListener::connect_with(&self.line()).await.ok()?;
        listener.listen(&self.channel).await.ok()?;
        Some(listener)
    }

    async fn listen(self, hints: Weak<Hints>, mut listener: Option<PgListener>) {
        while hints.strong_count() > 0 {
            if let Some(listener) = &mut listener {
                hints.upgrade().inspect(|hints| hints.heard.store(true, Ordering::Relaxed));
                while let Some(said) = self.hear(&hints, listener).await {
                    match hints.upgrade() {
                        None => return,
                        Some(hints) if said != self.name => hints.stir(),
                        Some(_) => {}
                    }
                }
            }
            hints.upgrade().inspect(|hints| hints.heard.store(false, Ordering::Relaxed));
            drop(listener.take());
            super::pause(AGAIN).await;
            listener = self.open().await;
            // What was said meanwhile is not heard.
            if let (Some(_), Some(hints)) = (&listener, hints.upgrade()) {
                hints.stir();
            }
        }
    }

    /// What was said; empty after the connection was lost and made anew. `None`: it is lost, or leads to a server that nobody speaks to any more.
    async fn hear(&self, hints: &Weak<Hints>, listener: &mut PgListener) -> Option<String> {
        let mut silent = Duration::ZERO;
        loop {
            if silent >= SILENCE {
                silent = Duration::ZERO;
                let answer = pool::timeout(PATIENCE, listener.execute("SELECT")).await;
                if !matches!(answer, Some(Ok(_))) {
                    return None;
                }
            }
            match pool::timeout(AGAIN, listener.try_recv()).await {
                Some(Ok(Some(said))) => return Some(said.payload().to_owned()),
                Some(Ok(None)) => return Some(String::new()),
                Some(Err(_)) => return None,
                // Nobody may be left to listen for.
                None if hints.strong_count() == 0 => return Some(String::new()),
                None if !self.newest.is(*self.timeline.lock().unwrap_or_else(PoisonError::into_inner)) => return None,
                None => silent += AGAIN,
            }
        }
    }
}

#[async_trait]
impl Wake for Postgres {
    fn hint(&self) {
        self.hints.stir();
        self.hints.bell.notify_one();
    }

    fn hints(&self) -> u64 {
        *self.hints.count.borrow()
    }

    async fn hinted(&self, seen: u64) -> u64 {
        let mut count = self.hints.count.subscribe();
        loop {
            let now = *count.borrow_and_update();
            if now != seen {
                return now;
            }
            if count.changed().await.is_err() {
                return now;
            }
        }
    }

    fn stride(&self) -> u32 {
        if self.hints.heard.load(Ordering::Relaxed) { STRIDE } else { 1 }
    }
}
