//! Processes of a test that are stopped and go on.
//!
//! Invariant: none outlives its test.

use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use std::{
    ops::{Deref, DerefMut},
    process::Child,
};

/// A child that does not outlive its test, stopped or not.
pub struct Bound(pub Child);

impl Deref for Bound {
    type Target = Child;
    fn deref(&self) -> &Child {
        &self.0
    }
}

impl DerefMut for Bound {
    fn deref_mut(&mut self) -> &mut Child {
        &mut self.0
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        // Most have ended.
        self.0.kill().and_then(|()| self.0.wait()).ok();
    }
}

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
