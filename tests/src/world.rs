//! An outside world that the engine does not own: it lives in the test's process, and is reached over loopback.
//!
//! Invariant: it executes a key once, and what it has recorded no killed worker can take back.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{BufRead, BufReader, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Condvar, Mutex},
};

/// A step body that began, or a call that arrived.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Event {
    /// `body`, `call` or `ask`.
    pub what: String,
    /// Process that said so.
    pub pid: u32,
    /// Key of the run.
    pub run: String,
    /// Display name of the step.
    pub step: String,
    /// Idempotency key; `-` for ordinary steps.
    pub key: String,
}

#[derive(Default)]
struct State {
    events: Vec<Event>,
    executed: BTreeMap<String, u64>,
    closed: BTreeSet<String>,
}

/// The world.
#[derive(Clone, Default)]
pub struct World {
    state: Arc<(Mutex<State>, Condvar)>,
}

impl World {
    /// Begins to listen; returns where.
    pub fn listen(&self) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
        let address = listener.local_addr().expect("a bound listener has an address");
        let world = self.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let world = world.clone();
                std::thread::spawn(move || world.serve(stream));
            }
        });
        address
    }

    fn serve(&self, stream: TcpStream) {
        // An answer of a few bytes is not to wait for the acknowledgement of the last one.
        if stream.set_nodelay(true).is_err() {
            return;
        }
        let Ok(mut answers) = stream.try_clone() else { return };
        for line in BufReader::new(stream).lines() {
            let Ok(line) = line else { return };
            let answer = self.hear(&line);
            if answers.write_all(format!("{answer}\n").as_bytes()).is_err() {
                return;
            }
        }
    }

    fn hear(&self, line: &str) -> String {
        let words: Vec<&str> = line.split('\t').collect();
        let [what, pid, run, step, key] = words[..] else { return "?".into() };
        let event =
            Event { what: what.into(), pid: pid.parse().unwrap_or(0), run: run.into(), step: step.into(), key: key.into() };
        let (state, news) = &*self.state;
        let mut state = state.lock().expect("no code that can panic runs under this lock");
        state.events.push(event);
        let answer = match what {
            "call" if state.closed.contains(key) => "closed".into(),
            "call" => {
                let receipt = state.executed.len() as u64 + 1;
                format!("receipt {}", state.executed.entry(key.into()).or_insert(receipt))
            }
            "ask" => match state.executed.get(key).copied() {
                Some(receipt) => format!("receipt {receipt}"),
                None => {
                    // Asked once and answered "no", it must stay no.
                    state.closed.insert(key.into());
                    "closed".into()
                }
            },
            _ => "noted".into(),
        };
        news.notify_all();
        answer
    }

    /// All events so far.
    pub fn events(&self) -> Vec<Event> {
        self.state.0.lock().expect("no code that can panic runs under this lock").events.clone()
    }
    /// What a key was executed as; after a "no" it never will be.
    pub fn ask(&self, key: &str) -> Option<u64> {
        let mut state = self.state.0.lock().expect("no code that can panic runs under this lock");
        let receipt = state.executed.get(key).copied();
        if receipt.is_none() {
            state.closed.insert(key.into());
        }
        receipt
    }
    /// Executed keys, by run and step.
    pub fn executed(&self) -> BTreeMap<(String, String), BTreeSet<String>> {
        let state = self.state.0.lock().expect("no code that can panic runs under this lock");
        let mut all: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
        for event in state.events.iter().filter(|event| event.what == "call" && state.executed.contains_key(&event.key)) {
            all.entry((event.run.clone(), event.step.clone())).or_default().insert(event.key.clone());
        }
        all
    }
    /// Waits until what was heard is enough.
    pub fn until(&self, mut enough: impl FnMut(&[Event]) -> bool) {
        let (state, news) = &*self.state;
        let state = state.lock().expect("no code that can panic runs under this lock");
        let waited = news.wait_while(state, |state| !enough(&state.events));
        drop(waited.expect("no code that can panic runs under this lock"));
    }
    /// Waits until so many events were heard, or nobody speaks for `patience` any more; returns how many there are.
    pub fn wait_for(&self, count: usize, patience: std::time::Duration) -> usize {
        let (state, news) = &*self.state;
        let state = state.lock().expect("no code that can panic runs under this lock");
        let waited = news.wait_timeout_while(state, patience, |state| state.events.len() < count);
        waited.expect("no code that can panic runs under this lock").0.events.len()
    }
}

/// A worker's line to the world.
pub struct Line {
    stream: Mutex<(TcpStream, BufReader<TcpStream>)>,
}

impl Line {
    /// Connects.
    pub fn to(address: &str) -> Self {
        let stream = TcpStream::connect(address).expect("the world listens");
        stream.set_nodelay(true).expect("a connected stream can be set");
        let reader = BufReader::new(stream.try_clone().expect("a stream can be shared"));
        Self { stream: Mutex::new((stream, reader)) }
    }
    /// Says something and hears the answer.
    pub fn say(&self, what: &str, run: &str, step: &str, key: &str) -> String {
        let mut stream = self.stream.lock().expect("no code that can panic runs under this lock");
        let line = format!("{what}\t{}\t{run}\t{step}\t{key}\n", std::process::id());
        stream.0.write_all(line.as_bytes()).expect("the world outlives its workers");
        let mut answer = String::new();
        stream.1.read_line(&mut answer).expect("the world answers");
        answer.trim_end().to_owned()
    }
}
