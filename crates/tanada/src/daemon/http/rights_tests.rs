//! Every role at every route: who is let in, beside a table that is written out here.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ::access::caller::Caller;
use ::access::name::AccountName;
use ::access::registry::{NewAccount, Registry};
use ::access::role::{ROLES, Role};
use ::access::token::TokenRecord;
use axum::body::Body;
use http_body_util::BodyExt;
use hyper::service::Service as _;
use hyper_util::service::TowerToHyperService;
use vdisk::meta::{Op, Redb};

use super::access::{Entrance, UnixPeer};
use super::audit_log::AuditLog;
use super::routes::routes;
use super::*;
use crate::api::store::Reservation;
use crate::daemon::common::certificates::Folder;
use crate::daemon::common::http_tls::TlsPeer;
use crate::daemon::thread::records::{FILE, Records};

/// The least role that is let in at a route; `-`: no role is needed on loopback.
const TABLE: &str = "\
GET    /healthz                                                  -
GET    /metrics                                                  -
GET    /openapi.json                                             -
GET    /v1/access                                                -
GET    /v1/status                                                -
GET    /v1/health                                                -
POST   /v1/reload                                                admin
PUT    /v1/health/mutes/{code}                                   operator
DELETE /v1/health/mutes/{code}                                   operator
GET    /                                                         -
GET    /web/{file}                                               -
GET    /v1/events                                                -
GET    /v1/jobs                                                  -
GET    /v1/jobs/{id}                                             -
DELETE /v1/jobs/{id}                                             operator
GET    /v1/devices                                               -
GET    /v1/exports                                               -
GET    /v1/exports/{name}/reservations                           reader
POST   /v1/exports/{name}/reservations                           operator
DELETE /v1/exports/{name}/reservations/{number}                  operator
POST   /v1/clients/disconnect                                    operator
GET    /v1/volumes                                               -
GET    /v1/volumes/{name}                                        -
PATCH  /v1/volumes/{name}                                        operator
DELETE /v1/volumes/{name}/settings                               operator
GET    /v1/settings                                              reader
GET    /v1/volumes/{name}/advice                                 -
GET    /v1/volumes/{name}/heat                                   -
GET    /v1/volumes/{name}/moves                                  -
GET    /v1/volumes/{name}/tier-advice                            reader
POST   /v1/volumes/{name}/detach                                 operator
POST   /v1/volumes/{name}/attach                                 operator
GET    /v1/stores                                                -
GET    /v1/stores/{name}                                         -
POST   /v1/stores/{name}/scrub                                   operator
POST   /v1/stores/{name}/rotate-key                              admin
POST   /v1/stores/{name}/calibrate                               operator
GET    /v1/stores/{name}/calibration                             reader
GET    /v1/stores/{name}/calendar                                -
GET    /v1/reservations                                          reader
POST   /v1/reservations                                          booker
POST   /v1/reservations/offer                                    booker
GET    /v1/reservations/{store}/{number}                         reader
DELETE /v1/reservations/{store}/{number}                         booker
POST   /v1/reservations/{store}/{number}/capability              booker
GET    /v2/reservations                                          reader
POST   /v2/reservations                                          booker
GET    /v2/reservations/{name}                                   reader
PATCH  /v2/reservations/{name}                                   booker
DELETE /v2/reservations/{name}                                   booker
POST   /v2/reservations/{name}/capability                        booker
GET    /v1/cluster                                               -
GET    /v1/cluster/volumes                                       -
POST   /v1/cluster/volumes                                       operator
GET    /v1/cluster/volumes/{name}                                -
PATCH  /v1/cluster/volumes/{name}                                operator
DELETE /v1/cluster/volumes/{name}                                admin
POST   /v1/cluster/volumes/{name}/repair                         operator
POST   /v1/cluster/volumes/{name}/takeover                       operator
POST   /v1/cluster/volumes/{name}/snapshots                      operator
DELETE /v1/cluster/volumes/{name}/snapshots/{snapshot}           admin
POST   /v1/cluster/volumes/{name}/snapshots/{snapshot}/clone     operator
POST   /v1/cluster/volumes/{name}/snapshots/{snapshot}/rollback  admin
GET    /v1/cluster/trash                                         reader
POST   /v1/cluster/trash/{name}/restore                          operator
DELETE /v1/cluster/trash/{name}                                  admin
POST   /v1/cluster/upgrade                                       admin
POST   /v1/cluster/stores                                        admin
PATCH  /v1/cluster/stores/{name}                                 operator
DELETE /v1/cluster/stores/{name}                                 admin
GET    /v1/certificates                                          reader
POST   /v1/certificates/revoked                                  admin
GET    /v1/accounts                                              admin
POST   /v1/accounts                                              admin
GET    /v1/accounts/{name}                                       admin
PATCH  /v1/accounts/{name}                                       admin
DELETE /v1/accounts/{name}                                       admin
PUT    /v1/accounts/{name}/quota                                 admin
GET    /v1/tokens                                                reader
POST   /v1/tokens                                                admin
DELETE /v1/tokens/{id}                                           reader
GET    /v1/s3                                                    reader
GET    /v1/s3/keys                                               reader
POST   /v1/s3/keys                                               admin
PATCH  /v1/s3/keys/{id}                                          reader
DELETE /v1/s3/keys/{id}                                          reader
POST   /v1/s3/credentials                                        booker
GET    /v1/s3/buckets                                            reader
PATCH  /v1/s3/buckets/{gateway}/{bucket}                         reader
GET    /v1/audit                                                 admin
";

const OWNER: u32 = 4001;
const ADMIN_TOKEN: &str = "00ff00ff";

/// A daemon without devices, with an account of each role, and a user of this machine who is `booker`.
struct Bed {
    dir: tempfile::TempDir,
    control: Arc<Control>,
    router: Router,
    tokens: BTreeMap<Role, String>,
    /// Which account of its name each is.
    ids: BTreeMap<Role, u64>,
    /// Of the other booker.
    other: String,
}

impl Bed {
    fn new() -> Bed {
        let dir = tempfile::tempdir().expect("a directory");
        let (tokens, ids, other) = accounts(&dir.path().join(FILE));
        let audit = Arc::new(AuditLog::open(dir.path()).expect("it is ours"));
        let access = Access {
            owner_user: OWNER,
            ..Access::default()
        };
        let control = Arc::new(Control {
            started: super::control::Began::now(0),
            jobs: crate::daemon::jobs::shared::Jobs::default(),
            threads: Vec::new(),
            access: access.clone(),
            records: Records::in_dir(dir.path()),
            s3: std::sync::Arc::default(),
            audit: Some(Arc::clone(&audit)),
            searching: Arc::new(tokio::sync::Semaphore::new(1)),
            kernel_disks: kernel_disks::KernelDisks::default(),
            revocation: crate::daemon::common::revocation::Revocation::default(),
            making: charged::Making::default(),
            settings: super::settings_book::SettingsBook::new(
                "no-such-folder".as_ref(),
                Default::default(),
            ),
            health: crate::daemon::health::Watch::unwatched(),
            loaded: crate::daemon::reload::Loaded::built_in("test"),
            certificates: Folder::at(dir.path()),
        });
        let gate = Gate {
            guard: Arc::new(std::sync::RwLock::new(guard::Guard {
                far: true,
                hosts: Vec::new(),
            })),
            access,
            token: ADMIN_TOKEN.to_owned(),
            audit,
        };
        Bed {
            router: router(Arc::clone(&control), gate, Arc::default()),
            control,
            dir,
            tokens,
            ids,
            other,
        }
    }

    async fn ask(&self, who: &Who, method: &str, path: &str, body: &str) -> (u16, String) {
        let mut request = Request::builder().method(method).uri(path);
        request = request.header("host", "127.0.0.1");
        if let Some(token) = &who.token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        if !body.is_empty() {
            request = request.header("content-type", "application/json");
        }
        let request = request
            .body(Body::from(body.to_owned()))
            .expect("a request");
        let router = self.router.clone().layer(Extension(who.entrance.clone()));
        let Ok(answer) = TowerToHyperService::new(router).call(request).await;
        let status = answer.status().as_u16();
        let body = answer.into_body().collect().await.expect("it is in memory");
        (
            status,
            String::from_utf8_lossy(&body.to_bytes()).into_owned(),
        )
    }

    /// Each who is let in as this role or as none.
    fn everyone(&self) -> Vec<(Who, Option<Role>)> {
        let mut all = vec![
            (Who::tcp("127.0.0.1", None), None),
            (Who::tcp("10.0.0.7", None), None),
            (Who::tls("127.0.0.1", None), None),
            (Who::tls("10.0.0.7", None), None),
            (
                Who::tls("10.0.0.7", Some((tls::Peer::Node("n1".to_owned()), None))),
                None,
            ),
            (Who::unix(OWNER), Some(Role::Admin)),
            (Who::unix(0), Some(Role::Admin)),
            (Who::unix(5000), Some(Role::Booker)),
            (Who::unix(6000), None),
            (Who::tcp("127.0.0.1", Some(ADMIN_TOKEN)), Some(Role::Admin)),
        ];
        for role in ROLES {
            let token = self.tokens[&role].as_str();
            all.push((Who::tcp("127.0.0.1", Some(token)), Some(role)));
            all.push((Who::tcp("10.0.0.7", Some(token)), Some(role)));
            let peer = tls::Peer::Account(role.as_str().to_owned());
            let tls = Who::tls("10.0.0.7", Some((peer, Some(self.ids[&role]))));
            all.push((tls.clone(), Some(role)));
            // A token counts before a certificate, too.
            let token = Some(ADMIN_TOKEN.to_owned());
            all.push((Who { token, ..tls }, Some(Role::Admin)));
            let token = self.tokens[&role].as_str();
            // What is shown counts before the user who shows it.
            let unix = Who::unix(OWNER);
            all.push((
                Who {
                    token: Some(token.to_owned()),
                    ..unix
                },
                Some(role),
            ));
        }
        all
    }
}

/// Where a request comes from, and what it shows.
#[derive(Debug, Clone)]
struct Who {
    entrance: Entrance,
    token: Option<String>,
}

impl Who {
    fn tcp(from: &str, token: Option<&str>) -> Who {
        let from: IpAddr = from.parse().expect("an address");
        Who {
            entrance: Entrance::Tcp(from),
            token: token.map(str::to_owned),
        }
    }

    fn tls(from: &str, shown: Option<(tls::Peer, Option<u64>)>) -> Who {
        let shown = shown.map(|(peer, account_id)| tls::Certificate {
            peer,
            account_id,
            hosts: Vec::new(),
            serial: tls::Serial::parse("a1b2").expect("one"),
            not_before: 0,
            not_after: u64::MAX,
        });
        Who {
            entrance: Entrance::Tls(TlsPeer {
                from: from.parse().expect("an address"),
                shown: shown.map(Arc::new),
            }),
            token: None,
        }
    }

    fn unix(user: u32) -> Who {
        Who {
            entrance: Entrance::Unix(UnixPeer {
                user: Some(user),
                groups: Arc::new([user]),
                process: Some(1),
            }),
            token: None,
        }
    }
}

/// Makes the accounts in a file, and a token of each; and one of the account `other`.
fn accounts(path: &std::path::Path) -> (BTreeMap<Role, String>, BTreeMap<Role, u64>, String) {
    let redb = Redb::open(path).expect("a file");
    let runtime = env::Runtime::real(env::RealConfig::default()).expect("a runtime");
    let meta = redb.handle().client();
    runtime.block_on(async move {
        let registry = Registry::new(meta);
        let now = crate::daemon::common::when::unix_seconds() as u64;
        let (mut tokens, mut ids) = (BTreeMap::new(), BTreeMap::new());
        for role in ROLES {
            let name: AccountName = role.as_str().parse().expect("a name");
            let mut new = NewAccount::new(name.clone(), role);
            if role == Role::Booker {
                new.users.insert(5000);
            }
            let account = registry.create(&new, now).await.expect("it is new");
            ids.insert(role, account.id);
            let made = registry.make_token(&name, (now, 1000), "").await;
            tokens.insert(role, made.expect("it is there").0.reveal());
        }
        let other: AccountName = "other".parse().expect("a name");
        let new = NewAccount::new(other.clone(), Role::Booker);
        registry.create(&new, now).await.expect("it is new");
        let made = registry.make_token(&other, (now, 1000), "").await;
        (tokens, ids, made.expect("it is there").0.reveal())
    })
}

fn with_bed(scene: impl AsyncFnOnce(Bed)) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime
        .expect("a runtime")
        .block_on(async { scene(Bed::new()).await });
}

fn identity(token: &str) -> &str {
    token.split('_').nth(1).expect("a token")
}

#[test]
fn every_route_is_in_the_table_of_rights_and_in_this_one() {
    let document = serde_json::to_value(openapi()).expect("plain data");
    let mut there = BTreeSet::from(["GET /openapi.json".to_owned()]);
    for (path, methods) in document["paths"].as_object().expect("paths") {
        for method in methods.as_object().expect("methods").keys() {
            there.insert(format!("{} {path}", method.to_uppercase()));
        }
    }
    let here = TABLE.lines().map(|line| {
        let mut words = line.split_whitespace();
        let (method, path) = (words.next().expect("one"), words.next().expect("two"));
        format!("{method} {path}")
    });
    assert_eq!(here.collect::<BTreeSet<_>>(), there);
    let rows = rights::rows().filter(|(method, _)| *method != "HEAD");
    let rows: BTreeSet<String> = rows
        .map(|(method, path)| format!("{method} {path}"))
        .collect();
    assert_eq!(rows, there);
    let paths: BTreeSet<&str> = routes().into_iter().map(|(path, _)| path).collect();
    assert!(rights::rows().all(|(_, path)| path == "/openapi.json" || paths.contains(path)));
}

#[test]
fn what_needs_no_role_on_loopback_is_what_the_list_of_readable_paths_has() {
    let open = TABLE.lines().filter(|line| line.ends_with(" -"));
    let open = open.map(|line| {
        line.split_whitespace()
            .take(2)
            .collect::<Vec<_>>()
            .join(" ")
    });
    let listed = crate::api::access::READABLE.map(|path| format!("GET {path}"));
    assert_eq!(open.collect::<BTreeSet<_>>(), BTreeSet::from(listed));
    for (method, path) in rights::rows() {
        let looks = rights::action(&method.parse().expect("one"), path) == Action::Look;
        let listed = crate::api::access::is_readable(path) && matches!(method, "GET" | "HEAD");
        assert_eq!(looks, listed, "{method} {path}");
    }
}

#[test]
fn every_role_gets_what_the_table_says_at_every_route_and_nothing_else() {
    with_bed(async |bed| {
        let mut asked = 0;
        for line in TABLE.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            let (method, path, least) = (words[0], words[1], words[2]);
            let there = path
                .replace("{number}", "1")
                .replace("{id}", "ffffffffffffffff");
            let there = there.replace(['{', '}'], "");
            for (who, role) in bed.everyone() {
                let far = !who.entrance.is_near();
                let expected = match (least, role) {
                    ("-", None) => !far,
                    ("-", Some(_)) => true,
                    (_, None) => false,
                    (least, Some(role)) => role >= least.parse().expect("a role"),
                };
                // The stream of samples has no end of its own.
                let there = match path {
                    "/v1/events" => format!("{there}?samples=1"),
                    _ => there.clone(),
                };
                let (status, said) = bed.ask(&who, method, &there, "").await;
                let let_in = !matches!(status, 401 | 403);
                assert_eq!(let_in, expected, "{method} {path} {who:?} {status} {said}");
                // Whether something is there, a stranger does not learn.
                if !let_in && role.is_none() {
                    let is_unix = who.entrance.is_unix();
                    assert_eq!(
                        status,
                        if is_unix { 403 } else { 401 },
                        "{method} {path} {said}"
                    );
                }
                if !let_in && role.is_some() {
                    assert_eq!(status, 403, "{method} {path}");
                    assert!(
                        said.contains("takes the role") && said.contains("an admin gives it"),
                        "{said}"
                    );
                }
                asked += 1;
            }
        }
        assert!(asked > 1000, "{asked}");
    });
}

#[test]
fn what_stands_in_no_row_takes_an_admin_and_what_is_not_there_a_role() {
    with_bed(async |bed| {
        for (who, role) in bed.everyone() {
            let (status, _) = bed.ask(&who, "GET", "/brand-new", "").await;
            let stranger = if who.entrance.is_unix() { 403 } else { 401 };
            assert_eq!(status, role.map_or(stranger, |_| 404), "{who:?}");
            let (status, _) = bed.ask(&who, "PUT", "/v1/status", "").await;
            let expected = match role {
                Some(Role::Admin) => 405,
                Some(_) => 403,
                None => stranger,
            };
            assert_eq!(status, expected, "{who:?}");
        }
        let near = Who::tcp("127.0.0.1", None);
        for odd in ["/v1/status/", "/v1//status", "/v1/st%61tus", "//v1/status"] {
            assert_eq!(bed.ask(&near, "GET", odd, "").await.0, 401, "{odd}");
        }
    });
}

#[test]
fn an_account_sees_itself_and_its_tokens_and_no_others() {
    with_bed(async |bed| {
        for role in ROLES {
            let own = Who::tcp("127.0.0.1", Some(&bed.tokens[&role]));
            let path = |name: &str| format!("/v1/accounts/{name}");
            assert_eq!(bed.ask(&own, "GET", &path(role.as_str()), "").await.0, 200);
            let expected = if role == Role::Admin { 200 } else { 403 };
            let (status, said) = bed.ask(&own, "GET", &path("other"), "").await;
            assert_eq!(status, expected, "{role} {said}");
            let (_, tokens) = bed.ask(&own, "GET", "/v1/tokens", "").await;
            assert!(tokens.contains(identity(&bed.tokens[&role])), "{tokens}");
            let sees = tokens.contains(identity(&bed.other));
            assert_eq!(sees, role == Role::Admin, "{role} {tokens}");
            let secret = &bed.other[24..];
            assert!(!tokens.contains(secret), "{tokens}");
            if role != Role::Admin {
                let path = format!("/v1/tokens/{}", identity(&bed.other));
                assert_eq!(bed.ask(&own, "DELETE", &path, "").await.0, 403, "{role}");
            }
        }
        // Its own it may revoke, and is out at once.
        let reader = Who::tcp("10.0.0.7", Some(&bed.tokens[&Role::Reader]));
        let path = format!("/v1/tokens/{}", identity(&bed.tokens[&Role::Reader]));
        assert_eq!(bed.ask(&reader, "DELETE", &path, "").await.0, 200);
        let (status, said) = bed.ask(&reader, "GET", "/v1/status", "").await;
        assert!(
            status == 401 && said.contains("was revoked"),
            "{status} {said}"
        );
        let admin = Who::tcp("10.0.0.7", Some(&bed.tokens[&Role::Admin]));
        let path = format!("/v1/tokens/{}", identity(&bed.other));
        assert_eq!(bed.ask(&admin, "DELETE", &path, "").await.0, 200);
    });
}

#[test]
fn a_token_that_is_none_unknown_or_of_an_account_that_is_off_is_refused_in_its_own_words() {
    with_bed(async |bed| {
        let ask = async |token: &str| {
            let who = Who::tcp("127.0.0.1", Some(token));
            let (status, said) = bed.ask(&who, "GET", "/v1/status", "").await;
            assert_eq!(status, 401, "{said}");
            said
        };
        let good = bed.other.clone();
        assert!(ask("0").await.contains("another token than this daemon's"));
        assert!(ask("tanada_").await.contains("is no token"));
        assert!(ask(&good[..good.len() - 1]).await.contains("is no token"));
        let wrong = format!("{}{}", &good[..24], "A".repeat(43));
        assert!(ask(&wrong).await.contains("not known here"));
        let owner = Who::unix(OWNER);
        let off = r#"{"on": false}"#;
        assert_eq!(
            bed.ask(&owner, "PATCH", "/v1/accounts/other", off).await.0,
            200
        );
        assert!(ask(&good).await.contains("switched off"));
        let on = r#"{"on": true}"#;
        assert_eq!(
            bed.ask(&owner, "PATCH", "/v1/accounts/other", on).await.0,
            200
        );
        let who = Who::tcp("127.0.0.1", Some(&good));
        assert_eq!(bed.ask(&who, "GET", "/v1/devices", "").await.0, 200);
        assert_eq!(
            bed.ask(&owner, "DELETE", "/v1/accounts/other", "").await.0,
            200
        );
        assert!(ask(&good).await.contains("not known here"));
    });
}

#[test]
fn a_certificate_is_good_for_the_account_it_was_made_for_and_while_that_is_on() {
    with_bed(async |bed| {
        let id = bed.ids[&Role::Booker];
        let account = || tls::Peer::Account("booker".to_owned());
        let ask = async |id: Option<u64>| {
            let who = Who::tls("10.0.0.7", Some((account(), id)));
            bed.ask(&who, "GET", "/v1/devices", "").await
        };
        assert_eq!(ask(Some(id)).await.0, 200);
        let (status, said) = ask(None).await;
        assert!(
            status == 401 && said.contains("does not say which account"),
            "{said}"
        );
        let (status, said) = ask(Some(id ^ 1)).await;
        assert!(
            status == 401 && said.contains("not there any more"),
            "{said}"
        );
        let owner = Who::unix(OWNER);
        let (off, on) = (r#"{"on": false}"#, r#"{"on": true}"#);
        let path = "/v1/accounts/booker";
        for (state, expected) in [(off, 401), (on, 200)] {
            assert_eq!(bed.ask(&owner, "PATCH", path, state).await.0, 200);
            assert_eq!(ask(Some(id)).await.0, expected);
        }
        // A later account of the name does not inherit it.
        assert_eq!(bed.ask(&owner, "DELETE", path, "").await.0, 200);
        let again = r#"{"name": "booker", "role": "admin"}"#;
        assert_eq!(bed.ask(&owner, "POST", "/v1/accounts", again).await.0, 200);
        assert_eq!(ask(Some(id)).await.0, 401);
        let (_, page) = bed.ask(&owner, "GET", "/v1/audit", "").await;
        assert!(page.contains("tls 10.0.0.7"), "{page}");
    });
}

#[test]
fn a_silent_meta_store_answers_503_to_tokens_and_locks_the_owner_out_of_nothing() {
    with_bed(async |bed| {
        // The file is opened at the first question: from here on it is none.
        std::fs::write(bed.dir.path().join(FILE), "this is no meta store").expect("ours");
        for (who, role) in bed.everyone() {
            let (status, said) = bed.ask(&who, "GET", "/v1/settings", "").await;
            let knows = match (&who.token, &who.entrance) {
                (Some(token), _) => token == ADMIN_TOKEN,
                (None, Entrance::Unix(peer)) => matches!(peer.user, Some(0 | OWNER)),
                (None, Entrance::Tcp(_) | Entrance::Tls(_)) => false,
            };
            let expected = match (knows, role, who.entrance.is_unix()) {
                (true, _, _) => 200,
                // A user whom an account may name.
                (false, _, true) | (false, Some(_), _) => 503,
                (false, None, false) => 401,
            };
            assert_eq!(status, expected, "{who:?} {said}");
        }
        let near = Who::tcp("127.0.0.1", None);
        assert_eq!(bed.ask(&near, "GET", "/healthz", "").await.0, 200);
        assert_eq!(
            bed.ask(&Who::unix(6000), "GET", "/healthz", "").await.0,
            200
        );
    });
}

#[test]
fn what_was_asked_is_in_the_audit_log_without_secrets_and_strangers_do_not_fill_it() {
    with_bed(async |bed| {
        let admin = Who::tcp("10.0.0.7", Some(&bed.tokens[&Role::Admin]));
        let ask = r#"{"account": "other", "note": "nightly"}"#;
        let (status, made) = bed.ask(&admin, "POST", "/v1/tokens?x=secret", ask).await;
        assert_eq!(status, 200, "{made}");
        let made: serde_json::Value = serde_json::from_str(&made).expect("JSON");
        let made = made["token"].as_str().expect("a token").to_owned();
        let reader = Who::tcp("127.0.0.1", Some(&bed.tokens[&Role::Reader]));
        assert_eq!(bed.ask(&reader, "POST", "/v1/tokens", ask).await.0, 403);
        assert_eq!(bed.ask(&reader, "GET", "/v1/status", "").await.0, 200);
        for _ in 0..100 {
            bed.ask(&Who::tcp("127.0.0.1", None), "GET", "/v1/settings", "")
                .await;
        }
        assert_eq!(
            bed.ask(&admin, "GET", "/v1/accounts/other", "").await.0,
            200
        );
        let (_, page) = bed.ask(&admin, "GET", "/v1/audit", "").await;
        let page: serde_json::Value = serde_json::from_str(&page).expect("JSON");
        let lines = page["lines"].as_array().expect("lines");
        assert_eq!(lines[0]["what"], "POST /v1/tokens");
        // What was read of an account is noted, with which one.
        let last = lines.last().expect("lines");
        assert_eq!(
            (&last["what"], &last["answer"]),
            (&"GET /v1/accounts/other".into(), &200.into())
        );
        assert_eq!(
            (&lines[0]["from"], &lines[0]["answer"]),
            (&"tcp 10.0.0.7".into(), &200.into())
        );
        let who = lines[0]["who"].as_str().expect("text");
        assert!(
            who.starts_with("account admin, admin, by token .."),
            "{who}"
        );
        assert_eq!(
            (&lines[1]["what"], &lines[1]["answer"]),
            (&"POST /v1/tokens".into(), &403.into())
        );
        assert_eq!(lines[2]["who"], "a client without a token");
        assert_eq!(
            lines.len(),
            23,
            "what is only looked at is not noted, strangers 20 times"
        );
        let (_, page) = bed
            .ask(&admin, "GET", "/v1/audit?after=20&limit=1", "")
            .await;
        assert!(
            page.contains("\"number\":21") && page.contains("\"next\":21"),
            "{page}"
        );
        let file = bed.dir.path().join(audit_log::FILE);
        let text = std::fs::read_to_string(&file).expect("it is there");
        let secrets = bed.tokens.values().chain([&bed.other, &made]);
        for secret in secrets {
            assert!(!text.contains(&secret[24..]));
        }
        assert!(
            !text.contains("secret") && !text.contains("nightly"),
            "{text}"
        );
        let verdict = ::access::audit::verify(&file).expect("it can be read");
        assert_eq!(verdict.broken, None);
        assert_eq!(
            TokenRecord::key("0123456789abcdef".parse().expect("one")),
            "token/0123456789abcdef"
        );
    });
}

#[test]
fn where_it_cannot_be_read_whose_a_booking_is_all_wait_but_the_owner() {
    with_bed(async |bed| {
        {
            let redb = Redb::open(&bed.dir.path().join(FILE)).expect("a file");
            let runtime = env::Runtime::real(env::RealConfig::default()).expect("a runtime");
            let meta = redb.handle().client();
            let junk = Op::Put {
                key: "usage/booker".to_owned(),
                value: b"junk".to_vec(),
                lease: None,
            };
            let done = runtime.block_on(async move { meta.txn(Vec::new(), vec![junk]).await });
            done.expect("it is put");
        }
        let it = serde_json::json!({
            "id": "s0/1", "store": "s0", "state": "committed", "direction": "read", "rate_bytes_per_second": 1,
            "window_ns": 1, "probability_percent": 99.0, "from_unix_seconds": 1, "until_unix_seconds": 2,
            "space_bytes": 0, "space_left_bytes": 0, "scope": "a/", "holder": "booker", "group": "a1",
        });
        let it: Reservation = serde_json::from_value(it).expect("a reservation");
        let of = |role: Role| Caller {
            account: Some(role.as_str().parse().expect("a name")),
            role: Some(role),
            ..Caller::nothing()
        };
        for role in [Role::Booker, Role::Operator, Role::Admin] {
            let (caller, control) = (of(role), &bed.control);
            let had = names::check_capability(control, &caller, &it).await;
            let booked = names::check_book(control, &caller, &it).await;
            for refused in [had, booked.map(drop)] {
                let status = refused.err().map(|failure| failure.status.as_u16());
                assert_eq!(status, Some(503), "{role:?}");
            }
        }
        let owner = Caller::local(OWNER);
        let had = names::check_capability(&bed.control, &owner, &it).await;
        assert!(had.is_ok());
        let owns = names::check_book(&bed.control, &owner, &it).await;
        assert!(owns.is_ok_and(|owner| owner.is_none()));
    });
}
