//! What the tests of this crate share: a server over a device, a client that may send anything.

use std::rc::Rc;

use base::{Buf, Bytes, View};
use device::{Device, Memory};
use env::net::{Address, Listener, Stream};
use front::nbd::proto::{self, Fields, Request};
use front::nbd::{Config, Export, Limits, Server};

/// An address no other test of the same run uses (each simulated run has a network of its own).
pub fn address() -> Address {
    "127.0.0.1:10809".parse().expect("an address")
}

/// The same server as other hosts reach it, where it was made by [`serve_all`].
pub fn far_address() -> Address {
    "10.0.0.1:10809".parse().expect("an address")
}

pub fn export(name: &str, device: Rc<dyn Device>) -> Export {
    Export {
        name: name.into(),
        description: format!("the disk {name}"),
        device,
        read_only: false,
    }
}

/// A server of `vol0`, listening at [`address`].
pub fn serve(device: Rc<dyn Device>, limits: Limits) -> Rc<Server> {
    let server = Server::new(Config { limits, tls: None });
    server.add_export(export("vol0", device)).expect("exported");
    server.serve(Listener::bind(&address()).expect("a free port"));
    server
}

/// As [`serve`], on a host of the network, listening to all others too.
pub async fn serve_all(device: Rc<dyn Device>, limits: Limits) -> Rc<Server> {
    let server = "10.0.0.1".parse().expect("an address");
    env::net::sim::on_host(server, async {
        let server = Server::new(Config { limits, tls: None });
        server.add_export(export("vol0", device)).expect("exported");
        let all = "0.0.0.0:10809".parse().expect("an address");
        server.serve(Listener::bind(&all).expect("a free port"));
        server
    })
    .await
}

pub fn memory(size: Bytes) -> Rc<Memory> {
    Memory::new("ram", size)
}

/// A stream on which a test says what it likes.
pub struct Raw {
    pub stream: Stream,
}

impl Raw {
    pub async fn connect() -> Raw {
        Raw::connect_to(&address()).await
    }

    async fn connect_to(address: &Address) -> Raw {
        Raw {
            stream: Stream::connect(address).await.expect("connected"),
        }
    }

    /// Connected, greeted, and in transmission on the default export; structured if asked for.
    pub async fn entered(structured: bool) -> Raw {
        Raw::entered_at(&address(), structured).await
    }

    /// As [`Raw::entered`], at `address`.
    pub async fn entered_at(address: &Address, structured: bool) -> Raw {
        let raw = Raw::connect_to(address).await;
        raw.read(proto::GREETING_LEN).await;
        raw.send(&3u32.to_be_bytes()).await;
        if structured {
            raw.option(proto::opt::STRUCTURED_REPLY, &[]).await;
            assert_eq!(raw.option_reply().await.0, proto::rep::ACK);
        }
        raw.option(proto::opt::GO, &[0; 6]).await;
        while raw.option_reply().await.0 != proto::rep::ACK {}
        raw
    }

    pub async fn send(&self, bytes: &[u8]) {
        self.try_send(bytes).await.expect("sent");
    }

    pub async fn try_send(&self, bytes: &[u8]) -> std::io::Result<()> {
        self.stream.write_all(vec![View::copy_of(bytes)]).await
    }

    pub async fn read(&self, len: usize) -> Vec<u8> {
        let buf = self.stream.read_exact(Buf::for_read(len)).await;
        buf.expect("enough bytes").to_vec()
    }

    pub async fn option(&self, option: u32, data: &[u8]) {
        let mut out = Vec::new();
        proto::put_option(&mut out, option, data);
        self.send(&out).await;
    }

    /// The type and data of the next reply to an option.
    pub async fn option_reply(&self) -> (u32, Vec<u8>) {
        let head = self.read(proto::OPTION_REPLY_LEN).await;
        let mut fields = Fields(&head);
        assert_eq!(fields.u64(), Some(proto::OPTION_REPLY_MAGIC));
        fields.u32().expect("the option");
        let kind = fields.u32().expect("the type");
        let len = fields.u32().expect("the length");
        (kind, self.read(len as usize).await)
    }

    pub async fn request(&self, command: u16, flags: u16, cookie: u64, offset: u64, length: u32) {
        let request = Request {
            flags,
            command,
            cookie,
            offset,
            length,
        };
        self.send(&request.encode()).await;
    }

    /// The error code and cookie of the next simple reply.
    pub async fn simple_reply(&self) -> (u32, u64) {
        let head = self.read(proto::SIMPLE_REPLY_LEN).await;
        let mut fields = Fields(&head);
        assert_eq!(fields.u32(), Some(proto::SIMPLE_REPLY_MAGIC));
        (
            fields.u32().expect("the code"),
            fields.u64().expect("the cookie"),
        )
    }

    /// The flags, type, cookie and payload of the next chunk.
    pub async fn chunk(&self) -> (u16, u16, u64, Vec<u8>) {
        let head = self.read(proto::CHUNK_LEN).await;
        let mut fields = Fields(&head);
        assert_eq!(fields.u32(), Some(proto::CHUNK_MAGIC));
        let (flags, kind) = (fields.u16().expect("flags"), fields.u16().expect("a type"));
        let cookie = fields.u64().expect("the cookie");
        let len = fields.u32().expect("the length");
        (flags, kind, cookie, self.read(len as usize).await)
    }

    /// Has the server hung up?
    pub async fn is_over(&self) -> bool {
        !matches!(self.stream.read(Buf::for_read(1)).await, Ok((1, _)))
    }
}
