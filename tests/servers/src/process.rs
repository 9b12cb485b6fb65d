//! Processes by their number: whose child, in which state, and signals to a whole family.
//!
//! Invariant: a parent is stopped before its children are counted, so that none is born meanwhile.

use crate::wait::{PATIENCE, until};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;

/// The one-letter state and the parent of a process, as `/proc` has them. Readable for every process, whoever it belongs to.
fn look(pid: i32) -> Option<(char, i32)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name comes before, in parentheses, and may hold anything.
    let mut fields = stat.rsplit_once(") ")?.1.split(' ');
    Some((fields.next()?.chars().next()?, fields.next()?.parse().ok()?))
}

/// Neither gone, nor dead and waiting to be collected.
pub(crate) fn lives(pid: i32) -> bool {
    look(pid).is_some_and(|(state, _)| state != 'Z' && state != 'X')
}

fn children(of: i32) -> Vec<i32> {
    let Ok(processes) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = processes.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|pid| look(*pid).is_some_and(|(_, parent)| parent == of)).collect()
}

/// To a process that may be gone already.
pub(crate) fn signal(pid: i32, signal: Signal) {
    if let Some(pid) = Pid::from_raw(pid) {
        let _gone = kill_process(pid, signal);
    }
}

/// Stops a process; returns when it does not run any more.
fn stop(pid: i32) {
    signal(pid, Signal::STOP);
    let stopped = until(PATIENCE, || look(pid).is_none_or(|(state, _)| "TtZX".contains(state)).then_some(()));
    assert!(stopped.is_some(), "process {pid} does not stop");
}

/// Stops a process and its children; returns when none of them runs, with the children.
pub(crate) fn stop_family(parent: i32) -> Vec<i32> {
    stop(parent);
    let children = children(parent);
    children.iter().copied().for_each(stop);
    children
}

/// Lets a stopped process and its children go on, children first.
pub(crate) fn continue_family(parent: i32) {
    children(parent).into_iter().for_each(|child| signal(child, Signal::CONT));
    signal(parent, Signal::CONT);
}
