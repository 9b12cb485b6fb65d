//! A proxy does to a connection what it was told, and to bytes nothing else.

#![allow(missing_docs, reason = "tests are named as sentences")]
#![allow(clippy::disallowed_methods, reason = "tests are applications: they may spawn and look at the clock")]

use lobster_servers::{
    proxy::Proxy,
    psql::{self, beside},
    shared,
};
use std::{
    io::{ErrorKind, Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    sync::mpsc,
    time::{Duration, Instant},
};

/// Long enough for anything that must happen, and how long is looked for what must not.
const LONG: Duration = Duration::from_secs(30);
const SHORT: Duration = Duration::from_millis(100);

/// A server that says what it hears, and tells what it heard of each connection when that has ended.
fn echo() -> (SocketAddr, mpsc::Receiver<Vec<u8>>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("there is a free port");
    let address = listener.local_addr().expect("it is bound");
    let (tell, told) = mpsc::channel();
    std::thread::spawn(move || {
        for socket in listener.incoming().flatten() {
            let tell = tell.clone();
            std::thread::spawn(move || tell.send(hear(socket)));
        }
    });
    (address, told)
}

fn hear(mut socket: TcpStream) -> Vec<u8> {
    let (mut heard, mut buffer) = (Vec::new(), [0; 4096]);
    while let Ok(count @ 1..) = socket.read(&mut buffer) {
        heard.extend_from_slice(&buffer[..count]);
        let _gone = socket.write_all(&buffer[..count]);
    }
    heard
}

struct Client(TcpStream);

impl Client {
    fn of(proxy: &Proxy) -> Self {
        Self(TcpStream::connect(proxy.addr()).expect("the proxy listens"))
    }
    fn say(&mut self, text: &str) {
        self.0.write_all(text.as_bytes()).expect("the connection is there");
    }
    /// What comes within a time: `None` for nothing, empty for the end of the connection.
    fn hear(&mut self, length: usize, within: Duration) -> Option<String> {
        self.0.set_read_timeout(Some(within)).expect("a socket has a timeout");
        let (mut heard, mut buffer) = (Vec::new(), vec![0; length]);
        while heard.len() < length {
            match self.0.read(&mut buffer[heard.len()..]) {
                Ok(0) => return Some(String::new()),
                Ok(count) => {
                    let from = heard.len();
                    heard.extend_from_slice(&buffer[from..from + count]);
                }
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => return None,
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return Some("reset".to_owned()),
                Err(error) => panic!("{error}"),
            }
        }
        String::from_utf8(heard).ok()
    }
    fn answers(&mut self) -> bool {
        self.say("hello");
        self.hear(5, LONG).as_deref() == Some("hello")
    }
    fn hears(&mut self, text: &str) -> bool {
        self.hear(text.len().max(1), LONG).as_deref() == Some(text)
    }
    fn hears_nothing(&mut self) -> bool {
        self.hear(1, SHORT).is_none()
    }
}

#[test]
fn held_bytes_arrive_whole_and_in_order() {
    let (target, heard) = echo();
    let proxy = Proxy::start(target);
    let mut client = Client::of(&proxy);
    let long = "0123456789".repeat(100_000);
    for hold in [Proxy::hold_to_server, Proxy::hold_to_client] {
        assert!(client.answers());
        hold(&proxy, true);
        client.say(&long);
        assert!(client.hears_nothing());
        hold(&proxy, false);
        assert!(client.hears(&long));
    }
    drop(client);
    assert_eq!(heard.recv_timeout(LONG).map(|bytes| bytes.len()), Ok(2 * long.len() + 10));
}

#[test]
fn a_cut_closes_and_a_reset_resets_both_sides() {
    let (target, heard) = echo();
    let proxy = Proxy::start(target);
    for (fault, sees) in [(Proxy::cut as fn(&Proxy), ""), (Proxy::reset, "reset")] {
        let mut client = Client::of(&proxy);
        assert!(client.answers());
        fault(&proxy);
        assert_eq!(client.hear(1, LONG).as_deref(), Some(sees));
        assert_eq!(heard.recv_timeout(LONG), Ok(b"hello".to_vec()));
    }
    assert!(Client::of(&proxy).answers(), "later connections are not concerned");
}

#[test]
fn in_the_dark_everything_is_swallowed() {
    let (target, heard) = echo();
    let proxy = Proxy::start(target);
    let mut old = Client::of(&proxy);
    assert!(old.answers());
    proxy.black(true);
    let mut new = Client::of(&proxy);
    for client in [&mut old, &mut new] {
        client.say("anybody?");
        assert!(client.hears_nothing());
    }
    proxy.pass();
    assert!(old.hears("") && new.hears(""));
    assert_eq!(heard.recv_timeout(LONG), Ok(b"hello".to_vec()));
    assert!(Client::of(&proxy).answers());
}

#[test]
fn who_is_refused_is_told_at_once() {
    let proxy = Proxy::start(echo().0);
    let mut old = Client::of(&proxy);
    assert!(old.answers());
    proxy.refuse(true);
    assert!(Client::of(&proxy).hears(""));
    assert!(old.answers());
    proxy.refuse(false);
    assert!(Client::of(&proxy).answers());
}

#[test]
fn a_delay_counts_both_ways() {
    let proxy = Proxy::start(echo().0);
    let mut client = Client::of(&proxy);
    proxy.delay(SHORT);
    let start = Instant::now();
    assert!(client.answers());
    assert!(start.elapsed() >= 2 * SHORT);
}

#[test]
fn the_last_bytes_of_a_client_can_be_kept() {
    let proxy = Proxy::start(echo().0);
    let mut client = Client::of(&proxy);
    assert!(client.answers());
    proxy.hold_back(3);
    client.say("one");
    assert!(client.hears_nothing());
    client.say("two");
    assert!(client.hears("one"));
    proxy.hold_back(0);
    assert!(client.hears("two"));
}

#[test]
fn the_client_of_a_half_open_connection_notices_nothing() {
    let (target, heard) = echo();
    let proxy = Proxy::start(target);
    let mut client = Client::of(&proxy);
    assert!(client.answers());
    proxy.half_open();
    assert_eq!(heard.recv_timeout(LONG), Ok(b"hello".to_vec()), "the server's side is closed");
    client.say("anybody?");
    assert!(client.hears_nothing());
    proxy.cut();
    assert_eq!(client.hear(1, LONG).as_deref(), Some(""));
}

#[test]
fn a_trap_drops_or_delivers_and_cuts() {
    let (target, heard) = echo();
    let proxy = Proxy::start(target);
    for (deliver, arrives) in [(false, "hello"), (true, "hello, COMMIT")] {
        let mut client = Client::of(&proxy);
        assert!(client.answers());
        proxy.cut_when_client_sends(b"COMMIT", deliver);
        assert!(!proxy.fired());
        client.say(", COMMIT");
        assert_eq!(client.hear(1, LONG).as_deref(), Some(""));
        assert!(proxy.fired() && proxy.wait_until_fired(LONG));
        assert_eq!(heard.recv_timeout(LONG), Ok(arrives.as_bytes().to_vec()));
        let mut next = Client::of(&proxy);
        next.say("COMMIT");
        assert!(next.hears("COMMIT"), "it fires once");
        drop(next);
        assert_eq!(heard.recv_timeout(LONG), Ok(b"COMMIT".to_vec()));
    }
}

#[test]
fn a_commit_whose_answer_is_lost_has_applied_and_one_that_is_lost_has_not() {
    let url = shared::postgres();
    let port = url.split(':').nth(2).and_then(|rest| rest.split('/').next()).and_then(|port| port.parse().ok());
    let proxy = Proxy::start((Ipv4Addr::LOCALHOST, port.expect("the URL of the server has a port")).into());
    let through = proxy.url_through(&url);
    let sql = |text: &str| psql::sql(&url, text).unwrap_or_else(|error| panic!("{error}"));
    sql("CREATE TABLE t (n INT)");
    for (n, deliver) in [(1, false), (2, true)] {
        proxy.cut_when_client_sends(b"COMMIT", deliver);
        let answer = psql::sql(&through, &format!("BEGIN; INSERT INTO t VALUES ({n}); COMMIT;"));
        assert!(answer.is_err() && proxy.fired(), "{answer:?}");
    }
    assert_eq!(sql("SELECT n FROM t"), "2");
    assert_eq!(psql::sql(&through, "SELECT n FROM t").ok().as_deref(), Some("2"));
}

#[test]
fn a_url_leads_through_the_proxy() {
    let proxy = Proxy::start(echo().0);
    let address = proxy.addr();
    assert_eq!(proxy.url_through("postgres://me@db:5432/t?a=b"), format!("postgres://me@{address}/t?a=b"));
    assert_eq!(proxy.url_through("postgres://db"), format!("postgres://{address}"));
    assert_eq!(beside(&proxy.url_through("postgres://db/x"), "y"), format!("postgres://{address}/y"));
}
