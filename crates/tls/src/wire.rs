//! How do bytes travel on a connection: in the clear or in TLS?
//!
//! ```text
//! Stream --(plain)---------------> Wire --> Inbox
//!    \-----(rustls session)------/      <-- Pieces          (`env::net::message`)
//! ```
//!
//! Always true: what was encrypted first is sent first.

use std::cell::RefCell;
use std::io::{self, Read as _, Write as _};
use std::rc::Rc;

use base::{Buf, View};
use env::net::Stream;
use env::net::message::{Channel, Pieces};
use env::sync::Semaphore;
use rustls::pki_types::CertificateDer;
use rustls::{AlertDescription, CertificateError, Error};

/// Encrypted bytes gathered before they are sent.
const CIPHER_BATCH: usize = 256 << 10;

/// One connection's bytes, both ways. One task may read while another writes.
pub enum Wire {
    /// In the clear.
    Plain(Rc<Stream>),
    /// Through TLS.
    Tls(Box<TlsWire>),
}

/// A TLS session on a stream.
pub struct TlsWire {
    stream: Rc<Stream>,
    session: RefCell<rustls::Connection>,
    /// Held from encrypting to the end of sending, so that records keep their order.
    sending: Rc<Semaphore>,
    /// Encrypted bytes received and not decrypted yet: buffer, first, end.
    cipher: RefCell<Option<(Buf, usize, usize)>>,
}

impl Channel for Wire {
    async fn read(&self, buf: Buf) -> io::Result<(usize, Buf)> {
        match self {
            Wire::Plain(stream) => stream.read(buf).await,
            Wire::Tls(tls) => tls.read(buf).await,
        }
    }

    async fn read_exact(&self, buf: Buf) -> io::Result<Buf> {
        match self {
            Wire::Plain(stream) => stream.read_exact(buf).await,
            Wire::Tls(tls) => tls.read_exact(buf).await,
        }
    }
}

impl Wire {
    /// Sends all pieces in order.
    ///
    /// # Errors
    /// The stream's.
    pub async fn write_all(&self, pieces: Vec<View>) -> io::Result<()> {
        match self {
            Wire::Plain(stream) => stream.write_all(pieces).await,
            Wire::Tls(tls) => tls.write_all(&pieces).await,
        }
    }

    /// Says goodbye (in TLS too); reading goes on.
    pub async fn finish(&self) {
        match self {
            Wire::Plain(stream) => stream.shutdown_write(),
            Wire::Tls(tls) => {
                tls.session.borrow_mut().send_close_notify();
                // A peer that is gone already need not hear it.
                let _ = tls.flush().await;
                tls.stream.shutdown_write();
            }
        }
    }
}

impl TlsWire {
    /// Runs the handshake to its end.
    ///
    /// # Errors
    /// The stream's; in words what is wrong with what the peer sent.
    pub async fn handshake(stream: Rc<Stream>, session: rustls::Connection) -> io::Result<TlsWire> {
        let tls = TlsWire {
            stream,
            session: RefCell::new(session),
            sending: Semaphore::new(1),
            cipher: RefCell::new(None),
        };
        tls.flush().await?;
        while tls.session.borrow().is_handshaking() {
            if !tls.receive().await? {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        tls.flush().await?;
        Ok(tls)
    }

    /// What the certificates say that the peer showed, its own first.
    pub fn with_certificates<T>(
        &self,
        look: impl FnOnce(Option<&[CertificateDer<'static>]>) -> T,
    ) -> T {
        look(self.session.borrow().peer_certificates())
    }

    async fn read(&self, mut buf: Buf) -> io::Result<(usize, Buf)> {
        let mut filled = 0;
        while filled < buf.len() {
            let got = self.session.borrow_mut().reader().read(&mut buf[filled..]);
            match got {
                Ok(0) => break,
                Ok(n) => filled += n,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    // Answer with what there is before waiting for more.
                    let waits = self.cipher.borrow().is_none();
                    if (waits && filled > 0) || !self.receive().await? {
                        break;
                    }
                }
                // The peer hung up without a goodbye: the protocol above knows whether it was done.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => break,
                Err(error) => return Err(error),
            }
        }
        Ok((filled, buf))
    }

    /// As [`Channel::read_exact`] of a stream.
    async fn read_exact(&self, mut buf: Buf) -> io::Result<Buf> {
        let mut filled = 0;
        while filled < buf.len() {
            let room = buf.split_off(filled);
            let (len, room) = self.read(room).await?;
            buf.join(room);
            if len == 0 {
                return Err(io::Error::new(
                    io::ErrorKind::UnexpectedEof,
                    format!(
                        "{} closed the connection {filled} bytes into a message of {}",
                        self.stream.peer(),
                        buf.len()
                    ),
                ));
            }
            filled += len;
        }
        Ok(buf)
    }

    /// Decrypts some received bytes, receiving first if there are none; false at the stream's end.
    async fn receive(&self) -> io::Result<bool> {
        let held = self.cipher.borrow_mut().take();
        let (buf, first, end) = match held {
            Some(held) => held,
            None => {
                let (len, buf) = self.stream.read(Buf::for_read(64 << 10)).await?;
                (buf, 0, len)
            }
        };
        let processed = {
            let mut session = self.session.borrow_mut();
            let taken = session.read_tls(&mut &buf[first..end])?;
            if end > first + taken {
                *self.cipher.borrow_mut() = Some((buf, first + taken, end));
            }
            session.process_new_packets()
        };
        if self.session.borrow().wants_write() {
            self.flush().await?;
        }
        processed.map_err(|error| io::Error::other(words(&error)))?;
        Ok(end > 0)
    }

    async fn flush(&self) -> io::Result<()> {
        let _turn = self.sending.acquire(1).await;
        let mut out = Pieces::default();
        self.encrypted(&mut out)?;
        self.stream.write_all(out.take()).await
    }

    async fn write_all(&self, pieces: &[View]) -> io::Result<()> {
        let _turn = self.sending.acquire(1).await;
        let mut out = Pieces::default();
        for piece in pieces {
            let mut rest = &piece[..];
            while !rest.is_empty() {
                let taken = self.session.borrow_mut().writer().write(rest)?;
                rest = &rest[taken..];
                self.encrypted(&mut out)?;
                if out.bytes() >= CIPHER_BATCH {
                    self.stream.write_all(out.take()).await?;
                }
            }
        }
        self.stream.write_all(out.take()).await
    }

    fn encrypted(&self, out: &mut Pieces) -> io::Result<()> {
        let mut session = self.session.borrow_mut();
        while session.wants_write() {
            session.write_tls(out)?;
        }
        Ok(())
    }
}

/// What is wrong with what a peer sent, for people.
pub fn words(error: &Error) -> String {
    match error {
        Error::InvalidMessage(_) => format!(
            "what comes from the other side is not TLS ({error}); both sides need an address that begins with tls:, or \
             neither"
        ),
        Error::PeerIncompatible(_) | Error::AlertReceived(AlertDescription::ProtocolVersion) => {
            format!("the other side speaks no TLS 1.3 ({error}); take a newer program there")
        }
        Error::AlertReceived(
            AlertDescription::UnknownCA
            | AlertDescription::DecryptError
            | AlertDescription::BadCertificate,
        ) => {
            "the other side does not know the authority of our certificate; give both the same ca.pem".to_owned()
        }
        Error::AlertReceived(AlertDescription::CertificateExpired) => {
            "the other side says that our certificate has expired; renew it with `tanada node create`".to_owned()
        }
        Error::AlertReceived(alert) => format!("the other side refuses: {alert:?}"),
        Error::InvalidCertificate(why) => of_certificate(why),
        Error::General(why) => why.clone(),
        other => other.to_string(),
    }
}

fn of_certificate(why: &CertificateError) -> String {
    match why {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            format!("its certificate has expired ({why}); renew it there with `tanada node create`")
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            format!("its certificate is not valid yet ({why}); look at the clocks of both machines")
        }
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            "its certificate is from none of the authorities in our ca.pem; give both sides the same".to_owned()
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => format!(
            "its certificate is not for this address ({why}); issue one with `--host` and the address"
        ),
        other => format!("its certificate is not accepted: {other}"),
    }
}
