//! How a client comes in: hello, credentials, the server's answers to both.
//!
//! ```text
//! TLS, where it is spoken -> our hello -> its hello: version, limits -> our proof -> Opened: name, memory, its own proof
//! ```
//!
//! Always true: nothing is done with a server whose limits contradict each other, or that does not show that it knows the node
//! key where the client showed it.

use std::io;
use std::rc::Rc;

use base::{Buf, Nanos, View};
use env::net::Stream;
use tls::Wire;

use super::error::ClientError;
use super::options::{ClientOptions, Credentials};
use crate::net::wire::stream::{Inbox, Pieces, TransferTimeout, receiving};
use crate::net::wire::{
    Challenge, ClientHello, HEADER_LEN, Header, Kind, NodeKey, Op, Opened, Proof, REQUEST_META_MAX,
    Request, Response, SERVER_HELLO_LEN, ServerHello, VERSION,
};

/// Longest fields of an answer that are looked at where they were received.
pub(super) const IN_PLACE_MAX: usize = 16 << 10;

/// A client that was let in.
pub(super) struct Entered {
    pub wire: Rc<Wire>,
    /// What the server's certificate says.
    pub shown: Option<tls::Certificate>,
    pub inbox: Inbox,
    pub server: ServerHello,
    pub opened: Opened,
    pub clock_ahead_ns: i64,
}

/// Says hello over `stream`, by way of `tls` if it is spoken there, and shows `credentials`; `server` names the other side in
/// errors.
pub(super) async fn enter(
    stream: &Rc<Stream>,
    (server, tls): (&str, Option<&tls::Client>),
    credentials: &Credentials,
    options: &ClientOptions,
) -> Result<Entered, ClientError> {
    let at = Opening(server);
    let stream = Rc::clone(stream);
    let (wire, shown) = match tls {
        None => (Wire::Plain(stream), None),
        Some(tls) => tls.connect(stream).await.map_err(|why| at.stream(why))?,
    };
    let wire = Rc::new(wire);
    // The whole opening has one deadline; later the watch judges.
    let timeout = Rc::new(TransferTimeout::new(Nanos::secs(3600), 1));
    let mut inbox = receiving(&wire, &timeout);
    let data_max = options.data_max.0 as u32;
    let hello = ClientHello {
        version_min: VERSION,
        version_max: VERSION,
        data_max,
        nonce: nonce(credentials),
    };
    let ours = hello.encode();
    let sent = wire.write_all(vec![View::copy_of(&ours)]).await;
    sent.map_err(|error| at.stream(error))?;
    let theirs = at.hello(&mut inbox).await?;
    let hello = at.judge(&theirs, data_max)?;
    let challenge = Challenge {
        client: ours,
        server: theirs,
    };
    at.show(&wire, &challenge, credentials).await?;
    let opened = at.opened(&mut inbox, &challenge, credentials).await?;
    let ahead = opened.wall_clock.0 as i128 - i128::from(env::wall_clock().0);
    Ok(Entered {
        wire,
        shown,
        inbox,
        server: hello,
        opened,
        clock_ahead_ns: i64::try_from(ahead).unwrap_or(i64::MAX),
    })
}

fn nonce(credentials: &Credentials) -> [u8; 32] {
    let mut fresh = [0; 32];
    env::secret("store client nonces", &mut fresh);
    match credentials {
        Credentials::NodeKey(key) => NodeKey(*key).nonce(&fresh),
        _ => fresh,
    }
}

/// Errors on the way in name the server.
struct Opening<'a>(&'a str);

impl Opening<'_> {
    fn stream(&self, error: io::Error) -> ClientError {
        ClientError::unreachable(self.0, &error)
    }

    fn protocol(&self, why: impl ToString) -> ClientError {
        ClientError::Protocol {
            server: self.0.to_owned(),
            why: why.to_string(),
        }
    }

    /// The server's hello; or its words, if it has none.
    async fn hello(&self, inbox: &mut Inbox) -> Result<[u8; SERVER_HELLO_LEN], ClientError> {
        loop {
            // A server that cannot make sense of our hello, or does not want us, says so in a frame, longer than a hello perhaps.
            if let Some(head) = inbox.peek::<HEADER_LEN>()
                && let Ok(header) = Header::parse(&head, Kind::Response)
            {
                let answer = self.answer(inbox, &header, None).await?;
                return Err(self.refused(answer));
            }
            if let Some(hello) = inbox.peek::<SERVER_HELLO_LEN>() {
                inbox.skip(SERVER_HELLO_LEN);
                return Ok(hello);
            }
            if tls::looks_like_tls(inbox.here()) {
                return Err(self.protocol(format!(
                    "it speaks TLS; write its address as tls:{} and name the authority (--ca, TANADA_CA)",
                    self.0
                )));
            }
            match inbox.receive().await {
                Ok(true) => {}
                Ok(false) => return Err(self.protocol("it hung up before its hello was over")),
                Err(error) => return Err(self.stream(error)),
            }
        }
    }

    /// The server's hello, if this program can speak with it within `data_max`.
    fn judge(
        &self,
        theirs: &[u8; SERVER_HELLO_LEN],
        data_max: u32,
    ) -> Result<ServerHello, ClientError> {
        let hello = ServerHello::parse(theirs).map_err(|why| self.protocol(why))?;
        if hello.version != VERSION {
            return Err(ClientError::Version {
                server: self.0.to_owned(),
                min: hello.version_min,
                max: hello.version_max,
                ours: VERSION,
            });
        }
        if hello.data_max > data_max || hello.write_max > hello.data_max || hello.requests_max == 0
        {
            return Err(self.protocol("the limits in its hello contradict each other or ours"));
        }
        Ok(hello)
    }

    /// Shows what the client may come in with.
    async fn show(
        &self,
        wire: &Wire,
        challenge: &Challenge,
        credentials: &Credentials,
    ) -> Result<(), ClientError> {
        let proof = match credentials {
            Credentials::Open => Proof::Open,
            Credentials::NodeKey(key) => Proof::NodeKey(NodeKey(*key).client_proof(challenge)),
            Credentials::Capability(token) if token.len() > REQUEST_META_MAX - 16 => {
                return Err(self.protocol("no capability is so long"));
            }
            Credentials::Capability(token) => Proof::Capability(token.clone()),
        };
        let meta = Request::Open(proof).encode();
        let header = Header::of(Op::Open as u16, 0, 1, &meta, &[]);
        let mut pieces = Pieces::default();
        pieces.put(&header.encode(Kind::Request));
        pieces.put(&meta);
        let sent = wire.write_all(pieces.take()).await;
        sent.map_err(|error| self.stream(error))
    }

    /// What the server says to that.
    async fn opened(
        &self,
        inbox: &mut Inbox,
        challenge: &Challenge,
        credentials: &Credentials,
    ) -> Result<Opened, ClientError> {
        let ended = |error: io::Error| match error.kind() {
            io::ErrorKind::UnexpectedEof => self.protocol("it hung up before it let us in"),
            _ => self.stream(error),
        };
        inbox.need(HEADER_LEN).await.map_err(ended)?;
        let head = inbox.peek::<HEADER_LEN>().expect("needed just now");
        let header = Header::parse(&head, Kind::Response).map_err(|why| self.protocol(why))?;
        let opened = match self.answer(inbox, &header, Some(1)).await? {
            Response::Opened(opened) => opened,
            other => return Err(self.refused(other)),
        };
        if let Credentials::NodeKey(key) = credentials
            && !NodeKey(*key).is_server(challenge, &opened.proof)
        {
            return Err(ClientError::Impostor {
                server: self.0.to_owned(),
            });
        }
        Ok(opened)
    }

    /// The answer of which the header is there.
    async fn answer(
        &self,
        inbox: &mut Inbox,
        header: &Header,
        id: Option<u64>,
    ) -> Result<Response, ClientError> {
        let op = match (header.op, id) {
            (0, _) => Op::Ping,
            (op, Some(id)) if op == Op::Open as u16 && header.id == id => Op::Open,
            _ => return Err(self.protocol("it answers what was not asked")),
        };
        let len = header.meta_len as usize;
        if len > IN_PLACE_MAX || header.data_len > 0 {
            return Err(self.protocol("its answer to the opening is too long"));
        }
        inbox.skip(HEADER_LEN);
        let needed = inbox.need(len).await;
        needed.map_err(|error| self.stream(error))?;
        let meta = inbox.here()[..len].to_vec();
        inbox.skip(len);
        header.check_meta(&meta).map_err(|why| self.protocol(why))?;
        Response::decode(op, header.status, &meta, Buf::for_read(0))
            .map_err(|why| self.protocol(why))
    }

    fn refused(&self, answer: Response) -> ClientError {
        match answer {
            Response::Failed(failure) => failure.into(),
            other => self.protocol(format!("it answers the opening with {other:?}")),
        }
    }
}
