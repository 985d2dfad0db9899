//! The NBD client: an export of another server as a [`device::Device`].
//!
//! ```text
//! Device call -> slot (cookie) -> outgoing -> writer: one vectored send
//!                  ^ answer <- reader: replies and chunks, data straight into the caller's buffer
//! ```
//!
//! Used by tests, benchmarks and tools; speaks structured replies and `base:allocation` where the server
//! does, and checks every byte a server sends as a server checks a client's.
//!
//! Always true:
//! 1. Each request gets exactly one answer: the server's, or why the connection ended.
//! 2. A call dropped half-way keeps its slot and buffer until the server has answered.

mod as_device;
mod handshake;
mod replies;
mod requests;

pub use handshake::{ClientError, ClientOptions, Listed};

use std::rc::Rc;

use base::{Nanos, Span};
use device::{DeviceError, Op};
use env::net::{Address, Stream};

use super::proto::{Errno, cmd, flag};
use super::tls::ClientTls;
use handshake::Talk;
use replies::Replies;
use requests::{Ask, Shared};

/// A connection to an export; itself a [`device::Device`]. Dropping it says goodbye;
/// [`Client::close`] waits until the server has heard.
pub struct Client {
    shared: Rc<Shared>,
}

impl Client {
    /// Connects to `address` and negotiates.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn connect(
        address: &Address,
        options: &ClientOptions,
    ) -> Result<Client, ClientError> {
        let connecting = async { Client::over(Stream::connect(address).await?, options).await };
        env::timeout(options.timeout, connecting)
            .await
            .unwrap_or(Err(ClientError::Late(options.timeout)))
    }

    /// The exports a server lists.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn list(
        address: &Address,
        tls: Option<&ClientTls>,
    ) -> Result<Vec<Listed>, ClientError> {
        let talk = Talk::begin(Stream::connect(address).await?, tls).await?;
        talk.list().await
    }

    /// Negotiates over a stream that is open already (no deadline of its own).
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn over(stream: Stream, options: &ClientOptions) -> Result<Client, ClientError> {
        let mut talk = Talk::begin(stream, options.tls.as_ref()).await?;
        let agreed = talk.agree(options).await?;
        let shared = Shared::new(agreed, talk.stream, talk.wire);
        let reader = Rc::clone(&shared);
        let replies = Replies {
            shared: Rc::clone(&shared),
            inbox: talk.inbox,
        };
        env::spawn(async move {
            let why = match replies.read().await {
                Ok(()) => "the server hung up".to_owned(),
                Err(error) => error.to_string(),
            };
            reader.end(&why);
        });
        let writer = Rc::clone(&shared);
        env::spawn(async move {
            if let Err(error) = writer.write_requests().await {
                writer.end(&error.to_string());
            }
        });
        Ok(Client { shared })
    }

    /// The transmission flags the server announced (`proto::can`).
    pub fn flags(&self) -> u16 {
        self.shared.agreed.flags
    }

    /// The server's description of the export; empty if it sent none.
    pub fn description(&self) -> &str {
        &self.shared.agreed.description
    }

    /// Was `base:allocation` agreed on?
    pub fn knows_allocation(&self) -> bool {
        self.shared.agreed.allocation
    }

    /// Asks the server to read a range into its caches.
    ///
    /// # Errors
    /// [`DeviceError`] as for a read.
    pub async fn cache(&self, span: Span) -> Result<(), DeviceError> {
        let ask = Ask {
            op: Op::Read,
            command: cmd::CACHE,
            flags: 0,
            at: span.start.byte(),
            len: span.len.0,
        };
        Rc::clone(&self.shared).call(ask, None, None).await?;
        Ok(())
    }

    /// Makes a range read as zeroes if that is fast; `None` if the server says it is not.
    ///
    /// # Errors
    /// [`DeviceError`] as for a write.
    pub async fn zero_fast(&self, span: Span) -> Result<Option<()>, DeviceError> {
        let ask = Ask {
            op: Op::WriteZeroes,
            command: cmd::WRITE_ZEROES,
            flags: flag::FAST_ZERO,
            at: span.start.byte(),
            len: span.len.0,
        };
        let answer = Rc::clone(&self.shared).answer(ask, None, None).await;
        match answer {
            Ok(_) => Ok(Some(())),
            Err((Errno::NotSupported, _)) => Ok(None),
            Err(failed) => Err(self.shared.error(ask, failed)),
        }
    }

    /// Says goodbye and waits (ten seconds at most) until the server has answered what is under way and
    /// hung up.
    pub async fn close(self) {
        let shared = Rc::clone(&self.shared);
        drop(self);
        if env::timeout(Nanos::secs(10), shared.wait_over())
            .await
            .is_err()
        {
            shared.end("the server did not hang up");
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.shared.leave();
    }
}
