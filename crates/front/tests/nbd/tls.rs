//! TLS between our server and our client, in virtual time: who is let in, and that nothing is lost.

use std::rc::Rc;

use crate::common::{Raw, address, export, memory};
use base::{Buf, Bytes, Nanos, Sector, View};
use device::{Device as _, DeviceExt as _};
use env::net::Listener;
use env::{Rng, Runtime};
use front::nbd::proto::{Request, cmd, opt, rep};
use front::nbd::{
    ByCertificate, Client, ClientError, ClientOptions, ClientTls, Config, Limits, Server, Tls,
    TlsMode,
};

fn virtually<T: 'static>(test: impl Future<Output = T> + 'static) -> T {
    Runtime::simulated(5).block_on(test)
}

/// An authority of one run, which issues certificates.
struct Authority {
    issuer: rcgen::Issuer<'static, rcgen::KeyPair>,
    pem: String,
}

impl Authority {
    fn new() -> Authority {
        let mut params = rcgen::CertificateParams::new(vec![]).expect("parameters");
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let key = rcgen::KeyPair::generate().expect("a key");
        let pem = params.self_signed(&key).expect("signed").pem();
        Authority {
            issuer: rcgen::Issuer::new(params, key),
            pem,
        }
    }

    /// Certificate and key of `name`.
    fn issue(&self, name: &str) -> (String, String) {
        let params = rcgen::CertificateParams::new(vec![name.into()]).expect("parameters");
        let key = rcgen::KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.issuer).expect("signed").pem();
        (certificate, key.serialize_pem())
    }

    fn server(&self, mode: TlsMode, clients: Option<&Authority>) -> Tls {
        let (certificate, key) = self.issue("disk.example");
        let clients = clients.map(|authority| authority.pem.as_bytes());
        Tls::from_pem(mode, certificate.as_bytes(), key.as_bytes(), clients).expect("usable")
    }

    fn client(&self, own: Option<&Authority>) -> ClientOptions {
        self.client_called("client", own)
    }

    /// A client whose certificate, from `own`, has this name.
    fn client_called(&self, name: &str, own: Option<&Authority>) -> ClientOptions {
        let own = own.map(|authority| authority.issue(name));
        let own = own
            .as_ref()
            .map(|(cert, key)| (cert.as_bytes(), key.as_bytes()));
        let tls = ClientTls::from_pem("disk.example", self.pem.as_bytes(), own).expect("usable");
        ClientOptions {
            tls: Some(tls),
            ..ClientOptions::default()
        }
    }
}

fn serve(tls: Option<Tls>) -> Rc<Server> {
    let limits = Limits {
        negotiation: Nanos::secs(2),
        ..Limits::default()
    };
    let server = Server::new(Config { limits, tls });
    server
        .add_export(export("vol0", memory(Bytes::mib(16))))
        .expect("exported");
    server.serve(Listener::bind(&address()).expect("a free port"));
    server
}

#[test]
fn data_of_every_size_pass_through_tls_unharmed() {
    virtually(async {
        let authority = Authority::new();
        let server = serve(Some(authority.server(TlsMode::Offered, None)));
        let client = Client::connect(&address(), &authority.client(None))
            .await
            .expect("connected");
        assert!(server.snapshot().connections[0].tls);
        let mut rng = Rng::from_seed(1);
        for len in [512, 4096, 16_384, 70_144, 1 << 20, 9 << 20] {
            let mut data = Buf::for_read(len);
            rng.fill(&mut data);
            let data = data.freeze();
            client
                .write_at(Sector(1), data.clone())
                .await
                .expect("written");
            let read = client
                .read_at(Sector(1), Bytes(len as u64))
                .await
                .expect("read");
            assert!(read[..] == data[..], "{len} bytes");
        }
        let reads = (0..200u64).map(|n| client.read_at(Sector(1 + n * 8), Bytes(4096)));
        let all = env::sync::join_all(reads).await;
        assert!(all.into_iter().all(|read| read.is_ok()));
        client.close().await;
        server.drain().await;
        assert_eq!(server.snapshot().connections, []);
    });
}

#[test]
fn a_client_is_cut_when_the_certificate_that_it_showed_is_over() {
    virtually(async {
        let authority = Authority::new();
        let server = serve(Some(authority.server(TlsMode::Required, Some(&authority))));
        let long = Client::connect(&address(), &authority.client(Some(&authority)))
            .await
            .expect("connected");
        let ends = rcgen::date_time_ymd(2101, 1, 1);
        let mut params = rcgen::CertificateParams::new(vec!["client".into()]).expect("parameters");
        params.not_after = ends;
        let key = rcgen::KeyPair::generate().expect("a key");
        let own = params.signed_by(&key, &authority.issuer).expect("signed");
        let (own, key) = (own.pem(), key.serialize_pem());
        let own = Some((own.as_bytes(), key.as_bytes()));
        let tls = ClientTls::from_pem("disk.example", authority.pem.as_bytes(), own);
        let options = ClientOptions {
            tls: Some(tls.expect("usable")),
            ..ClientOptions::default()
        };
        let brief = Client::connect(&address(), &options)
            .await
            .expect("connected");
        // The clock is set: an hour and a half are left.
        let last = u64::try_from(ends.unix_timestamp()).expect("after 1970");
        let left = Nanos::secs(5400);
        let jump = Nanos::secs(last).0 - left.0 - env::wall_clock().0;
        env::net::sim::stopped(env::net::sim::host(), Nanos(jump));
        env::sleep(left).await;
        for client in [&brief, &long] {
            let read = client.read_at(Sector(0), Bytes(512)).await;
            read.expect("it is good in its last second");
        }
        env::sleep(Nanos::secs(2)).await;
        assert!(brief.read_at(Sector(0), Bytes(512)).await.is_err());
        long.read_at(Sector(0), Bytes(512)).await.expect("it stays");
        assert_eq!(server.snapshot().connections.len(), 1);
    });
}

#[test]
fn a_client_may_stay_in_the_clear_where_tls_is_offered_but_not_required() {
    virtually(async {
        let authority = Authority::new();
        let server = serve(Some(authority.server(TlsMode::Offered, None)));
        let plain = Client::connect(&address(), &ClientOptions::default()).await;
        assert!(plain.is_ok());
        drop(plain);
        server.drain().await;
    });
    virtually(async {
        let authority = Authority::new();
        let _server = serve(Some(authority.server(TlsMode::Required, None)));
        let refused = Client::connect(&address(), &ClientOptions::default())
            .await
            .err();
        assert!(
            matches!(&refused, Some(ClientError::Refused { kind, .. }) if *kind == rep::ERR_TLS_REQD),
            "{refused:?}"
        );
        assert!(Client::list(&address(), None).await.is_err());
        let options = authority.client(None);
        let listed = Client::list(&address(), options.tls.as_ref())
            .await
            .expect("listed");
        assert_eq!(listed.len(), 1);
    });
}

#[test]
fn another_certificate_counts_for_the_next_client_and_those_before_go_on() {
    virtually(async {
        let (before, after) = (Authority::new(), Authority::new());
        let server = serve(Some(before.server(TlsMode::Required, None)));
        let old = Client::connect(&address(), &before.client(None)).await;
        let old = old.expect("trusted");
        server.set_tls(Some(after.server(TlsMode::Required, None)));
        let late = Client::connect(&address(), &before.client(None)).await;
        assert!(late.is_err(), "the certificate is another one");
        let new = Client::connect(&address(), &after.client(None)).await;
        let new = new.expect("trusted");
        for client in [&old, &new] {
            client.read_at(Sector(0), Bytes(512)).await.expect("served");
        }
        server.set_tls(None);
        assert!(
            Client::connect(&address(), &after.client(None))
                .await
                .is_err()
        );
        new.close().await;
        old.close().await;
        server.drain().await;
    });
}

#[test]
fn a_stranger_is_not_trusted_on_either_side() {
    virtually(async {
        let (authority, strangers) = (Authority::new(), Authority::new());
        let server = serve(Some(authority.server(TlsMode::Required, Some(&authority))));
        for options in [
            // The client does not trust the server.
            strangers.client(Some(&authority)),
            // The server does not trust the client, or knows nothing of it.
            authority.client(Some(&strangers)),
            authority.client(None),
        ] {
            assert!(Client::connect(&address(), &options).await.is_err());
        }
        let friend = Client::connect(&address(), &authority.client(Some(&authority))).await;
        friend.expect("connected").flush().await.expect("served");
        env::sleep(Nanos::secs(3)).await;
        assert_eq!(server.snapshot().negotiations_failed, 3);
    });
}

#[test]
fn a_certificate_opens_the_exports_that_its_name_stands_for_and_no_others() {
    virtually(async {
        let authority = Authority::new();
        let named = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let clients = ByCertificate::from([
            ("host-a".to_owned(), named(&["vol1"])),
            ("backup".to_owned(), named(&["*"])),
            ("idle".to_owned(), named(&[])),
        ]);
        let tls = authority.server(TlsMode::Offered, Some(&authority));
        let server = serve(Some(tls.with_clients(clients)));
        server
            .add_export(export("vol1", memory(Bytes::mib(1))))
            .expect("exported");
        let served = async |client: &str, name: &str| {
            let options = ClientOptions {
                export: name.to_owned(),
                ..authority.client_called(client, Some(&authority))
            };
            Client::connect(&address(), &options).await.is_ok()
        };
        // The empty name asks for vol0, the default one.
        for (client, allowed) in [
            ("host-a", &["vol1"][..]),
            ("backup", &["", "vol0", "vol1"]),
            ("idle", &[]),
            ("stranger", &[]),
        ] {
            for name in ["", "vol0", "vol1", "vol2"] {
                let expected = allowed.contains(&name);
                assert_eq!(served(client, name).await, expected, "{client} {name}");
            }
            let options = authority.client_called(client, Some(&authority));
            let listed = Client::list(&address(), options.tls.as_ref()).await;
            let listed = listed.expect("listed");
            let names: Vec<&str> = listed.iter().map(|it| it.name.as_str()).collect();
            let named: Vec<&str> = allowed
                .iter()
                .filter(|it| !it.is_empty())
                .copied()
                .collect();
            assert_eq!(names, named, "{client}");
        }
        // A client without a certificate, or without TLS, has no name.
        let nameless = authority.client(None);
        assert!(Client::connect(&address(), &nameless).await.is_err());
        let plain = ClientOptions::default();
        assert!(Client::connect(&address(), &plain).await.is_err());
    });
}

#[test]
fn a_server_without_a_certificate_refuses_tls_and_the_client_does_not_go_on() {
    virtually(async {
        let _server = serve(None);
        let authority = Authority::new();
        let refused = Client::connect(&address(), &authority.client(None))
            .await
            .err();
        let why = refused
            .map(|refused| refused.to_string())
            .unwrap_or_default();
        assert_eq!(
            why,
            "the server refused STARTTLS (reply 0x80000002): this server has no certificate, so no TLS"
        );
    });
}

#[test]
fn bytes_slipped_in_before_the_handshake_end_the_session() {
    virtually(async {
        let authority = Authority::new();
        let server = serve(Some(authority.server(TlsMode::Required, None)));
        let raw = Raw::connect().await;
        raw.read(18).await;
        let mut bytes = 3u32.to_be_bytes().to_vec();
        front::nbd::proto::put_option(&mut bytes, opt::STARTTLS, &[]);
        // A stranger in the middle adds an option that should seem to come through TLS.
        front::nbd::proto::put_option(&mut bytes, opt::GO, &[0; 6]);
        raw.send(&bytes).await;
        assert_eq!(raw.option_reply().await.0, rep::ACK);
        assert!(raw.is_over().await);
        assert_eq!(server.snapshot().negotiations_failed, 1);
    });
}

#[test]
fn a_handshake_that_stalls_or_is_nonsense_is_cut() {
    virtually(async {
        let authority = Authority::new();
        let server = serve(Some(authority.server(TlsMode::Required, None)));
        let witness = Client::connect(&address(), &authority.client(None))
            .await
            .expect("connected");
        for nonsense in [None, Some([0x5a; 4096])] {
            let raw = Raw::connect().await;
            raw.read(18).await;
            raw.send(&3u32.to_be_bytes()).await;
            raw.option(opt::STARTTLS, &[]).await;
            assert_eq!(raw.option_reply().await.0, rep::ACK);
            if let Some(nonsense) = nonsense {
                // The server may hang up before it has taken all of it.
                let _ = raw.try_send(&nonsense).await;
            }
            let mut buf = Buf::for_read(4096);
            while let Ok((1.., back)) = raw.stream.read(buf).await {
                buf = back;
            }
        }
        witness
            .write_at(Sector(0), View::copy_of(&[1; 512]))
            .await
            .expect("written");
        env::sleep(Nanos::secs(1)).await;
        assert_eq!(server.snapshot().negotiations_failed, 2);
        assert_eq!(server.snapshot().connections.len(), 1);
    });
}

#[test]
fn a_request_in_the_clear_is_never_taken_where_tls_is_required() {
    virtually(async {
        let authority = Authority::new();
        let server = serve(Some(authority.server(TlsMode::Required, None)));
        let raw = Raw::connect().await;
        raw.read(18).await;
        raw.send(&3u32.to_be_bytes()).await;
        raw.option(opt::EXPORT_NAME, b"vol0").await;
        let read = Request {
            flags: 0,
            command: cmd::READ,
            cookie: 1,
            offset: 0,
            length: 512,
        };
        let _ = raw.try_send(&read.encode()).await;
        assert!(raw.is_over().await);
        assert_eq!(server.snapshot().exports[0].counts.reads, 0);
    });
}
