//! Ctrl-C and its relatives, as values. They are listened to from the first moment, so that none is missed.

/// Which one came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interrupt {
    /// Ctrl-C.
    Keyboard,
    /// A polite request from another process.
    Terminate,
}

impl Interrupt {
    pub fn name(self) -> &'static str {
        match self {
            Interrupt::Keyboard => "interrupted",
            Interrupt::Terminate => "asked to terminate",
        }
    }

    /// 128 and the number of the signal, as shells have it.
    pub fn exit_code(self) -> u8 {
        match self {
            Interrupt::Keyboard => 130,
            Interrupt::Terminate => 143,
        }
    }
}

#[cfg(unix)]
pub struct Interrupts {
    keyboard: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
}

#[cfg(unix)]
impl Interrupts {
    pub fn listen() -> std::io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Self { keyboard: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
    }

    pub async fn next(&mut self) -> std::io::Result<Interrupt> {
        tokio::select! {
            _ = self.keyboard.recv() => Ok(Interrupt::Keyboard),
            _ = self.terminate.recv() => Ok(Interrupt::Terminate),
        }
    }
}

#[cfg(not(unix))]
pub struct Interrupts;

#[cfg(not(unix))]
impl Interrupts {
    pub fn listen() -> std::io::Result<Self> {
        Ok(Self)
    }

    pub async fn next(&mut self) -> std::io::Result<Interrupt> {
        tokio::signal::ctrl_c().await.map(|()| Interrupt::Keyboard)
    }
}
