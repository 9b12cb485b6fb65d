//! Processes of a test that are stopped and go on.

use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use std::process::Child;

fn pid(child: &Child) -> Pid {
    Pid::from_raw(i32::try_from(child.id()).expect("a pid is small")).expect("a child has one")
}

/// Tells it so.
pub fn tell(child: &Child, signal: Signal) {
    kill_process(pid(child), signal).expect("it is not waited for yet");
}

/// Waits until a child has stopped itself; `false`: it has ended.
pub fn stopped(child: &Child) -> bool {
    let (_, status) = waitpid(Some(pid(child)), WaitOptions::UNTRACED).expect("a child").expect("it is waited for");
    status.stopped()
}

/// Lets it go on.
pub fn go_on(child: &Child) {
    tell(child, Signal::CONT);
}
