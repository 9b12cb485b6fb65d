//! A dry run of the code over what is stored: it lists the runs that the code would not go on with.
//!
//! Invariant: nothing is executed, claimed or written.

use crate::{
    engine::{Outcome, Stores},
    image::{self, Image, Known},
    name,
    registry::{Registered, Registry},
    spec::Spec,
    state::{StateType, migrate::Unfit},
};
use lobster_store::contract::{RunFilter, RunId, RunState, RunSummary, record::Came};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

/// What [`Builder::check`](crate::Builder::check) found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// Runs that have not ended, all of which were looked at.
    pub runs: u64,
    /// What would fail, by run in the order of their ids.
    pub findings: Vec<Finding>,
}

impl Report {
    /// Findings that would keep a run from going on; without what could not be checked.
    pub fn failures(&self) -> impl Iterator<Item = &Finding> {
        self.findings.iter().filter(|finding| finding.kind != FindingKind::Unchecked)
    }
}

/// One thing that does not fit.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// The run.
    pub run: RunId,
    /// Its key.
    pub key: Option<String>,
    /// Its task.
    pub task: String,
    /// What kind of thing.
    pub kind: FindingKind,
    /// What exactly.
    pub message: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "run {}", self.run)?;
        if let Some(key) = &self.key {
            write!(f, " ({key})")?;
        }
        write!(f, " of `{}`: {}", self.task, self.message)
    }
}

/// Kinds of findings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FindingKind {
    /// No registered task has its name, or only one of a lower version: it waits.
    Task,
    /// A record is damaged: it would be held.
    Corrupt,
    /// Its input does not decode: it would be held.
    Input,
    /// A state does not decode or migrate: it would be held.
    State,
    /// A state is of a newer version: it waits for a node that knows it.
    NewerState,
    /// A recorded result does not decode as what its step returns: it would be held.
    Result,
    /// A state or a result whose type is not known from the steps that its task lists (`#[task(steps = [..])]`).
    Unchecked,
}

/// Looks at every run that has not ended.
pub(crate) async fn check(stores: &Stores, registry: &Registry) -> Outcome<Report> {
    let mut report = Report::default();
    let states = vec![RunState::Ready, RunState::Running, RunState::Held];
    let mut filter = RunFilter { states, ..RunFilter::default() };
    loop {
        let page = stores.tiers.catalog.list(filter.clone(), 500).await?;
        let Some(last) = page.last() else { return Ok(report) };
        filter.after = Some(last.id);
        for summary in page {
            report.runs += 1;
            let mut found = |kind, message: String| {
                let (key, task) = (summary.key.clone(), summary.task.task.clone());
                report.findings.push(Finding { run: summary.id, key, task, kind, message });
            };
            let Some(task) = task_of(registry, &summary, &mut found) else { continue };
            // It may have ended or gone since the list was read.
            let Some(stored) = stores.tiers.catalog.read(summary.id).await? else { continue };
            match image::fold(summary.id, &stored.recording) {
                Ok(image) => check_run(task, image, &mut found),
                Err(damage) => found(FindingKind::Corrupt, damage.to_string()),
            }
        }
    }
}

fn task_of<'r>(registry: &'r Registry, run: &RunSummary, found: &mut impl FnMut(FindingKind, String)) -> Option<&'r Registered> {
    match registry.get(&run.task.task) {
        None => found(FindingKind::Task, "no such task is registered".into()),
        Some(task) if task.version < run.task.version => {
            found(FindingKind::Task, format!("it is of version {}, the registered task of {}", run.task.version, task.version));
        }
        Some(task) => return Some(task),
    }
    None
}

fn check_run(task: &Registered, image: Image, found: &mut impl FnMut(FindingKind, String)) {
    if let Err(error) = task.fits(&image.input) {
        found(FindingKind::Input, format!("its input does not fit: {error}"));
    }
    let steps = task.options.steps.unwrap_or_default();
    check_results(steps, &image, found);
    let known: Vec<&StateType> = steps.iter().flat_map(|spec| spec.states).collect();
    for (name, content) in image.states {
        let of_name = known.iter().find(|known| known.name == Some(name.as_str()));
        // One that is named at its call may be of any type that is.
        let at_the_call: Vec<_> = known.iter().filter(|known| known.name.is_none()).collect();
        let fits = match (of_name, &at_the_call[..]) {
            (Some(known), _) => Some((known.fits)(content)),
            (None, [only]) => Some((only.fits)(content)),
            (None, several) => several.iter().any(|known| (known.fits)(content.clone()).is_ok()).then_some(Ok(())),
        };
        match fits {
            None => found(FindingKind::Unchecked, format!("state `{name}` is of no type that the task's list of steps tells of")),
            Some(Ok(())) => {}
            Some(Err(Unfit::Newer(version))) => {
                found(FindingKind::NewerState, format!("state `{name}` is of version {version}, which is newer than this code"));
            }
            Some(Err(Unfit::Misfit(why))) => found(FindingKind::State, format!("state `{name}` does not fit: {why}")),
        }
    }
}

fn check_results(steps: &[&Spec], image: &Image, found: &mut impl FnMut(FindingKind, String)) {
    let value = |known: &'_ Known| match known.result.as_ref()? {
        (_, Came::Value(value)) => Some(value.clone()),
        (_, Came::Failure(_)) => None,
    };
    let values: BTreeMap<_, _> = image.known.iter().filter_map(|(step, known)| Some((step, value(known)?))).collect();
    let mut unchecked = BTreeSet::new();
    for (step, value) in values {
        match steps.iter().find(|spec| spec.name == step.name).and_then(|spec| spec.value) {
            None => unchecked.extend([&step.name]),
            Some(known) => {
                if let Err(error) = (known.fits)(&value) {
                    found(FindingKind::Result, format!("the result of {} does not fit: {error}", name::display(step)));
                }
            }
        }
    }
    for step in unchecked {
        found(FindingKind::Unchecked, format!("the task's list of steps does not tell what `{step}` returns"));
    }
}
