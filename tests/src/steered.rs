//! Hosts of tests: one that a test steers by what happens in its world (tasks of the engine that wait, hours that pass at once), one
//! whose clock wakes nobody, and one whose waits are heard of.
//!
//! Invariant: what the world says nothing about is as it is.

use crate::{happen, happened, until};
use lobster_core::{BoxFuture, Host, OsHost};
use lobster_store::contract::{Boot, Clock, Wall};
use std::{sync::Arc, time::Duration};

/// From here on a wait ends only when an hour passes.
const LONG: Duration = Duration::from_secs(20);

/// A pause for breath.
const MOMENT: Duration = Duration::from_millis(5);

/// The host of a world, steered by these happenings:
///
/// - [`HOLD`](Steered::HOLD): tasks that the engine starts from now on wait for as many [`FREE`](Steered::FREE).
/// - [`HOUR`](Steered::HOUR): the wall clock is an hour later, and every long wait is over. Each that ends is an
///   [`AWAKE`](Steered::AWAKE).
#[derive(Debug)]
pub struct Steered {
    os: OsHost,
    world: String,
}

impl Steered {
    /// Tasks wait.
    pub const HOLD: &str = "tasks are held";
    /// Tasks go on.
    pub const FREE: &str = "tasks are free";
    /// An hour passes.
    pub const HOUR: &str = "an hour passes";
    /// A long wait has ended.
    pub const AWAKE: &str = "awake";

    /// The host of a world, on the current runtime.
    pub fn new(world: &str) -> Arc<Self> {
        let os = OsHost::current().expect("tests run inside a runtime");
        Arc::new(Self { os, world: world.to_owned() })
    }
}

impl Clock for Steered {
    fn boot(&self) -> Boot {
        self.os.boot()
    }
    fn wall(&self) -> Wall {
        let hours = u32::try_from(happened(&self.world, Self::HOUR)).expect("tests are shorter");
        self.os.wall().plus(Duration::from_secs(3600) * hours)
    }
}

impl Host for Steered {
    fn spawn(&self, task: BoxFuture<'static, ()>) {
        let (world, holds) = (self.world.clone(), happened(&self.world, Self::HOLD));
        self.os.spawn(Box::pin(async move {
            until(&world, Self::FREE, holds).await;
            task.await;
        }));
    }
    fn spawn_lease(&self, task: BoxFuture<'static, ()>) -> std::io::Result<()> {
        self.os.spawn_lease(task)
    }
    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        if duration < LONG {
            return self.os.sleep(duration);
        }
        let (world, hours) = (self.world.clone(), happened(&self.world, Self::HOUR));
        Box::pin(async move {
            until(&world, Self::HOUR, hours + 1).await;
            happen(&world, Self::AWAKE);
        })
    }
    fn random(&self) -> u64 {
        self.os.random()
    }
}

/// A host on which no wait ends that is longer than a moment: whoever goes on was woken by somebody.
#[derive(Debug)]
pub struct Timeless(OsHost);

impl Timeless {
    /// The host, on the current runtime.
    pub fn new() -> Arc<Self> {
        Arc::new(Self(OsHost::current().expect("tests run inside a runtime")))
    }
}

impl Clock for Timeless {
    fn boot(&self) -> Boot {
        self.0.boot()
    }
    fn wall(&self) -> Wall {
        self.0.wall()
    }
}

impl Host for Timeless {
    fn spawn(&self, task: BoxFuture<'static, ()>) {
        self.0.spawn(task);
    }
    fn spawn_lease(&self, task: BoxFuture<'static, ()>) -> std::io::Result<()> {
        self.0.spawn_lease(task)
    }
    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        match duration < MOMENT {
            true => self.0.sleep(duration),
            false => Box::pin(std::future::pending()),
        }
    }
    fn random(&self) -> u64 {
        self.0.random()
    }
}

/// A host on which a world hears of every wait: `waits 2 s`, by full seconds.
#[derive(Debug)]
pub struct Heard {
    os: OsHost,
    world: String,
}

impl Heard {
    /// The host of a world, on the current runtime.
    pub fn new(world: &str) -> Arc<Self> {
        let os = OsHost::current().expect("tests run inside a runtime");
        Arc::new(Self { os, world: world.to_owned() })
    }
}

impl Clock for Heard {
    fn boot(&self) -> Boot {
        self.os.boot()
    }
    fn wall(&self) -> Wall {
        self.os.wall()
    }
}

impl Host for Heard {
    fn spawn(&self, task: BoxFuture<'static, ()>) {
        self.os.spawn(task);
    }
    fn spawn_lease(&self, task: BoxFuture<'static, ()>) -> std::io::Result<()> {
        self.os.spawn_lease(task)
    }
    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        happen(&self.world, format!("waits {} s", duration.as_secs()));
        self.os.sleep(duration)
    }
    fn random(&self) -> u64 {
        self.os.random()
    }
}
