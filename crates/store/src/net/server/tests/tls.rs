//! TLS at a store's addresses: who comes in by which certificate, how long, and what strangers get.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::sync::Arc;

use ::tls::authority::{Authority, KeyKind, LEAF_DAYS, Subject};
use ::tls::{Client as ClientTls, Expected, Identity, Material, Peer, TlsWire, Wire};
use env::net::message::Channel as _;
use rustls::pki_types::ServerName;

use super::*;

/// Of one run: an authority that issues certificates. Ed25519, so that the lengths of handshakes never vary.
struct Ca {
    authority: Authority,
    issued: Cell<u8>,
}

fn seconds_now() -> u64 {
    env::wall_clock().0 / Nanos::secs(1).0
}

fn node(name: &str) -> Peer {
    Peer::Node(name.to_owned())
}

impl Ca {
    fn new(number: u8) -> Ca {
        let life = (seconds_now(), 3650);
        let name = format!("authority {number}");
        let made = Authority::make(&name, KeyKind::Ed25519, life, [number; 16]);
        let (authority, _) = made.expect("made");
        Ca {
            authority,
            issued: Cell::new(number),
        }
    }

    fn material(&self, peer: Option<Peer>, days: u64) -> Material {
        let own = peer.map(|peer| {
            self.issued.set(self.issued.get() + 1);
            let hosts = vec!["10.0.0.1".to_owned()];
            let life = (seconds_now(), days);
            let random = [self.issued.get(); 16];
            let account_id = None;
            let subject = Subject {
                peer,
                account_id,
                hosts,
            };
            let issued = self.authority.issue(&subject, life, random);
            let issued = issued.expect("issued");
            (issued.certificate.into_bytes(), issued.key.into_bytes())
        });
        Material {
            authority: self.authority.certificate.clone().into_bytes(),
            own,
        }
    }

    fn identity(&self, peer: Option<Peer>) -> Rc<Identity> {
        Identity::new(&self.material(peer, LEAF_DAYS)).expect("usable")
    }
}

/// The store of node n1, at `tls:10.0.0.1:7400` and in the clear at its loopback.
async fn secure_site(identity: &Rc<Identity>, limits: Limits) -> Site {
    let device = Memory::new("disk", Bytes::mib(64));
    let options = ManagerOptions {
        node_key: Some(KEY),
        ..options()
    };
    let identity = Rc::clone(identity);
    let (device, server) = sim::on_host(host(1), async move {
        let manager = manager(&device, options).await;
        let server = Server::with_tls(manager, limits, Some(identity));
        for address in ["tls:0.0.0.0:7400", "127.0.0.1:7401"] {
            let listener = Listener::bind(&address.parse().expect("an address"));
            server.serve(listener.expect("free")).expect("served");
        }
        (device, server)
    })
    .await;
    Site {
        server,
        device,
        address: "tls:10.0.0.1:7400".parse().expect("an address"),
    }
}

async fn come_as(
    site: &Site,
    identity: &Rc<Identity>,
    expected: Expected,
    credentials: Credentials,
) -> Result<Client, ClientError> {
    let options = ClientOptions {
        tls: Some(ClientTls {
            identity: Rc::clone(identity),
            expected,
        }),
        ..ClientOptions::default()
    };
    Client::connect_with(&site.address, credentials, &options).await
}

/// As a node that looks for n1.
async fn come(site: &Site, identity: &Rc<Identity>) -> Result<Client, ClientError> {
    come_as(site, identity, Expected::Node("n1".into()), SECRET).await
}

fn why(refused: Result<Client, ClientError>) -> String {
    refused.map(drop).expect_err("refused").to_string()
}

fn serial_of(identity: &Identity) -> ::tls::Serial {
    identity.own().expect("it has one").serial
}

// --- who ------------------------------------------------------------------------------------------------

#[test]
fn a_node_comes_in_with_its_certificate_and_the_key_and_with_nothing_less() {
    in_virtual_time(60, async {
        let ca = Ca::new(1);
        let site = secure_site(&ca.identity(Some(node("n1"))), Limits::default()).await;
        let client = come(&site, &ca.identity(Some(node("n2"))))
            .await
            .expect("let in");
        let data = View::copy_of(&vec![5; 1 << 20]);
        let change = Change::FUA.creating();
        client
            .write("a", 0, data.clone(), change)
            .await
            .expect("written");
        let read = client.read("a", 0, 1 << 20).await.expect("read");
        assert!(read[..] == data[..]);
        let figures = site.server.figures().connections;
        assert_eq!(figures[0].identity.as_deref(), Some("node n2"));
        assert!(figures[0].encrypted);

        for (peer, said) in [
            (None, "without a certificate of the cluster"),
            (Some(Peer::Account("astro".into())), "this is account astro"),
        ] {
            let refused = why(come(&site, &ca.identity(peer)).await);
            assert!(refused.contains(said), "{refused}");
        }
        let wrong = Credentials::NodeKey([8; 32]);
        let expected = Expected::Node("n1".into());
        let refused = come_as(&site, &ca.identity(Some(node("n3"))), expected, wrong).await;
        assert!(why(refused).contains("not made with the node key"));
    });
}

#[test]
fn a_capability_opens_without_a_certificate_and_the_identity_of_one_is_known() {
    in_virtual_time(61, async {
        let ca = Ca::new(1);
        let site = secure_site(&ca.identity(Some(node("n1"))), Limits::default()).await;
        let nodes = come(&site, &ca.identity(Some(node("n2"))))
            .await
            .expect("let in");
        let slot = Slot::new(site.server.manager.now(), 600);
        let wanted = ReservationRequest::new(Direction::Read, BytesPerSec::mb(10), slot);
        let (_, token) = reserved(&nodes, &wanted).await;
        nodes.close().await;
        let account = Some(Peer::Account("astro".into()));
        for (peer, identity) in [(None, None), (account, Some("account astro"))] {
            let outside = ca.identity(peer);
            let at = ClientTls::at(&outside, &site.address).expected;
            let shown = Credentials::Capability(token.clone());
            let client = come_as(&site, &outside, at, shown).await.expect("let in");
            client.ping().await.expect("answered");
            let figures = site.server.figures().connections;
            assert_eq!(figures.last().unwrap().identity.as_deref(), identity);
            client.close().await;
        }
    });
}

#[test]
fn a_server_that_is_another_one_is_not_spoken_to() {
    in_virtual_time(62, async {
        let (ca, other) = (Ca::new(1), Ca::new(100));
        let site = secure_site(&ca.identity(Some(node("n1"))), Limits::default()).await;
        let n2 = ca.identity(Some(node("n2")));
        let expected = Expected::Node("n3".into());
        let refused = why(come_as(&site, &n2, expected, SECRET).await);
        assert!(
            refused.contains("node n1, and node n3 was looked for"),
            "{refused}"
        );
        let elsewhere = ServerName::try_from("10.0.0.9").expect("an address");
        let refused = come_as(&site, &n2, Expected::Host(elsewhere), SECRET).await;
        assert!(why(refused).contains("not for this address"));
        // Of another cluster, both ways.
        let stranger = other.identity(Some(node("n2")));
        let refused = why(come(&site, &stranger).await);
        assert!(
            refused.contains("none of the authorities in our ca.pem"),
            "{refused}"
        );
        let mut mixed = other.material(Some(node("n2")), LEAF_DAYS);
        mixed.authority = ca.material(None, 1).authority;
        let mixed = Identity::new(&mixed).expect("usable");
        let refused = why(come(&site, &mixed).await);
        assert!(refused.contains("does not know the authority"), "{refused}");
        // Without an authority nothing is sent at all.
        let refused = why(Client::connect(&site.address, SECRET).await);
        assert!(refused.contains("tanada node create"), "{refused}");
    });
}

#[test]
fn two_authorities_are_trusted_at_once_while_one_follows_the_other() {
    in_virtual_time(63, async {
        let (old, new) = (Ca::new(1), Ca::new(100));
        let both = [&old, &new]
            .map(|ca| ca.authority.certificate.clone())
            .concat();
        let identity = |ca: &Ca, name: &str| {
            let own = ca.material(Some(node(name)), LEAF_DAYS).own;
            let authority = both.clone().into_bytes();
            Identity::new(&Material { authority, own }).expect("usable")
        };
        let site = secure_site(&identity(&old, "n1"), Limits::default()).await;
        for ca in [&old, &new] {
            come(&site, &identity(ca, "n2")).await.expect("let in");
        }
    });
}

// --- how long -------------------------------------------------------------------------------------------

#[test]
fn a_certificate_ends_with_its_days_and_a_renewed_one_goes_on() {
    in_virtual_time(64, async {
        let ca = Ca::new(1);
        let n1 = ca.identity(Some(node("n1")));
        let site = secure_site(&n1, Limits::default()).await;
        let brief = Identity::new(&ca.material(Some(node("n2")), 2)).expect("usable");
        come(&site, &brief).await.expect("let in").close().await;
        env::sleep(Nanos::secs(3 * 24 * 3600)).await;
        let refused = why(come(&site, &brief).await);
        assert!(refused.contains("our certificate has expired"), "{refused}");
        // A text that is none changes nothing.
        let mut broken = ca.material(Some(node("n2")), 2);
        broken.own = Some((b"junk".to_vec(), b"junk".to_vec()));
        assert!(brief.replace(&broken).is_err());
        brief
            .replace(&ca.material(Some(node("n2")), 2))
            .expect("renewed");
        let client = come(&site, &brief).await.expect("let in");
        // The server's goes the same way, under a connection that stays.
        let before = serial_of(&n1);
        n1.replace(&ca.material(Some(node("n1")), 2))
            .expect("renewed");
        assert_ne!(serial_of(&n1), before);
        client.ping().await.expect("answered");
        come(&site, &brief).await.expect("let in");
        env::sleep(Nanos::secs(4 * 24 * 3600)).await;
        let fresh = ca.identity(Some(node("n2")));
        let refused = why(come(&site, &fresh).await);
        assert!(refused.contains("its certificate has expired"), "{refused}");
    });
}

#[test]
fn an_open_connection_ends_with_the_certificate_that_opened_it() {
    in_virtual_time(66, async {
        let ca = Ca::new(1);
        let n1 = ca.identity(Some(node("n1")));
        let site = secure_site(&n1, Limits::default()).await;
        let brief = Identity::new(&ca.material(Some(node("n2")), 2)).expect("usable");
        let long = ca.identity(Some(node("n3")));
        let client = come(&site, &brief).await.expect("let in");
        let stays = come(&site, &long).await.expect("let in");
        let day = Nanos::secs(24 * 3600);
        let ends = brief.own().expect("it has one").not_after;
        env::sleep(Nanos(2 * day.0 - Nanos::secs(10).0)).await;
        client.ping().await.expect("answered to its last second");
        let why = env::timeout(Nanos::secs(20), client.over()).await;
        let why = why.expect("it ends");
        assert!(why.contains("of node n2 has expired"), "{why}");
        let late = seconds_now() - ends;
        assert!(late <= 2, "{late} s after its last second");
        stays.ping().await.expect("others stay");
        // Renewed, it comes in again; the new one does not end with the old.
        brief
            .replace(&ca.material(Some(node("n2")), 2))
            .expect("renewed");
        let again = come(&site, &brief).await.expect("let in");
        env::sleep(day).await;
        again.ping().await.expect("answered");
        // A client ends with the server's certificate, too.
        n1.replace(&ca.material(Some(node("n1")), 1))
            .expect("renewed");
        let of_brief = come(&site, &long).await.expect("let in");
        let why = env::timeout(Nanos(2 * day.0), of_brief.over()).await;
        let why = why.expect("it ends");
        assert!(why.contains("of node n1 has expired"), "{why}");
        stays.ping().await.expect("that of its time lasts");
    });
}

#[test]
fn who_shows_a_revoked_certificate_gets_no_byte_after_a_second_and_none_anew() {
    in_virtual_time(65, async {
        let ca = Ca::new(1);
        let n1 = ca.identity(Some(node("n1")));
        let site = secure_site(&n1, Limits::default()).await;
        let (stolen, other) = (ca.identity(Some(node("n2"))), ca.identity(Some(node("n3"))));
        let client = come(&site, &stolen).await.expect("let in");
        let honest = come(&site, &other).await.expect("let in");
        let data = View::copy_of(&vec![5; 1 << 20]);
        client
            .write("a", 0, data, Change::FUA.creating())
            .await
            .expect("written");
        site.device.set_latency(Nanos::millis(5));
        let last = Rc::new(Cell::new(env::now()));
        let (reader, seen) = (client.clone(), Rc::clone(&last));
        let readers = (0..16).map(move |_| {
            let (client, last) = (reader.clone(), Rc::clone(&seen));
            async move {
                while client.read("a", 0, 1 << 20).await.is_ok() {
                    last.set(env::now());
                }
            }
        });
        let reading = env::spawn(join_all(readers));
        env::sleep(Nanos::millis(500)).await;
        let at = env::now();
        assert!(
            at.since(last.get()) < Nanos::millis(100),
            "it reads all the time"
        );
        n1.set_revoked(BTreeSet::from([serial_of(&stolen)]));
        reading.await;
        assert!(last.get() < at + Nanos::secs(1), "{}", last.get().since(at));
        let ended = client.ended().expect("it has ended");
        assert!(ended.contains("of node n2 is revoked"), "{ended}");
        let refused = why(come(&site, &stolen).await);
        assert!(refused.contains("of node n2 is revoked"), "{refused}");
        honest.ping().await.expect("others stay");
        env::sleep(Nanos::secs(2)).await;
        assert_eq!(site.server.figures().connections.len(), 1);
    });
}

#[test]
fn a_revoked_peer_that_reads_nothing_is_hung_up_on_within_a_second() {
    in_virtual_time(66, async {
        let ca = Ca::new(1);
        let n1 = ca.identity(Some(node("n1")));
        let site = secure_site(&n1, Limits::default()).await;
        let stolen = ca.identity(Some(node("n2")));
        let client = come(&site, &stolen).await.expect("let in");
        let data = View::copy_of(&vec![5; 1 << 20]);
        client
            .write("a", 0, data, Change::FUA.creating())
            .await
            .expect("written");
        for _ in 0..8 {
            let client = client.clone();
            env::spawn(async move { drop(client.read("a", 0, 1 << 20).await) });
        }
        env::sleep(Nanos::micros(300)).await;
        let slow = Link {
            delay: Delay::Fixed(Nanos::secs(20)),
            ..Link::LAN
        };
        sim::set_default_link(slow);
        n1.set_revoked(BTreeSet::from([serial_of(&stolen)]));
        env::sleep(Nanos::secs(1)).await;
        let cut = site.server.figures();
        let open = cut.connections.iter().filter(|it| it.in_flight > 0).count();
        assert_eq!(open, 0, "{cut:?}");
    });
}

#[test]
fn a_client_leaves_a_server_whose_certificate_is_revoked() {
    in_virtual_time(67, async {
        let ca = Ca::new(1);
        let n1 = ca.identity(Some(node("n1")));
        let site = secure_site(&n1, Limits::default()).await;
        let n2 = ca.identity(Some(node("n2")));
        let client = come(&site, &n2).await.expect("let in");
        client.ping().await.expect("answered");
        n2.set_revoked(BTreeSet::from([serial_of(&n1)]));
        let ended = client.over().await;
        assert!(ended.contains("of node n1 is revoked"), "{ended}");
        let refused = why(come(&site, &n2).await);
        assert!(refused.contains("of node n1 is revoked"), "{refused}");
    });
}

// --- strangers ------------------------------------------------------------------------------------------

#[test]
fn in_the_clear_and_in_tls_do_not_meet_and_both_sides_say_so() {
    in_virtual_time(68, async {
        let ca = Ca::new(1);
        let site = secure_site(&ca.identity(Some(node("n1"))), Limits::default()).await;
        let plain: Address = "10.0.0.1:7400".parse().unwrap();
        let refused = why(Client::connect(&plain, SECRET).await);
        assert!(refused.contains("it speaks TLS"), "{refused}");
        let tls = ClientTls {
            identity: ca.identity(Some(node("n2"))),
            expected: Expected::Node("n1".into()),
        };
        let refused = sim::on_host(host(1), async move {
            let options = ClientOptions {
                tls: Some(tls),
                ..ClientOptions::default()
            };
            let address: Address = "tls:127.0.0.1:7401".parse().unwrap();
            Client::connect_with(&address, SECRET, &options).await
        });
        let refused = why(refused.await);
        assert!(refused.contains("is not TLS"), "{refused}");
        assert_eq!(site.server.figures().not_let_in, 2);
    });
}

#[test]
fn an_older_tls_is_refused() {
    in_virtual_time(69, async {
        let ca = Ca::new(1);
        let site = secure_site(&ca.identity(Some(node("n1"))), Limits::default()).await;
        let trusted = ca.material(None, 1).authority;
        let roots = ::tls::pem::roots("the authority", &trusted).expect("read");
        let config = rustls::ClientConfig::builder_with_provider(::tls::pem::provider())
            .with_protocol_versions(&[&rustls::version::TLS12])
            .expect("spoken")
            .with_root_certificates(roots)
            .with_no_client_auth();
        let name = ServerName::try_from("10.0.0.1").expect("an address");
        let session = rustls::ClientConnection::new(Arc::new(config), name).expect("begun");
        let stream = ClientTls::stream(&site.address).await.expect("connected");
        let refused = TlsWire::handshake(Rc::new(stream), session.into()).await;
        let refused = refused.map(drop).expect_err("refused").to_string();
        assert!(refused.contains("no TLS 1.3"), "{refused}");
        env::sleep(Nanos::secs(2)).await;
        assert_eq!(site.server.figures().not_let_in, 1);
    });
}

#[test]
fn handshakes_that_stall_or_are_nonsense_are_cut_and_harm_no_other() {
    in_virtual_time(70, async {
        let ca = Ca::new(1);
        let site = secure_site(&ca.identity(Some(node("n1"))), Limits::default()).await;
        let witness = come(&site, &ca.identity(Some(node("n2"))))
            .await
            .expect("let in");
        let mut rng = env::rng("nonsense");
        let mut strangers = Vec::new();
        for number in 0..40_u64 {
            let stream = ClientTls::stream(&site.address).await.expect("connected");
            let mut bytes = vec![0; rng.below(3000) as usize];
            rng.fill(&mut bytes);
            match number % 4 {
                // Says nothing at all.
                0 => bytes.clear(),
                // A record that never ends.
                1 => bytes = vec![22, 3, 1, 0x40, 0],
                // A record of nonsense.
                2 if bytes.len() > 5 => {
                    let len = (bytes.len() - 5) as u16;
                    bytes[..3].copy_from_slice(&[22, 3, 3]);
                    bytes[3..5].copy_from_slice(&len.to_be_bytes());
                }
                _ => {}
            }
            if !bytes.is_empty() {
                // The server may hang up before it has taken all of it.
                let _ = stream.write_all(vec![View::copy_of(&bytes)]).await;
            }
            strangers.push(stream);
        }
        env::sleep(Limits::default().opening + Nanos::secs(2)).await;
        for stream in strangers {
            let mut buf = Buf::for_read(4096);
            while let Ok((1.., back)) = stream.read(buf).await {
                buf = back;
            }
        }
        witness.ping().await.expect("answered");
        let figures = site.server.figures();
        assert_eq!((figures.not_let_in, figures.connections.len()), (40, 1));
    });
}

/// Passes an honest node's bytes on to the server but for one, which it changes.
async fn with_one_changed(
    site: &Site,
    client: &Rc<Identity>,
    at: usize,
    passed: &Rc<Cell<usize>>,
) -> Result<Client, ClientError> {
    let proxy: Address = "127.0.0.1:7500".parse().unwrap();
    let listener = Listener::bind(&proxy).expect("free");
    let (there, passed) = (site.address.clone(), Rc::clone(passed));
    env::spawn(async move {
        let near = Rc::new(listener.accept().await.expect("it comes"));
        drop(listener);
        let far = Rc::new(ClientTls::stream(&there).await.expect("connected"));
        let back = (Rc::clone(&far), Rc::clone(&near));
        env::spawn(async move {
            let mut buf = Buf::for_read(4096);
            while let Ok((len @ 1.., read)) = back.0.read(buf).await {
                if back
                    .1
                    .write_all(vec![View::copy_of(&read[..len])])
                    .await
                    .is_err()
                {
                    break;
                }
                buf = read;
            }
            back.1.abort();
        });
        let (mut seen, mut buf) = (0, Buf::for_read(4096));
        while let Ok((len @ 1.., mut read)) = near.read(buf).await {
            if (seen..seen + len).contains(&at) {
                read[at - seen] ^= 0x55;
            }
            seen += len;
            passed.set(seen);
            if far
                .write_all(vec![View::copy_of(&read[..len])])
                .await
                .is_err()
            {
                break;
            }
            buf = read;
        }
        far.abort();
    });
    let options = ClientOptions {
        tls: Some(ClientTls {
            identity: Rc::clone(client),
            expected: Expected::Node("n1".into()),
        }),
        opening: Nanos::secs(3),
        ..ClientOptions::default()
    };
    let address: Address = "tls:127.0.0.1:7500".parse().unwrap();
    Client::connect_with(&address, SECRET, &options).await
}

#[test]
fn a_byte_changed_on_the_way_in_opens_nothing() {
    in_virtual_time(71, async {
        let ca = Ca::new(1);
        let site = secure_site(&ca.identity(Some(node("n1"))), Limits::default()).await;
        let n2 = ca.identity(Some(node("n2")));
        let passed = Rc::new(Cell::new(0));
        let client = with_one_changed(&site, &n2, usize::MAX, &passed).await;
        let client = client.expect("let in");
        let all = passed.get();
        assert!((600..2000).contains(&all), "{all}");
        let mut tried = 0;
        // The version of the first record, bytes 1 and 2, says nothing.
        for at in (3..all).step_by(7) {
            let changed = with_one_changed(&site, &n2, at, &Rc::default()).await;
            assert!(
                changed.is_err(),
                "byte {at} of {all} was changed, and it came in"
            );
            tried += 1;
        }
        env::sleep(Nanos::secs(15)).await;
        assert_eq!(site.server.figures().not_let_in, tried);
        client.ping().await.expect("answered");
    });
}

#[test]
fn an_address_of_tls_is_served_only_with_a_certificate() {
    in_virtual_time(72, async {
        let device = Memory::new("disk", Bytes::mib(32));
        let manager = manager(&device, options()).await;
        let ca = Ca::new(1);
        for identity in [None, Some(ca.identity(None))] {
            let server = Server::with_tls(Rc::clone(&manager), Limits::default(), identity);
            let listener = Listener::bind(&"tls:127.0.0.1:0".parse().unwrap());
            let refused = server.serve(listener.expect("free")).expect_err("refused");
            assert!(
                refused.to_string().contains("tanada node create"),
                "{refused}"
            );
        }
    });
}

#[test]
fn the_same_seed_gives_the_same_conversation_in_tls() {
    let hash = |seed| {
        let runtime = Runtime::simulated(seed);
        runtime.block_on(async {
            sim::set_default_link(Link {
                loss: 0.05,
                ..Link::LAN
            });
            let ca = Ca::new(1);
            let site = secure_site(&ca.identity(Some(node("n1"))), Limits::default()).await;
            let client = come(&site, &ca.identity(Some(node("n2"))))
                .await
                .expect("let in");
            let work = (0..20_usize).map(|n| {
                let client = client.clone();
                async move {
                    let data = View::copy_of(&vec![n as u8; 5000 * n + 1]);
                    let change = Change::default().creating();
                    client
                        .write(&format!("o{n}"), 0, data, change)
                        .await
                        .is_ok()
                }
            });
            join_all(work).await;
            site.server.drain().await;
        });
        runtime.trace_hash()
    };
    assert_eq!(hash(11), hash(11));
    assert_ne!(hash(11), hash(12));
}

#[test]
fn a_goodbye_in_tls_is_heard_and_every_answer_before_it() {
    in_virtual_time(73, async {
        let ca = Ca::new(1);
        let n1 = ca.identity(Some(node("n1")));
        let listener = Listener::bind(&"tls:127.0.0.1:0".parse().unwrap()).expect("free");
        let address = listener.address().clone();
        let server = env::spawn(async move {
            let stream = Rc::new(listener.accept().await.expect("it comes"));
            let (wire, _) = n1.accept(stream).await.expect("agreed");
            let pieces = (0..50).map(|n| View::copy_of(&vec![n; 40_000])).collect();
            wire.write_all(pieces).await.expect("sent");
            wire.finish().await;
        });
        let client = ClientTls {
            identity: ca.identity(Some(node("n2"))),
            expected: Expected::Node("n1".into()),
        };
        let stream = ClientTls::stream(&address).await.expect("connected");
        let (wire, _): (Wire, _) = client.connect(Rc::new(stream)).await.expect("agreed");
        let all = wire
            .read_exact(Buf::for_read(2_000_000))
            .await
            .expect("all of it");
        assert!(
            all.iter()
                .enumerate()
                .all(|(at, byte)| *byte == (at / 40_000) as u8)
        );
        let (rest, _) = wire.read(Buf::for_read(10)).await.expect("the end");
        assert_eq!(rest, 0);
        server.await;
    });
}
