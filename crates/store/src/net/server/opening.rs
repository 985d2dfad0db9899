//! How a client comes in: hello, credentials, a session; or why it does not.
//!
//! ```text
//! TLS, where it is spoken -> its hello -> ours: version, limits, ways in -> its proof -> a session at the manager -> Opened, with our own proof
//! ```
//!
//! Always true: nothing is done for a client before it has shown what lets it in.

use std::io;
use std::rc::Rc;

use base::View;
use env::net::Stream;
use tls::{Certificate, Identity, Peer, Wire};

use super::frames::CONNECTION;
use super::limits::Limits;
use super::pace::Pace;
use super::requests::{Access, Behalf};
use super::terms::Terms;
use crate::net::wire::stream::{Inbox, Pieces, receiving};
use crate::net::wire::{
    CLIENT_HELLO_LEN, Challenge, ClientHello, Failure, HEADER_LEN, Header, Kind, Malformed,
    NodeKey, Op, Opened, Proof, REQUEST_META_MAX, RefusedKind, Request, Response, ServerHello,
    VERSION, Ways,
};
use crate::qos::load_report::ClientTag;
use crate::qos::manager::Manager;
use crate::qos::session::{Access as SessionAccess, Session};

/// A client that was let in.
pub(super) struct In {
    pub wire: Rc<Wire>,
    pub inbox: Inbox,
    pub terms: Terms,
}

/// Why a client was not let in.
pub(super) enum NotIn {
    Lost(io::Error),
    /// TLS was not agreed on.
    Tls(io::Error),
    /// What the server answers.
    Refused(u16, u64, Failure),
    /// The server has answered already.
    Version(u16, u16),
}

impl From<io::Error> for NotIn {
    fn from(error: io::Error) -> NotIn {
        NotIn::Lost(error)
    }
}

impl From<Malformed> for NotIn {
    fn from(why: Malformed) -> NotIn {
        let failure = Failure::refused(RefusedKind::Malformed, why.to_string());
        NotIn::Refused(CONNECTION, 0, failure)
    }
}

/// One client on its way in.
pub(super) struct Opening<'a> {
    pub id: u64,
    pub peer: &'a str,
    pub limits: &'a Limits,
    pub manager: &'a Rc<Manager>,
    pub key: Option<&'a NodeKey>,
    pub wire: &'a Rc<Wire>,
    /// What its certificate says.
    pub shown: Option<&'a Certificate>,
    pub pace: &'a Pace,
    /// It came where this machine alone comes. Where that is may have changed since.
    pub is_near: bool,
}

impl Opening<'_> {
    /// From its hello to its session.
    pub async fn open(&self) -> Result<In, NotIn> {
        let mut inbox = receiving(self.wire, &self.pace.reading);
        let theirs: [u8; CLIENT_HELLO_LEN] = inbox.take().await?;
        let hello = ClientHello::parse(&theirs)?;
        let ours = self.hello(&hello);
        let challenge = Challenge {
            client: theirs,
            server: ours.encode(),
        };
        self.wire
            .write_all(vec![View::copy_of(&challenge.server)])
            .await?;
        if ours.version == 0 {
            return Err(NotIn::Version(hello.version_min, hello.version_max));
        }
        let (id, shown) = shown(&mut inbox).await?;
        let refused = |text: String| {
            let failure = Failure::refused(RefusedKind::Access, text);
            NotIn::Refused(Op::Open as u16, id, failure)
        };
        let (access, proof) = self.prove(&challenge, &shown).map_err(refused)?;
        // Noted before the token is looked at: a key that is voided from now on ends the connection.
        let keys = self.manager.voided();
        let session = self.manager.open_session(access);
        let session = session.map_err(|why| refused(why.to_string()))?;
        let opened = Response::Opened(Opened {
            name: self.manager.store().name().to_owned(),
            proof,
            memory: session.memory(),
            wall_clock: env::wall_clock(),
        });
        self.pace.reading.end();
        send_one(self.wire, Op::Open as u16, id, &opened).await?;
        let terms = self.terms(session, &shown, keys, ours.data_max);
        Ok(In {
            wire: Rc::clone(self.wire),
            inbox,
            terms,
        })
    }

    fn terms(&self, session: Rc<Session>, shown: &Proof, keys: u64, data_max: u32) -> Terms {
        let (access, token) = match shown {
            Proof::Open => (Access::Open, None),
            Proof::NodeKey(_) => (Access::NodeKey, None),
            Proof::Capability(token) => (Access::Capability, Some(token.clone())),
        };
        Terms {
            token,
            keys,
            _peer: session.joined(self.peer),
            behalf: Behalf {
                manager: Rc::clone(self.manager),
                session,
                access,
                fence: None,
                tag: ClientTag::unknown(self.id),
                data_max,
            },
        }
    }

    /// What the server says to `theirs`.
    fn hello(&self, theirs: &ClientHello) -> ServerHello {
        let speaks = theirs.version_min <= VERSION && theirs.version_max >= VERSION;
        let mut fresh = [0; 32];
        env::secret("store server nonces", &mut fresh);
        let nonce = match self.key {
            Some(key) => key.nonce(&fresh),
            None => fresh,
        };
        let data_max = (self.limits.data_max.0 as u32).min(theirs.data_max);
        let write_max = self.manager.store().write_max().min(u64::from(data_max));
        ServerHello {
            version: if speaks { VERSION } else { 0 },
            version_min: VERSION,
            version_max: VERSION,
            ways: Ways {
                open: self.manager.unauthenticated(),
                node_key: self.key.is_some(),
                capability: true,
            },
            nonce,
            store: self.manager.store().uuid(),
            data_max,
            requests_max: self.limits.requests_per_connection,
            write_max: write_max as u32,
            idle_ms: u32::try_from(self.limits.idle.0 / 1_000_000).unwrap_or(u32::MAX),
        }
    }

    /// A client that shows neither key nor capability, by the account that its certificate may name.
    fn unproved(&self) -> SessionAccess<'_> {
        match self.shown.map(|shown| &shown.peer) {
            Some(Peer::Account(name)) => SessionAccess::Account(name),
            _ => SessionAccess::Open,
        }
    }

    /// In TLS nodes come in with a certificate of their own beside the key that all share: why not with this one.
    fn is_node(&self) -> Result<(), String> {
        let identity = self.shown.map_or(&Peer::Unknown, |shown| &shown.peer);
        match (&**self.wire, identity) {
            (Wire::Plain(_), _) | (Wire::Tls(_), Peer::Node(_)) => Ok(()),
            (Wire::Tls(_), other) => Err(format!(
                "cannot let a node in: in TLS a node shows a certificate of the cluster, and this is {other}; make one with \
                 `tanada node create`"
            )),
        }
    }

    /// As what a client comes in by what it shows, and what this server shows in return; why it does not.
    fn prove<'p>(
        &'p self,
        challenge: &Challenge,
        shown: &'p Proof,
    ) -> Result<(SessionAccess<'p>, [u8; 32]), String> {
        let proof = match shown {
            Proof::Open if !self.is_near && self.manager.unauthenticated() => {
                let store = self.manager.store().name();
                return Err(format!(
                    "{store} lets in clients without credentials from its own machine alone; come with a capability"
                ));
            }
            Proof::Open => return Ok((self.unproved(), [0; 32])),
            Proof::Capability(token) => return Ok((SessionAccess::Capability(token), [0; 32])),
            Proof::NodeKey(proof) => proof,
        };
        self.is_node()?;
        let store = self.manager.store().name();
        let Some(key) = self.key else {
            return Err(format!(
                "cannot let a node in: {store} has no node key; give it the cluster's key, or come with a capability"
            ));
        };
        match key.is_client(challenge, proof) {
            true => Ok((
                SessionAccess::NodeKey,
                NodeKey::server_proof(key, challenge),
            )),
            false => Err(format!(
                "cannot let a node in: what it shows was not made with the node key of {store}; give both the same key"
            )),
        }
    }
}

/// What a client speaks through, and what the certificate says that it showed. In the clear where the server has no identity.
pub(super) async fn secured(
    stream: &Rc<Stream>,
    tls: Option<&Rc<Identity>>,
) -> Result<(Wire, Option<Certificate>), NotIn> {
    match tls {
        None => Ok((Wire::Plain(Rc::clone(stream)), None)),
        Some(identity) => identity.accept(Rc::clone(stream)).await.map_err(NotIn::Tls),
    }
}

/// Why a client is sent away whose certificate is revoked.
pub(super) fn is_good(
    tls: Option<&Rc<Identity>>,
    shown: Option<&Certificate>,
) -> Result<(), NotIn> {
    match tls.and_then(|identity| identity.refusal(shown)) {
        None => Ok(()),
        Some(why) => {
            let failure = Failure::refused(RefusedKind::Access, why);
            Err(NotIn::Refused(CONNECTION, 0, failure))
        }
    }
}

/// The first request: its number, and what it shows.
async fn shown(inbox: &mut Inbox) -> Result<(u64, Proof), NotIn> {
    let head = inbox.take::<HEADER_LEN>().await?;
    let header = Header::parse(&head, Kind::Request)?;
    if header.op != Op::Open as u16 {
        let why = "the first request must be the opening, with the client's credentials";
        let failure = Failure::refused(RefusedKind::OutOfTurn, why);
        return Err(NotIn::Refused(header.op, header.id, failure));
    }
    let meta = meta(inbox, &header).await?;
    let Request::Open(proof) = Request::decode(Op::Open, &meta)? else {
        unreachable!("the fields of an opening are one")
    };
    Ok((header.id, proof))
}

/// A request's fields. The data of an opening are none.
async fn meta(inbox: &mut Inbox, header: &Header) -> Result<Vec<u8>, NotIn> {
    if header.meta_len as usize > REQUEST_META_MAX || header.data_len != 0 {
        return Err(Malformed(format!(
            "an opening has at most {REQUEST_META_MAX} bytes of fields and no data; this one has {} and {}",
            header.meta_len, header.data_len
        ))
        .into());
    }
    let len = header.meta_len as usize;
    inbox.need(len).await?;
    let meta = inbox.here()[..len].to_vec();
    inbox.skip(len);
    header.check_meta(&meta)?;
    Ok(meta)
}

/// One answer, by itself.
pub(super) async fn send_one(wire: &Wire, op: u16, id: u64, answer: &Response) -> io::Result<()> {
    let (status, meta, _) = answer.parts();
    let header = Header::of(op, status, id, &meta, &[]);
    let mut pieces = Pieces::default();
    pieces.put(&header.encode(Kind::Response));
    pieces.put(&meta);
    wire.write_all(pieces.take()).await
}
