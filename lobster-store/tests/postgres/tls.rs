//! Nothing leaves this host in the clear unless somebody asked for it, and nobody else is taken for the server. Without a pooler, which
//! would be the one that speaks to it.

use crate::kit::*;
use lobster_servers::postgres::{Durability, Postgres};
use lobster_store::contract::Failed;
use std::{
    io::{self, Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    path::Path,
    sync::mpsc,
    thread,
};

fn verified(url: &str, mode: &str, ca: &Path) -> String {
    with(url, &format!("sslmode={mode}&sslrootcert={}", ca.display()))
}

/// The same server by a name that its certificate does not have; the port.
fn known_as_127_0_0_2(port: u16) -> u16 {
    let listener = TcpListener::bind("127.0.0.2:0").expect("there is a free port");
    let address = listener.local_addr().expect("it is bound");
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let server = TcpStream::connect(("127.0.0.1", port)).expect("the server listens");
            for (mut from, mut to) in [(client.try_clone(), server.try_clone()), (Ok(server), Ok(client))]
                .map(|(from, to)| (from.expect("a socket has two ends"), to.expect("a socket has two ends")))
            {
                thread::spawn(move || {
                    let _ended = io::copy(&mut from, &mut to);
                    let _gone = to.shutdown(Shutdown::Both);
                });
            }
        }
    });
    address.port()
}

#[test]
fn a_server_is_taken_for_what_its_certificate_says() {
    let server = Postgres::start_with_tls(Durability::Fast).expect("a private server can be started");
    let stranger = Postgres::start_with_tls(Durability::Fast).expect("a private server can be started");
    let (ca, of_another) = (server.ca().expect("it has one"), stranger.ca().expect("it has one"));
    let person = format!("postgres://lobster@localhost:{}/postgres", server.port());
    let url = worker(&person);
    block_on(async {
        let good = process(&verified(&url, "verify-full", ca)).await;
        create(&good.tiers, 1).await;
        let mut eye = Session::of(&verified(&person, "verify-full", ca)).await;
        let clear = "SELECT count(*)::text FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE application_name LIKE 'lobster%' AND NOT ssl";
        assert_eq!(eye.ask(clear).await, "0");

        let wrong = failed(try_process(&verified(&url, "verify-full", of_another)).await);
        assert!(matches!(&wrong, Failed::Refused(_)), "{wrong}");
        let elsewhere = format!("postgres://lobster@127.0.0.2:{}/postgres", known_as_127_0_0_2(server.port()));
        let name = failed(try_process(&verified(&elsewhere, "verify-full", ca)).await);
        assert!(matches!(&name, Failed::Refused(_)), "{name}");
        let clear = failed(try_process(&with(&url, "sslmode=disable")).await);
        assert!(matches!(&clear, Failed::Refused(_)), "the server wants TLS: {clear}");
    });
}

#[test]
fn a_server_elsewhere_that_speaks_no_tls_is_not_spoken_to() {
    // It answers every request for TLS with a no, and remembers what else was said.
    let listener = TcpListener::bind("0.0.0.0:0").expect("there is a free port");
    let port = listener.local_addr().expect("it is bound").port();
    let (tell, told) = mpsc::channel();
    thread::spawn(move || {
        for mut socket in listener.incoming().flatten() {
            let (mut request, mut rest) = ([0; 8], Vec::new());
            let _gone = socket.read_exact(&mut request).and_then(|()| socket.write_all(b"N"));
            let _gone = socket.read_to_end(&mut rest);
            let _nobody = tell.send((request, rest));
        }
    });
    block_on(async {
        // Not one of the names that are known to be this host, though it is.
        let refused = failed(try_process(&format!("postgres://secret:word@127.0.0.9:{port}/shop")).await);
        assert!(matches!(&refused, Failed::Refused(why) if why.contains("TLS")), "{refused}");
    });
    let (request, rest) = told.recv_timeout(LONG).expect("it was asked");
    assert_eq!((request, rest), ([0, 0, 0, 8, 4, 210, 22, 47], Vec::new()), "a request for TLS, and not a word more");
}
