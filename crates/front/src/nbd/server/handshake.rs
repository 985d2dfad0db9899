//! How does a client get from hello to an export?
//!
//! ```text
//! greeting -> client flags -> (option -> what it needs is opened -> replies)* -> Entered
//!                               ^ STARTTLS: from here on through another wire
//! ```
//!
//! Always true:
//! 1. Bytes that came in the clear are not taken for such that came through TLS.
//! 2. An export is held from before the reply that grants it.

use std::io;
use std::rc::Rc;
use std::sync::Arc;

use base::{Bytes, View};
use env::net::message::Inbox;
use tls::{Certificate, TlsWire, Wire};

use super::super::negotiate::{Agreement, Negotiation, Step, TlsState};
use super::super::proto::{self, CLIENT_FLAGS_LEN, OPTION_LEN};
use super::super::tls::TlsMode;
use super::connection::Connection;
use super::supply::Prepared;
use super::{Server, Shelf};

/// Receive buffer during the negotiation, and the longest option held.
const NEGOTIATION_BUFFER: Bytes = Bytes::kib(64);
const OPTION_MAX: u32 = 32 << 10;
/// Receive buffer during transmission.
const RECEIVE_BUFFER: Bytes = Bytes::kib(256);
/// A rest of a payload longer than this is received straight into its own buffer.
const DIRECT_FROM: Bytes = Bytes::kib(32);

/// A negotiation that led to transmission.
pub(super) struct Entered {
    pub(super) wire: Rc<Wire>,
    pub(super) inbox: Inbox<Wire>,
    pub(super) agreement: Box<Agreement>,
    pub(super) shelf: Rc<Shelf>,
    /// The last second since 1970 of the certificate that the client showed.
    pub(super) expires: Option<u64>,
}

struct Handshake<'a> {
    connection: &'a Connection,
    server: &'a Server,
    wire: Rc<Wire>,
    inbox: Inbox<Wire>,
    negotiation: Negotiation,
    prepared: Prepared,
    expires: Option<u64>,
}

/// Negotiates with a client that has just come.
pub(super) async fn negotiate(connection: &Connection, server: &Server) -> io::Result<Entered> {
    let mut handshake = Handshake::begin(connection, server).await?;
    loop {
        let mut out = Vec::new();
        let step = handshake.option(&mut out).await?;
        connection.reading.end();
        // Held from here on: an export removed while the reply is sent ends this connection too.
        let shelf = match &step {
            Step::Enter(agreement) => handshake.prepared.shelf(server, &agreement.offer.name),
            _ => None,
        };
        connection.shelf.borrow_mut().clone_from(&shelf);
        if let Some(shelf) = &shelf {
            let others = server.connections.all();
            others.iter().for_each(|it| it.note_hang_up(&shelf.leaving));
            shelf.leaving.wait().await;
        }
        if !out.is_empty() {
            handshake.wire.write_all(vec![View::copy_of(&out)]).await?;
        }
        match step {
            Step::Continue => {}
            Step::Close(why) => return Err(io::Error::other(why)),
            Step::StartTls => handshake.start_tls().await?,
            Step::Enter(agreement) => {
                return Ok(Entered {
                    wire: handshake.wire,
                    inbox: handshake.inbox.grown(RECEIVE_BUFFER, DIRECT_FROM),
                    agreement,
                    shelf: shelf.expect("an export just offered is there"),
                    expires: handshake.expires,
                });
            }
        }
    }
}

impl<'a> Handshake<'a> {
    async fn begin(connection: &'a Connection, server: &'a Server) -> io::Result<Handshake<'a>> {
        let wire = Rc::new(Wire::Plain(Rc::clone(&connection.stream)));
        let mut inbox = receiving(connection, &wire);
        wire.write_all(vec![View::copy_of(&proto::greeting())])
            .await?;
        let flags = u32::from_be_bytes(inbox.take::<CLIENT_FLAGS_LEN>().await?);
        let tls = match server.tls() {
            None => TlsState::Unavailable,
            Some(tls) if tls.mode == TlsMode::Required => TlsState::Required,
            Some(_) => TlsState::Offered,
        };
        Ok(Handshake {
            connection,
            server,
            wire,
            inbox,
            negotiation: Negotiation::new(flags, tls).map_err(io::Error::other)?,
            prepared: Prepared::default(),
            expires: None,
        })
    }

    /// Takes the next option; its replies go to `out`.
    async fn option(&mut self, out: &mut Vec<u8>) -> io::Result<Step> {
        let head = self.inbox.take::<OPTION_LEN>().await?;
        let Some((option, len)) = proto::option_head(&head) else {
            return Err(io::Error::other("an option begins with the wrong magic"));
        };
        if len > OPTION_MAX {
            self.inbox.drain(u64::from(len)).await?;
            return Ok(self.negotiation.oversized(option, len, out));
        }
        self.inbox.need(len as usize).await?;
        // All of it is here: what takes time from now on is not the client's.
        self.connection.reading.end();
        let data = &self.inbox.here()[..len as usize];
        let wanted = self.negotiation.wanted(option, data);
        self.prepared.prepare(self.server, wanted).await;
        let catalogue = self.prepared.catalogue(self.server);
        let step = self.negotiation.option(option, data, &catalogue, out);
        self.inbox.skip(len as usize);
        Ok(step)
    }

    /// Goes on through TLS, with the exports that the client's certificate opens.
    async fn start_tls(&mut self) -> io::Result<()> {
        if !self.inbox.here().is_empty() {
            let why = "bytes in the clear after STARTTLS, which may be injected";
            return Err(io::Error::other(why));
        }
        let tls = self.server.tls();
        let tls = tls.ok_or_else(|| io::Error::other("no certificate"))?;
        let session =
            rustls::ServerConnection::new(Arc::clone(&tls.config)).map_err(io::Error::other)?;
        let stream = Rc::clone(&self.connection.stream);
        let wire = TlsWire::handshake(stream, session.into()).await?;
        let allowed = wire.with_certificates(|certificates| tls.allowed(certificates));
        let shown = wire.with_certificates(|shown| {
            let own = shown.and_then(<[_]>::first);
            own.map(|own| Certificate::read(own).ok_or_else(|| io::Error::other("it is none")))
        });
        self.expires = shown.transpose()?.map(|shown| shown.not_after);
        self.wire = Rc::new(Wire::Tls(Box::new(wire)));
        self.prepared.allow(allowed);
        self.inbox = receiving(self.connection, &self.wire);
        self.negotiation.tls_started();
        self.connection.flags.encrypted.set(true);
        Ok(())
    }
}

fn receiving(connection: &Connection, wire: &Rc<Wire>) -> Inbox<Wire> {
    let timeout = Rc::clone(&connection.reading);
    Inbox::new(Rc::clone(wire), NEGOTIATION_BUFFER, DIRECT_FROM, timeout)
}
