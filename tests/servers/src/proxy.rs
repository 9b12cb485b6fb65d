//! A TCP proxy that spoils connections: holds, cuts, resets, swallows, delays, and cuts at what a client says.
//!
//! Invariant: without a fault it changes no byte and no order; and what it holds arrives whole once it lets go.

mod connection;
mod held;
mod trap;

use connection::Connection;
use std::{
    collections::BTreeMap,
    net::{Ipv4Addr, SocketAddr},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread::JoinHandle,
    time::Duration,
};
use tokio::{
    net::TcpListener,
    sync::{oneshot, watch},
};
use trap::Trap;

/// The proxy, on a thread of its own: it works for tests with and without a runtime. Dropped, it cuts all connections.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    end: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// What all connections see.
#[derive(Debug)]
struct Shared {
    target: Mutex<SocketAddr>,
    mood: watch::Sender<Mood>,
    trap: Trap,
    /// How many connections of each age there are.
    living: Mutex<BTreeMap<u64, usize>>,
    ended: Condvar,
}

/// What happens to bytes and connections, until told otherwise.
#[derive(Clone, Copy, Debug, Default)]
struct Mood {
    hold_to_server: bool,
    hold_to_client: bool,
    /// Of what clients sent, the last so many bytes.
    hold_back: usize,
    black: bool,
    refuse: bool,
    delay: Duration,
    /// Connections of an earlier age end.
    age: u64,
    end: End,
}

/// How connections end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum End {
    /// Both sides are closed.
    #[default]
    Cut,
    /// Both sides are reset.
    Reset,
    /// The server's side is closed; the client is told nothing.
    HalfOpen,
}

impl Proxy {
    /// A proxy before a server.
    pub fn start(target: SocketAddr) -> Self {
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("127.0.0.1 has a free port");
        let address = listener.local_addr().expect("a bound socket has an address");
        listener.set_nonblocking(true).expect("a socket can be asked not to block");
        let shared = Arc::new(Shared {
            target: Mutex::new(target),
            mood: watch::Sender::default(),
            trap: Trap::default(),
            living: Mutex::default(),
            ended: Condvar::new(),
        });
        let (end, ended) = oneshot::channel();
        let of_thread = shared.clone();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let runtime = runtime.expect("a thread can have a runtime");
            runtime.block_on(async {
                let listener = TcpListener::from_std(listener).expect("the socket does not block");
                tokio::select! {
                    () = accept(listener, of_thread) => {}
                    _ = ended => {}
                }
            });
        });
        Self { address, shared, end: Some(end), thread: Some(thread) }
    }

    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.address
    }

    /// New connections lead elsewhere. What is open stays where it is.
    pub fn lead_to(&self, target: SocketAddr) {
        *self.shared.target.lock().unwrap_or_else(PoisonError::into_inner) = target;
    }

    /// A URL with this proxy's host and port instead of the server's.
    pub fn url_through(&self, url: &str) -> String {
        let start = url.find("://").map_or(0, |at| at + 3);
        let end = url[start..].find(['/', '?']).map_or(url.len(), |at| start + at);
        let user = url[start..end].rfind('@').map_or(start, |at| start + at + 1);
        format!("{}{}{}", &url[..user], self.address, &url[end..])
    }

    /// Ends all faults that last, and disarms [`Self::cut_when_client_sends`].
    pub fn pass(&self) {
        self.shared.trap.disarm();
        self.change(|mood| *mood = Mood { age: mood.age, end: mood.end, ..Mood::default() });
    }

    /// Keeps what clients send, and delivers it in order when told `false`.
    pub fn hold_to_server(&self, hold: bool) {
        self.change(|mood| mood.hold_to_server = hold);
    }

    /// Keeps what the server sends, and delivers it in order when told `false`.
    pub fn hold_to_client(&self, hold: bool) {
        self.change(|mood| mood.hold_to_client = hold);
    }

    /// Keeps the last so many bytes of what each client has sent, and delivers them when told `0`. With five, a server of PostgreSQL
    /// runs a statement and is not told to end its transaction.
    pub fn hold_back(&self, bytes: usize) {
        self.change(|mood| mood.hold_back = bytes);
    }

    /// Swallows everything and answers nothing, on new connections too. A connection that was swallowed is closed when this
    /// ends: bytes of it are gone.
    pub fn black(&self, black: bool) {
        self.change(|mood| mood.black = black);
    }

    /// Closes new connections at once.
    pub fn refuse(&self, refuse: bool) {
        self.change(|mood| mood.refuse = refuse);
    }

    /// Every chunk arrives so much later, in both directions.
    pub fn delay(&self, delay: Duration) {
        self.change(|mood| mood.delay = delay);
    }

    /// Closes both sides of all connections; returns when it has. What was held is lost.
    pub fn cut(&self) {
        self.end_all(End::Cut);
    }

    /// Resets both sides of all connections; returns when it has.
    pub fn reset(&self) {
        self.end_all(End::Reset);
    }

    /// Closes the server's side of all connections, and leaves the clients with connections to nobody that still take what they
    /// send; returns when it has. They stay so until the next [`Self::cut`] or [`Self::reset`].
    pub fn half_open(&self) {
        self.end_all(End::HalfOpen);
    }

    /// Cuts the connection whose client sends these bytes: once.
    ///
    /// With `deliver` the server gets them, and the client is cut off when the server has answered and before it sees any of
    /// that: it applied, and the client cannot know. Without, the server gets none of the chunk that completes them.
    ///
    /// A driver that prepares a statement sends its text in one message and runs it by another: name a bound value then.
    pub fn cut_when_client_sends(&self, needle: &[u8], deliver: bool) {
        self.cut_when_client_sends_all(&[needle], deliver);
    }

    /// The same for the connection whose client sends all of these, one after the other.
    pub fn cut_when_client_sends_all(&self, needles: &[&[u8]], deliver: bool) {
        self.shared.trap.arm(needles, deliver);
    }

    /// Whether [`Self::cut_when_client_sends`] has happened. A client that was cut off finds it has.
    pub fn fired(&self) -> bool {
        self.shared.trap.fired()
    }

    /// Waits for [`Self::fired`], at most so long; whether it has happened. Blocks the thread.
    pub fn wait_until_fired(&self, within: Duration) -> bool {
        self.shared.trap.wait(within)
    }

    fn change(&self, change: impl FnOnce(&mut Mood)) {
        self.shared.mood.send_modify(change);
    }

    fn end_all(&self, end: End) {
        let mut age = 0;
        self.change(|mood| {
            mood.age += 1;
            mood.end = end;
            age = mood.age;
        });
        let mut living = self.shared.living();
        while living.first_key_value().is_some_and(|(oldest, _)| *oldest < age) {
            living = self.shared.ended.wait(living).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Shared {
    fn living(&self) -> MutexGuard<'_, BTreeMap<u64, usize>> {
        self.living.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    loop {
        // An error concerns one connection that went away before it was taken.
        let Ok((client, _)) = listener.accept().await else { continue };
        if !shared.mood.borrow().refuse {
            let connection = Connection::new(shared.clone());
            tokio::spawn(connection.serve(client));
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            let _ended = thread.join();
        }
    }
}
