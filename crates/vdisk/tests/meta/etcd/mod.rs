//! The store in etcd: the suite against Debian's server, and what can happen to a server and on the way to it.

mod server;

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::OnceLock;

use base::Nanos;
use rustix::process::Signal;
use vdisk::meta::{
    Compare, Entry, Etcd, EtcdConfig, EtcdError, EtcdTls, Event, MetaError, MetaStore, Op, Outcome,
    Revision, Watch,
};

use crate::suite::{Place, all_cases};
use server::{Certificates, Loses, Proxy, Server, config, free_port, have_etcd, real, wait_for};

type Case = fn(Place) -> Pin<Box<dyn Future<Output = ()>>>;

/// One server for the whole suite.
fn shared() -> &'static Server {
    static SERVER: OnceLock<Server> = OnceLock::new();
    SERVER.get_or_init(|| {
        let server = Server::alone("http", &[]);
        let config = config(&[&server.url]);
        server.when_up(&config)
    })
}

fn run(name: &'static str, case: Case) {
    if !have_etcd() {
        return;
    }
    let config = EtcdConfig {
        prefix: "suite\u{7f}/".to_owned(),
        ..config(&[&shared().url])
    };
    let one = Etcd::new(&config).unwrap();
    let two = Etcd::new(&config).unwrap();
    let (first, second) = (one.handle(), two.handle());
    real(async move {
        let (one, two) = (first.client(), second.client());
        let root = format!("{name}/");
        case(Place { one, two, root }).await;
    });
}

all_cases!(run);

fn put(key: &str, value: &str) -> Op {
    Op::Put {
        key: key.into(),
        value: value.into(),
        lease: None,
    }
}

fn value(entry: &Entry) -> u64 {
    String::from_utf8_lossy(&entry.value).parse().unwrap()
}

/// Adds one to `count`, whatever happens on the way; the errors met.
async fn add_one(meta: &dyn MetaStore) -> Vec<MetaError> {
    let mut met = Vec::new();
    let mut goal = None;
    loop {
        let held = match meta.get("count").await {
            Ok(held) => held,
            Err(error) => {
                met.push(error);
                continue;
            }
        };
        let (revision, now) = held.map_or((Revision(0), 0), |it| (it.changed, value(&it)));
        // Only we add, so a greater number says that an unknown one was done.
        if now >= *goal.get_or_insert(now + 1) {
            return met;
        }
        let compare = Compare::Unchanged("count".into(), revision);
        let ops = vec![put("count", &(now + 1).to_string())];
        match meta.txn(vec![compare], ops).await {
            Ok(Outcome::Done(_)) => return met,
            Ok(Outcome::Refused(_)) => {}
            Err(error) => met.push(error),
        }
    }
}

/// Reads on until `last` was seen: each number once, in order, after `seen`.
async fn follow(watch: &mut Box<dyn Watch>, seen: &mut u64, last: u64) {
    while *seen < last {
        for event in watch.next().await.unwrap() {
            let Event::Put(entry) = event else {
                panic!("nothing was deleted")
            };
            assert_eq!(value(&entry), *seen + 1, "one was missed or doubled");
            *seen += 1;
        }
    }
}

fn client(config: &EtcdConfig) -> (Etcd, Rc<dyn MetaStore>) {
    let etcd = Etcd::new(config).unwrap();
    let client = etcd.handle().client();
    (etcd, client)
}

#[test]
fn a_server_that_is_killed_and_comes_back_costs_no_record_and_no_event() {
    if !have_etcd() {
        return;
    }
    let server = Server::alone("http", &[]);
    let config = EtcdConfig {
        call_timeout: Nanos::secs(2),
        ..config(&[&server.url])
    };
    let mut server = server.when_up(&config);
    real(async move {
        let (_etcd, meta) = client(&config);
        let mut watch = meta.watch("count", Revision(0)).await.unwrap();
        let lease = meta.lease(Nanos::secs(60)).await.unwrap();
        let leased = Op::Put {
            key: "leased".into(),
            value: vec![],
            lease: Some(lease),
        };
        meta.txn(vec![], vec![leased]).await.unwrap();
        let mut seen = 0;
        for round in 1..=3u64 {
            for _ in 0..5 {
                add_one(&*meta).await;
            }
            server.kill_9();
            let error = meta.txn(vec![], vec![put("k", "1")]).await.unwrap_err();
            assert!(
                matches!(
                    error,
                    MetaError::Unavailable { .. } | MetaError::Unknown { .. }
                ),
                "{error}"
            );
            // The server is gone: from here on the client knows.
            let error = meta.txn(vec![], vec![put("k", "2")]).await.unwrap_err();
            assert!(matches!(error, MetaError::Unavailable { .. }), "{error}");
            server.start();
            for _ in 0..5 {
                add_one(&*meta).await;
            }
            follow(&mut watch, &mut seen, round * 10).await;
        }
        let held = meta.get("leased").await.unwrap().unwrap();
        assert_eq!(held.lease, Some(lease));
        meta.keep(lease).await.unwrap();
        assert_ne!(
            meta.get("k").await.unwrap().map(|it| it.value),
            Some(b"2".to_vec())
        );
    });
}

#[test]
fn one_member_of_three_may_hang_or_die() {
    if !have_etcd() {
        return;
    }
    let mut members = Server::cluster(3);
    for member in &mut members {
        member.start();
    }
    let urls: Vec<&str> = members.iter().map(|it| it.url.as_str()).collect();
    let config = config(&urls);
    wait_for(&config, &|| members.iter().map(Server::log).collect());
    real(async move {
        let (_etcd, meta) = client(&config);
        let mut watch = meta.watch("count", Revision(0)).await.unwrap();
        let mut seen = 0;
        for _ in 0..5 {
            add_one(&*meta).await;
        }
        follow(&mut watch, &mut seen, 5).await;
        // Its sockets stay open and nothing comes out of them.
        for (at, signal) in [(0, Signal::STOP), (0, Signal::CONT), (1, Signal::KILL)] {
            let before = seen;
            if signal == Signal::KILL {
                members[at].kill_9();
            } else {
                members[at].signal(signal);
            }
            for _ in 0..5 {
                for error in add_one(&*meta).await {
                    assert!(
                        matches!(
                            error,
                            MetaError::Unavailable { .. } | MetaError::Unknown { .. }
                        ),
                        "{error}"
                    );
                }
            }
            follow(&mut watch, &mut seen, before + 5).await;
        }
        let lease = meta.lease(Nanos::secs(60)).await.unwrap();
        meta.keep(lease).await.unwrap();
        meta.revoke(lease).await.unwrap();
        assert_eq!(
            meta.get("count").await.unwrap().as_ref().map(value),
            Some(20)
        );
    });
}

#[test]
fn a_lost_answer_is_unknown_and_never_repeated() {
    if !have_etcd() {
        return;
    }
    let server = Server::alone("http", &[]);
    let direct = config(&[&server.url]);
    let server = server.when_up(&direct);
    let proxy = Proxy::to(&server);
    // The second way stays good: it must not pass for a transaction that was sent the first way.
    let both = EtcdConfig {
        call_timeout: Nanos::secs(3),
        ..config(&[&proxy.url, &server.url])
    };
    real(async move {
        let (_etcd, sure) = client(&direct);
        for (loses, was_done) in [(Loses::Answers, true), (Loses::Requests, false)] {
            proxy.loses(loses);
            proxy.cut();
            let (_etcd, meta) = client(&both);
            let key = format!("{loses:?}");
            let error = meta.txn(vec![], vec![put(&key, "1")]).await.unwrap_err();
            assert!(
                matches!(error, MetaError::Unknown { .. }),
                "{loses:?}: {error}"
            );
            let held = sure.get(&key).await.unwrap();
            assert_eq!(held.is_some(), was_done, "{loses:?}");
            if let Some(entry) = held {
                assert_eq!(entry.created, entry.changed, "it was done once");
            }
            // The next one goes the other way, and so does all that may be asked twice.
            meta.txn(vec![], vec![put(&key, "2")]).await.unwrap();
            let (_etcd, meta) = client(&both);
            assert_eq!(meta.get(&key).await.unwrap().unwrap().value, b"2");
            let lease = meta.lease(Nanos::secs(60)).await.unwrap();
            meta.revoke(lease).await.unwrap();
        }

        // A connection that was closed while no call used it is no reason not to know.
        proxy.loses(Loses::Nothing);
        let through = config(&[&proxy.url]);
        let (_etcd, meta) = client(&through);
        for round in 0..5 {
            meta.txn(vec![], vec![put("idle", &round.to_string())])
                .await
                .unwrap();
            proxy.cut();
            env::sleep(Nanos::millis(200)).await;
        }
        // Ended through the proxy with the answer lost, found gone when asked again: it is ended.
        let lease = meta.lease(Nanos::secs(60)).await.unwrap();
        let (_etcd, meta) = client(&both);
        proxy.loses(Loses::Answers);
        meta.revoke(lease).await.unwrap();
        assert!(matches!(
            sure.keep(lease).await,
            Err(MetaError::NoLease { .. })
        ));
    });
}

#[test]
fn an_endpoint_without_a_server_is_unavailable_and_the_next_is_asked() {
    if !have_etcd() {
        return;
    }
    let server = Server::alone("http", &[]);
    let up = config(&[&server.url]);
    let server = server.when_up(&up);
    let dead = format!("http://127.0.0.1:{}", free_port());
    let nobody = EtcdConfig {
        call_timeout: Nanos::millis(800),
        ..config(&[&dead])
    };
    let second = config(&[&dead, &server.url]);
    real(async move {
        let (_etcd, meta) = client(&nobody);
        let error = meta.txn(vec![], vec![put("k", "1")]).await.unwrap_err();
        assert!(matches!(error, MetaError::Unavailable { .. }), "{error}");
        let text = error.to_string();
        assert!(
            text.contains(&dead) && text.contains("nothing was changed"),
            "{text}"
        );
        assert!(matches!(
            meta.watch("", Revision(0)).await,
            Err(MetaError::Unavailable { .. })
        ));
        let (_etcd, meta) = client(&second);
        meta.txn(vec![], vec![put("k", "2")]).await.unwrap();
        let mut watch = meta.watch("", Revision(0)).await.unwrap();
        assert_eq!(watch.next().await.unwrap()[0].key(), "k");
    });
    drop(server);
}

#[test]
fn a_watch_goes_on_over_cut_connections_and_says_what_was_compacted() {
    if !have_etcd() {
        return;
    }
    let server = Server::alone("http", &[]);
    let direct = config(&[&server.url]);
    let server = server.when_up(&direct);
    let proxy = Proxy::to(&server);
    let through = config(&[&proxy.url]);
    real(async move {
        let (_etcd, sure) = client(&direct);
        let (_etcd2, meta) = client(&through);
        let mut watch = meta.watch("count", Revision(0)).await.unwrap();
        let mut seen = 0;
        for round in 1..=60 {
            add_one(&*sure).await;
            if round % 6 == 0 {
                proxy.cut();
            }
            if round % 10 == 0 {
                follow(&mut watch, &mut seen, round).await;
            }
        }
        let now = sure.get("count").await.unwrap().unwrap().changed;
        let body = format!("{{\"revision\":\"{now}\"}}");
        let said = server.post("/v3/kv/compaction", &body);
        assert!(said.contains("200 OK"), "{said}");
        let mut old = meta.watch("count", Revision(now.0 - 1)).await.unwrap();
        for _ in 0..2 {
            match old.next().await {
                Err(MetaError::Compacted { oldest, .. }) => assert_eq!(oldest, now),
                other => panic!("{other:?}"),
            }
        }
        let mut recent = meta.watch("count", now).await.unwrap();
        assert_eq!(recent.next().await.unwrap().len(), 1);
    });
}

#[test]
fn tls_lets_in_those_with_a_certificate() {
    if !have_etcd() {
        return;
    }
    let certificates = Certificates::new();
    let path = |name| certificates.path(name);
    let (authority, cert, key) = (path("authority"), path("server"), path("server-key"));
    let server = Server::alone(
        "https",
        &[
            "--client-cert-auth",
            "--trusted-ca-file",
            &authority,
            "--cert-file",
            &cert,
            "--key-file",
            &key,
        ],
    );
    let tls = |own: bool| EtcdConfig {
        tls: Some(EtcdTls {
            authority: certificates.pem("authority"),
            own: own.then(|| (certificates.pem("client"), certificates.pem("client-key"))),
        }),
        call_timeout: Nanos::secs(2),
        ..config(&[&server.url])
    };
    let (with, without) = (tls(true), tls(false));
    let stranger = EtcdConfig {
        tls: Some(EtcdTls {
            authority: Certificates::new().pem("authority"),
            own: None,
        }),
        ..without.clone()
    };
    let plain = EtcdConfig {
        tls: None,
        ..without.clone()
    };
    assert!(matches!(Etcd::new(&plain), Err(EtcdError::Endpoint { .. })));
    let nonsense = EtcdConfig {
        tls: Some(EtcdTls {
            authority: b"no certificate".to_vec(),
            own: None,
        }),
        ..without.clone()
    };
    let error = Etcd::new(&nonsense).err().unwrap();
    assert!(
        error.to_string().contains("certificate authority"),
        "{error}"
    );
    wait_for(&with, &|| server.log());
    real(async move {
        let (_etcd, meta) = client(&with);
        let mut watch = meta.watch("", Revision(0)).await.unwrap();
        meta.txn(vec![], vec![put("k", "1")]).await.unwrap();
        assert_eq!(watch.next().await.unwrap().len(), 1);
        // A server that we do not trust gets nothing.
        let (_etcd, meta) = client(&stranger);
        let error = meta.txn(vec![], vec![put("k", "2")]).await.unwrap_err();
        assert!(matches!(error, MetaError::Unavailable { .. }), "{error}");
        assert!(error.to_string().contains("TLS"), "{error}");
        // One that does not trust us says so only after we may have sent something.
        let (_etcd, meta) = client(&without);
        meta.txn(vec![], vec![put("k", "3")]).await.unwrap_err();
        let (_etcd, meta) = client(&with);
        assert_eq!(meta.get("k").await.unwrap().unwrap().value, b"1");
    });
}

#[test]
fn users_are_let_in_by_their_password_and_get_new_tokens() {
    if !have_etcd() {
        return;
    }
    let server = Server::alone("http", &[]);
    let open = config(&[&server.url]);
    let mut server = server.when_up(&open);
    // "t/" to "t0" in base64: what the role may touch.
    for (path, body) in [
        ("user/add", r#"{"name":"root","password":"r"}"#),
        ("role/add", r#"{"name":"root"}"#),
        ("user/grant", r#"{"user":"root","role":"root"}"#),
        ("user/add", r#"{"name":"tanada","password":"secret"}"#),
        ("role/add", r#"{"name":"keys"}"#),
        (
            "role/grant",
            r#"{"name":"keys","perm":{"permType":"READWRITE","key":"dC8=","range_end":"dDA="}}"#,
        ),
        ("user/grant", r#"{"user":"tanada","role":"keys"}"#),
        ("enable", "{}"),
    ] {
        let said = server.post(&format!("/v3/auth/{path}"), body);
        assert!(said.contains("200 OK"), "{path}: {said}");
    }
    let user = |name: &str, password: &str, prefix: &str| EtcdConfig {
        user: Some((name.to_owned(), password.to_owned())),
        prefix: prefix.to_owned(),
        ..open.clone()
    };
    let good = user("tanada", "secret", "t/");
    let (wrong, elsewhere) = (
        user("tanada", "guess", "t/"),
        user("tanada", "secret", "u/"),
    );
    let nobody = open.clone();
    real(async move {
        let (_etcd, meta) = client(&wrong);
        let error = meta.get("k").await.unwrap_err();
        assert!(matches!(error, MetaError::Bad { .. }), "{error}");
        assert!(
            error.to_string().contains("does not let in tanada"),
            "{error}"
        );
        let (_etcd, meta) = client(&nobody);
        let error = meta.txn(vec![], vec![put("k", "1")]).await.unwrap_err();
        assert!(matches!(error, MetaError::Bad { .. }), "{error}");
        let (_etcd, meta) = client(&elsewhere);
        let error = meta.txn(vec![], vec![put("k", "1")]).await.unwrap_err();
        assert!(error.to_string().contains("permission denied"), "{error}");
        let mut watch = meta.watch("", Revision(0)).await.unwrap();
        let error = watch.next().await.unwrap_err();
        assert!(matches!(error, MetaError::Bad { .. }), "{error}");

        let (_etcd, meta) = client(&good);
        let mut watch = meta.watch("count", Revision(0)).await.unwrap();
        let mut seen = 0;
        for _ in 0..3 {
            add_one(&*meta).await;
        }
        // Tokens are not known any more after a restart.
        server.kill_9();
        server.start();
        for _ in 0..3 {
            for error in add_one(&*meta).await {
                let lost = matches!(
                    error,
                    MetaError::Unavailable { .. } | MetaError::Unknown { .. }
                );
                assert!(lost, "{error}");
            }
        }
        follow(&mut watch, &mut seen, 6).await;
        let lease = meta.lease(Nanos::secs(60)).await.unwrap();
        meta.keep(lease).await.unwrap();
        meta.revoke(lease).await.unwrap();
    });
}

#[test]
fn a_configuration_without_an_endpoint_or_with_a_wrong_one_is_refused() {
    let error = Etcd::new(&EtcdConfig::default()).err().unwrap();
    assert!(matches!(error, EtcdError::NoEndpoint), "{error}");
    let error = Etcd::new(&config(&["localhost:2379"])).err().unwrap();
    assert!(
        error.to_string().contains("write http://host:port"),
        "{error}"
    );
}
