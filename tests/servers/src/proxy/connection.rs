//! One connection through the proxy: two streams of bytes, until an end.
//!
//! Invariant: reading never waits for writing, so that what is held piles up here and its sender notices nothing.

use super::{
    End, Mood, Shared,
    held::Held,
    trap::{Sent, Sprung},
};
use std::{
    future::pending,
    io,
    sync::{Arc, PoisonError},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpStream,
        tcp::{ReadHalf, WriteHalf},
    },
    sync::watch,
};

/// A connection, from the moment that it was taken. Dropped, it counts as ended.
pub(super) struct Connection {
    shared: Arc<Shared>,
    mood: watch::Receiver<Mood>,
    age: u64,
}

/// Why the streams do not flow any more.
enum Why {
    /// Both sides have said all they had to, or one is gone.
    Done,
    /// Told from outside.
    Told(End),
    /// The network went dark.
    Black,
    /// What a client sent sprang the trap; with all that the server has not got yet.
    Trap(Sprung, Vec<u8>),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    ToServer,
    ToClient,
}

impl Connection {
    pub fn new(shared: Arc<Shared>) -> Self {
        let mood = shared.mood.subscribe();
        // Under the lock: whoever ends this age later will find the connection counted.
        let mut living = shared.living();
        let age = mood.borrow().age;
        *living.entry(age).or_default() += 1;
        drop(living);
        Self { shared, mood, age }
    }

    /// Serves a client to the end.
    pub async fn serve(self, mut client: TcpStream) {
        let target = *self.shared.target.lock().unwrap_or_else(PoisonError::into_inner);
        let connected = tokio::select! {
            biased;
            why = interrupted(self.mood.clone(), self.age) => return self.end(why, client, None).await,
            connected = TcpStream::connect(target) => connected,
        };
        let Ok(mut server) = connected else { return };
        // A delay is what the test asked for, and nothing else.
        let _best_effort = (client.set_nodelay(true), server.set_nodelay(true));
        let why = self.flow(&mut client, &mut server).await;
        self.end(why, client, Some(server)).await;
    }

    /// Passes bytes on until something happens.
    async fn flow(&self, client: &mut TcpStream, server: &mut TcpStream) -> Why {
        let ((from_client, to_client), (from_server, to_server)) = (client.split(), server.split());
        let pumps = async {
            tokio::try_join!(self.pump(Way::ToServer, from_client, to_server), self.pump(Way::ToClient, from_server, to_client),)
        };
        tokio::select! {
            why = interrupted(self.mood.clone(), self.age) => why,
            ended = pumps => ended.err().unwrap_or(Why::Done),
        }
    }

    async fn pump(&self, way: Way, mut from: ReadHalf<'_>, mut to: WriteHalf<'_>) -> Result<(), Why> {
        let mut mood = self.mood.clone();
        let (mut held, mut sent, mut buffer, mut open) = (Held::default(), Sent::default(), vec![0; 16 << 10], true);
        while open || !held.is_empty() {
            let Mood { hold_to_server, hold_to_client, hold_back, .. } = *mood.borrow_and_update();
            let (holds, last) = if way == Way::ToServer { (hold_to_server, hold_back) } else { (hold_to_client, 0) };
            tokio::select! {
                read = from.read(&mut buffer), if open && held.has_room() => {
                    let chunk = &buffer[..read.map_err(|_| Why::Done)?];
                    open = !chunk.is_empty();
                    // As it is now: it may have changed while nothing came.
                    held.push(chunk, mood.borrow().delay);
                    if way == Way::ToServer && let Some(sprung) = self.shared.trap.springs(&mut sent, chunk) {
                        return Err(Why::Trap(sprung, held.into_bytes()));
                    }
                }
                wrote = held.write(&mut to, last), if !holds && held.exceeds(last) => wrote.map_err(|_| Why::Done)?,
                _ = mood.changed() => {}
            }
        }
        to.shutdown().await.map_err(|_| Why::Done)
    }

    /// Does to both sockets what was asked for.
    async fn end(self, why: Why, client: TcpStream, server: Option<TcpStream>) {
        match why {
            Why::Done => {}
            Why::Told(end) => self.end_as_told(end, client, server).await,
            Why::Black => self.swallow(client, server).await,
            // It has fired before the client can see it.
            Why::Trap(Sprung::Drop, _) => self.shared.trap.fire(),
            Why::Trap(Sprung::Deliver, bytes) => {
                let Some(server) = server else { return };
                tokio::select! {
                    _ = interrupted(self.mood.clone(), self.age) => {}
                    _ = self.deliver_and_cut(&bytes, client, server) => {}
                }
            }
        }
    }

    async fn end_as_told(self, end: End, mut client: TcpStream, server: Option<TcpStream>) {
        match end {
            End::Cut => {}
            End::Reset => {
                for socket in [Some(client), server].into_iter().flatten() {
                    let _gone_already = socket.set_zero_linger();
                }
            }
            End::HalfOpen => {
                let (mut mood, mut age) = (self.mood.clone(), self.age);
                drop((server, self));
                // The first age it sees is the one that made it half open.
                let told = async {
                    loop {
                        let now = mood.wait_for(|mood| mood.age > age).await.map(|mood| *mood);
                        let Ok(now) = now else { return pending().await };
                        if now.end != End::HalfOpen {
                            return now.end;
                        }
                        age = now.age;
                    }
                };
                tokio::select! {
                    end = told => if end == End::Reset { let _gone_already = client.set_zero_linger(); },
                    () = drain(Some(&mut client)) => {}
                }
            }
        }
    }

    /// Takes what comes and answers nothing, until there is light again or the connection is told to end.
    async fn swallow(self, mut client: TcpStream, mut server: Option<TcpStream>) {
        let mut mood = self.mood.clone();
        let over = tokio::select! {
            over = mood.wait_for(|mood| !mood.black || mood.age > self.age) => over.map(|mood| *mood),
            _ = async { tokio::join!(drain(Some(&mut client)), drain(server.as_mut())) } => return,
        };
        if let Ok(Mood { age, end, .. }) = over
            && age > self.age
        {
            self.end_as_told(end, client, server).await;
        }
    }

    /// Lets the server do what it was asked, and nobody hear of it.
    async fn deliver_and_cut(&self, bytes: &[u8], client: TcpStream, mut server: TcpStream) -> io::Result<()> {
        server.write_all(bytes).await?;
        let _answer = server.read(&mut [0; 1]).await?;
        self.shared.trap.fire();
        drop(client);
        // Not before it has said all: a server that cannot send may stop in the middle.
        server.shutdown().await?;
        while server.read(&mut [0; 4096]).await? > 0 {}
        Ok(())
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let mut living = self.shared.living();
        if let Some(count) = living.get_mut(&self.age) {
            *count -= 1;
            if *count == 0 {
                living.remove(&self.age);
            }
        }
        self.shared.ended.notify_all();
    }
}

/// Waits until this connection may not go on as it does.
async fn interrupted(mut mood: watch::Receiver<Mood>, age: u64) -> Why {
    match mood.wait_for(|mood| mood.black || mood.age > age).await.map(|mood| *mood) {
        Ok(mood) if mood.age > age => Why::Told(mood.end),
        Ok(_) => Why::Black,
        Err(_) => Why::Told(End::Cut),
    }
}

/// Reads and forgets. Never ends: that the other side has ended is nobody's business.
async fn drain(socket: Option<&mut TcpStream>) {
    if let Some(socket) = socket {
        while socket.read(&mut [0; 4096]).await.is_ok_and(|count| count > 0) {}
    }
    pending().await
}
