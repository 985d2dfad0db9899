//! How does a client agree with a server on an export?
//!
//! ```text
//! greeting -> flags -> STARTTLS? -> STRUCTURED_REPLY? -> SET_META_CONTEXT? -> GO: facts -> Agreed
//! ```
//!
//! Always true: a reply is one to the option just sent, and at most [`REPLY_MAX`] long.

use std::io;
use std::rc::Rc;
use std::sync::Arc;

use base::{Bytes, Nanos, View};
use device::Info;
use env::net::Stream;
use env::net::message::{Inbox, TransferTimeout};
use tls::{TlsWire, Wire};

use super::super::proto::{self, ALLOCATION, Fields, GREETING_LEN, OPTION_REPLY_LEN};
use super::super::proto::{OPTION_REPLY_MAGIC, STRING_MAX, can, handshake, info, opt, rep};
use super::super::tls::ClientTls;

/// Longest reply to an option, and longest chunk without data, that is accepted.
pub(super) const REPLY_MAX: usize = 32 << 10;
/// Receive buffer.
const RECEIVE_BUFFER: Bytes = Bytes::kib(256);
/// A rest of a payload longer than this is received straight into its own buffer.
const DIRECT_FROM: Bytes = Bytes::kib(32);

/// What to ask for.
#[derive(Clone)]
pub struct ClientOptions {
    /// The export's name; empty for the default one.
    pub export: String,
    /// Ask for structured replies (and with them for sentences, holes and block status).
    pub structured: bool,
    /// Go on in TLS, or not at all.
    pub tls: Option<ClientTls>,
    /// Time for connecting and the whole negotiation.
    pub timeout: Nanos,
}

impl Default for ClientOptions {
    fn default() -> ClientOptions {
        ClientOptions {
            export: String::new(),
            structured: true,
            tls: None,
            timeout: Nanos::secs(30),
        }
    }
}

/// An export in a server's list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// Its name.
    pub name: String,
    /// Its description; empty if there is none.
    pub description: String,
}

/// Why a client could not connect.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// The stream could not be opened, or broke.
    #[error("cannot talk to the NBD server: {0}")]
    Stream(#[from] io::Error),
    /// What the server sent is not the protocol.
    #[error("the server does not speak NBD as it should: {0}")]
    Protocol(String),
    /// The server refused an option.
    #[error("the server refused {option} (reply {kind:#x}): {why}")]
    Refused {
        /// Which option.
        option: &'static str,
        /// The reply's type.
        kind: u32,
        /// The server's sentence, if it sent one.
        why: String,
    },
    /// It took too long.
    #[error("the negotiation took longer than {0}")]
    Late(Nanos),
}

fn protocol<T>(why: impl Into<String>) -> Result<T, ClientError> {
    Err(ClientError::Protocol(why.into()))
}

/// A negotiation under way, and the stream it goes over.
pub(super) struct Talk {
    pub(super) stream: Rc<Stream>,
    pub(super) wire: Rc<Wire>,
    pub(super) inbox: Inbox<Wire>,
}

fn receiving(wire: &Rc<Wire>) -> Inbox<Wire> {
    // The whole negotiation has one deadline; later a slow server is the caller's to judge.
    let unhurried = Rc::new(TransferTimeout::new(Nanos::secs(3600), 1));
    Inbox::new(Rc::clone(wire), RECEIVE_BUFFER, DIRECT_FROM, unhurried)
}

impl Talk {
    /// Hello, and TLS if there is to be one.
    pub(super) async fn begin(
        stream: Stream,
        tls: Option<&ClientTls>,
    ) -> Result<Talk, ClientError> {
        let stream = Rc::new(stream);
        let wire = Rc::new(Wire::Plain(Rc::clone(&stream)));
        let inbox = receiving(&wire);
        let mut talk = Talk {
            stream,
            wire,
            inbox,
        };
        let greeting = talk.inbox.take::<GREETING_LEN>().await?;
        let mut fields = Fields(&greeting);
        if (fields.u64(), fields.u64()) != (Some(proto::GREETING_MAGIC), Some(proto::OPTION_MAGIC))
        {
            return protocol("its greeting is not newstyle");
        }
        let offered = fields.u16().unwrap_or(0);
        if offered & handshake::FIXED_NEWSTYLE == 0 {
            return protocol("it does not offer fixed newstyle");
        }
        let taken = offered & (handshake::FIXED_NEWSTYLE | handshake::NO_ZEROES);
        talk.send(&u32::from(taken).to_be_bytes()).await?;
        if let Some(tls) = tls {
            talk.option(opt::STARTTLS, &[]).await?;
            talk.accepted(opt::STARTTLS, "STARTTLS").await?;
            if !talk.inbox.here().is_empty() {
                return protocol("it sent bytes in the clear after it agreed to TLS");
            }
            let config = Arc::clone(&tls.config);
            let session = rustls::ClientConnection::new(config, tls.server.clone())
                .map_err(io::Error::other)?;
            let tls = TlsWire::handshake(Rc::clone(&talk.stream), session.into()).await?;
            talk.wire = Rc::new(Wire::Tls(Box::new(tls)));
            talk.inbox = receiving(&talk.wire);
        }
        Ok(talk)
    }

    async fn send(&self, bytes: &[u8]) -> io::Result<()> {
        self.wire.write_all(vec![View::copy_of(bytes)]).await
    }

    async fn option(&self, option: u32, data: &[u8]) -> io::Result<()> {
        let mut out = Vec::new();
        proto::put_option(&mut out, option, data);
        self.send(&out).await
    }

    /// One reply to `option`: its type and data.
    async fn reply(&mut self, option: u32) -> Result<(u32, Vec<u8>), ClientError> {
        let head = self.inbox.take::<OPTION_REPLY_LEN>().await?;
        let mut fields = Fields(&head);
        if (fields.u64(), fields.u32()) != (Some(OPTION_REPLY_MAGIC), Some(option)) {
            return protocol(format!("its reply is not one to option {option}"));
        }
        let kind = fields.u32().unwrap_or(0);
        let len = fields.u32().unwrap_or(u32::MAX) as usize;
        if len > REPLY_MAX {
            return protocol(format!(
                "a reply to option {option} of {len} bytes is too long"
            ));
        }
        self.inbox.need(len).await?;
        let data = self.inbox.here()[..len].to_vec();
        self.inbox.skip(len);
        Ok((kind, data))
    }

    /// Replies up to the final one: what came before it.
    async fn replies(
        &mut self,
        option: u32,
        name: &'static str,
    ) -> Result<Vec<(u32, Vec<u8>)>, ClientError> {
        let mut found = Vec::new();
        loop {
            let (kind, data) = self.reply(option).await?;
            if kind == rep::ACK {
                return Ok(found);
            }
            if kind & rep::ERROR != 0 {
                let why = String::from_utf8_lossy(&data).into_owned();
                return Err(ClientError::Refused {
                    option: name,
                    kind,
                    why,
                });
            }
            found.push((kind, data));
        }
    }

    async fn accepted(&mut self, option: u32, name: &'static str) -> Result<(), ClientError> {
        self.replies(option, name).await.map(|_| ())
    }

    /// The exports that the server lists.
    pub(super) async fn list(mut self) -> Result<Vec<Listed>, ClientError> {
        self.option(opt::LIST, &[]).await?;
        let mut listed = Vec::new();
        for (kind, data) in self.replies(opt::LIST, "LIST").await? {
            let mut fields = Fields(&data);
            let (rep::SERVER, Some(name)) = (kind, fields.string()) else {
                return protocol("an entry of its list makes no sense");
            };
            let description = String::from_utf8_lossy(fields.0).into_owned();
            listed.push(Listed {
                name: name.to_owned(),
                description,
            });
        }
        self.option(opt::ABORT, &[]).await?;
        // The protocol lets a server hang up without this answer.
        let _ = self.accepted(opt::ABORT, "ABORT").await;
        Ok(listed)
    }

    /// Everything up to the first request.
    pub(super) async fn agree(&mut self, options: &ClientOptions) -> Result<Agreed, ClientError> {
        let mut structured = false;
        let mut allocation = false;
        if options.structured {
            self.option(opt::STRUCTURED_REPLY, &[]).await?;
            structured = self
                .accepted(opt::STRUCTURED_REPLY, "STRUCTURED_REPLY")
                .await
                .is_ok();
        }
        if structured {
            let mut query = Vec::new();
            proto::put_string(&mut query, &options.export);
            query.extend(1u32.to_be_bytes());
            proto::put_string(&mut query, ALLOCATION);
            self.option(opt::SET_META_CONTEXT, &query).await?;
            let contexts = self
                .replies(opt::SET_META_CONTEXT, "SET_META_CONTEXT")
                .await;
            allocation = matches!(contexts, Ok(found) if !found.is_empty());
        }
        let mut ask = Vec::new();
        proto::put_string(&mut ask, &options.export);
        let wanted = [info::NAME, info::DESCRIPTION, info::BLOCK_SIZE];
        ask.extend((wanted.len() as u16).to_be_bytes());
        for kind in wanted {
            ask.extend(kind.to_be_bytes());
        }
        self.option(opt::GO, &ask).await?;
        let facts = self.replies(opt::GO, "GO").await?;
        let mut learnt = Learnt {
            name: options.export.clone(),
            ..Learnt::default()
        };
        for (kind, data) in facts {
            if kind == rep::INFO && learnt.fact(&data).is_none() {
                return protocol("a fact about the export makes no sense");
            }
        }
        Ok(Agreed {
            info: learnt.info()?,
            flags: learnt.flags,
            structured,
            allocation,
            description: learnt.description,
        })
    }
}

/// What both sides agreed on.
pub(super) struct Agreed {
    pub(super) info: Info,
    /// The transmission flags the server announced.
    pub(super) flags: u16,
    pub(super) structured: bool,
    /// `base:allocation` may be asked about.
    pub(super) allocation: bool,
    pub(super) description: String,
}

/// What the server says of the export.
#[derive(Default)]
struct Learnt {
    name: String,
    description: String,
    size: u64,
    flags: u16,
    block: Option<(u32, u32, u32)>,
}

impl Learnt {
    fn fact(&mut self, data: &[u8]) -> Option<()> {
        let mut fields = Fields(data);
        match fields.u16()? {
            info::EXPORT => {
                self.size = fields.u64()?;
                self.flags = fields.u16()?;
            }
            info::NAME => self.name = proto::text(fields.0)?.to_owned(),
            info::DESCRIPTION => {
                let text = fields.bytes(fields.0.len().min(STRING_MAX))?;
                self.description = String::from_utf8_lossy(text).into_owned();
            }
            info::BLOCK_SIZE => {
                self.block = Some((fields.u32()?, fields.u32()?, fields.u32()?));
            }
            _ => {}
        }
        Some(())
    }

    /// The export as a device.
    fn info(&self) -> Result<Info, ClientError> {
        if self.flags & can::HAS_FLAGS == 0 {
            return protocol("it did not describe the export");
        }
        // Defaults of the protocol for a server that names no block sizes.
        let (least, preferred, most) = self.block.unwrap_or((512, 4096, 32 << 20));
        if least > 512 || most < 512 {
            return protocol(format!(
                "its blocks of {least} to {most} bytes do not fit devices of 512-byte sectors"
            ));
        }
        let has = |bit: u16| self.flags & bit != 0;
        Ok(Info {
            name: if self.name.is_empty() {
                "nbd".into()
            } else {
                self.name.clone()
            },
            size: Bytes(self.size - self.size % 512),
            physical_block: Bytes(u64::from(preferred).next_power_of_two().max(512)),
            max_io: Bytes(u64::from(most.min(32 << 20) & !511)),
            volatile_cache: has(can::FLUSH),
            discards: has(can::TRIM),
            rotational: has(can::ROTATIONAL),
            read_only: has(can::READ_ONLY),
            crash_keeping: false,
        })
    }
}
