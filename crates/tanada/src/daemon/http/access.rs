//! Who asks, as far as a connection and a header say it? And what is a client told that may not?
//!
//! ```text
//! Unix socket -> peer credentials: the owner, its group where root made the socket for that, or root -> everything
//!                another user -> the account that names it (`door` looks), else as a client without a token
//! TCP         -> the admin token                     -> everything
//!             -> a token of an account (`door` looks)
//!             -> in TLS, the certificate of an account (`door` looks)
//!             -> no token, on loopback               -> GET of the paths in READABLE, nothing else: a reader without names
//! ```
//!
//! Pure: no socket, no file, no meta store. `guard` looks at what a browser adds, `listen` says where a request came from.
//!
//! Always true:
//! 1. What a client shows counts before where it comes from: a wrong token is refused everywhere.
//! 2. A route that is added later is out of a reader's reach until it stands in `rights`.

use std::net::IpAddr;
use std::sync::Arc;

use access::caller::{Caller, Denied, How};
use access::role::Role;
use access::token as access_token;
use axum::http::{HeaderMap, Method, StatusCode, header};
use subtle::ConstantTimeEq;
use tls::{Peer, Serial};

use super::control::Failure;
use crate::api::access::Access;
use crate::daemon::common::http_tls::TlsPeer;

/// The process at the other end of a Unix socket.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct UnixPeer {
    /// Its user; `None`: the system did not say.
    pub user: Option<u32>,
    /// Its groups, the first one and all others.
    pub groups: Arc<[u32]>,
    /// Its number.
    pub process: Option<i32>,
}

/// Where a request came in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entrance {
    /// Over TCP, from this address: the user at the other end is unknown.
    Tcp(IpAddr),
    /// Over TLS, with what the client showed.
    Tls(TlsPeer),
    /// Over a Unix socket.
    Unix(UnixPeer),
}

impl Entrance {
    pub fn is_unix(&self) -> bool {
        matches!(self, Entrance::Unix(_))
    }

    /// Is it a process of this machine?
    pub fn is_near(&self) -> bool {
        match self {
            Entrance::Tcp(from) | Entrance::Tls(TlsPeer { from, .. }) => {
                from.to_canonical().is_loopback()
            }
            Entrance::Unix(_) => true,
        }
    }
}

/// For the audit log.
impl std::fmt::Display for Entrance {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Entrance::Tcp(from) => write!(f, "tcp {from}"),
            Entrance::Tls(peer) => write!(f, "tls {}", peer.from),
            Entrance::Unix(peer) => {
                f.write_str("unix")?;
                if let Some(process) = peer.process {
                    write!(f, " process {process}")?;
                }
                match peer.user {
                    Some(user) => write!(f, " user {user}"),
                    None => f.write_str(" unknown user"),
                }
            }
        }
    }
}

/// What can be said of a request without asking the meta store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Claim<'a> {
    /// It is this caller.
    Is(Caller),
    /// It shows a token of an account.
    Token(&'a str),
    /// It shows the certificate of this account, and says which one of the name: its name, identity and the serial number.
    Certificate(&'a str, Option<u64>, &'a Serial),
    /// It comes from a user who may be named by an account.
    User(u32, &'a [u32]),
    /// It shows nothing.
    Nothing,
}

/// Who asks, as far as it can be said at once. `token` is the daemon's own, as it stands behind `Authorization: Bearer`.
///
/// # Errors
/// Status 401: it shows what is no token of this daemon.
pub(crate) fn claim<'a>(
    access: &Access,
    token: &str,
    entrance: &'a Entrance,
    headers: &'a HeaderMap,
) -> Result<Claim<'a>, Failure> {
    if let Some(said) = headers.get(header::AUTHORIZATION) {
        let given = said.as_bytes().strip_prefix(b"Bearer ").unwrap_or_default();
        // The time this takes does not depend on how much of it is right.
        if bool::from(given.ct_eq(token.as_bytes())) {
            return Ok(Claim::Is(Caller {
                account: None,
                account_id: None,
                role: Some(Role::Admin),
                how: How::AdminToken,
            }));
        }
        let given = std::str::from_utf8(given).ok();
        let of_account = given.filter(|it| access_token::looks_like(it));
        return of_account
            .map(Claim::Token)
            .ok_or_else(|| access.wrong_token());
    }
    Ok(match entrance {
        Entrance::Unix(peer) => match peer.user {
            Some(user) if user == access.owner_user || user == 0 => Claim::Is(Caller::local(user)),
            Some(user) => Claim::User(user, &peer.groups),
            None => Claim::Nothing,
        },
        Entrance::Tls(TlsPeer { shown, .. }) => match shown.as_deref() {
            Some(shown) => match &shown.peer {
                Peer::Account(name) => Claim::Certificate(name, shown.account_id, &shown.serial),
                // A node has its key for stores, and commands no other node.
                _ => Claim::Nothing,
            },
            None => Claim::Nothing,
        },
        Entrance::Tcp(_) => Claim::Nothing,
    })
}

impl Access {
    /// Who is at the Unix socket whom no account names.
    pub(super) fn unnamed(&self, user: u32, groups: &[u32]) -> Caller {
        match self.owner_group.is_some_and(|it| groups.contains(&it)) {
            true => Caller::local(user),
            false => Caller::nothing(),
        }
    }

    /// Why a caller without a role gets nothing here.
    pub(super) fn without_a_role(
        &self,
        entrance: &Entrance,
        (method, path): (&Method, &str),
    ) -> Failure {
        match entrance {
            Entrance::Unix(peer) => {
                let user = peer.user;
                let who = user.map_or("an unknown user".to_owned(), |user| format!("user {user}"));
                let error = format!(
                    "the daemon obeys its owner, user {}, and root, and users whom an account names; this request comes \
                     from {who}, whom none names",
                    self.owner_user
                );
                Failure::new(StatusCode::FORBIDDEN, error, self.ways_in())
            }
            _ if entrance.is_near() => self.unauthorized(format!(
                "{method} {path} is for the daemon's owner, user {}, and for accounts; without a token or the certificate of \
                 an account TCP answers only GET of health, metrics, status and what the dashboard shows",
                self.owner_user,
            )),
            Entrance::Tcp(from) | Entrance::Tls(TlsPeer { from, .. }) => {
                self.unauthorized(format!(
                    "{method} {path} was asked from {from} without a token or the certificate of an account, and from other \
                     machines nothing is answered without one"
                ))
            }
        }
    }

    /// What was shown is not taken.
    pub(super) fn unauthorized(&self, error: impl Into<String>) -> Failure {
        Failure::new(StatusCode::UNAUTHORIZED, error, self.ways_in())
    }

    fn wrong_token(&self) -> Failure {
        self.unauthorized("the Authorization header holds another token than this daemon's")
    }

    /// What a refused asker can do.
    fn ways_in(&self) -> String {
        let socket = match self.sockets.first() {
            Some(path) => format!(
                "ask as user {} or root at unix:{path} (`tanada` finds it by itself for the owner, with --admin for root)",
                self.owner_user
            ),
            None => format!("ask as user {}", self.owner_user),
        };
        format!(
            "{socket}, or bring the token in {}: TANADA_ADMIN_TOKEN_FILE=FILE for `tanada`, the header \
             `Authorization: Bearer TOKEN` for others; or a token of an account (`tanada token create`): TANADA_TOKEN; or, \
             in TLS, a certificate of one (`tanada cluster ca issue --account`): TANADA_IDENTITY",
            self.token_file
        )
    }
}

impl From<Denied> for Failure {
    fn from(denied: Denied) -> Failure {
        let todo = denied.what_to_do.clone();
        Failure::new(StatusCode::FORBIDDEN, denied.to_string(), todo)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: &str = "00ff";

    fn access() -> Access {
        Access {
            owner_user: 1000,
            sockets: vec!["/d/admin.sock".to_owned()],
            token_file: "/d/admin.token".to_owned(),
            ..Access::default()
        }
    }

    fn unix(user: Option<u32>) -> Entrance {
        Entrance::Unix(UnixPeer {
            user,
            groups: Arc::new([7]),
            process: Some(12),
        })
    }

    fn tcp(from: &str) -> Entrance {
        Entrance::Tcp(from.parse().unwrap())
    }

    fn in_tls(from: &str, peer: Option<Peer>) -> Entrance {
        let shown = peer.map(|peer| tls::Certificate {
            peer,
            account_id: Some(9),
            hosts: Vec::new(),
            serial: Serial::parse("a1").unwrap(),
            not_before: 0,
            not_after: 1,
        });
        Entrance::Tls(TlsPeer {
            from: from.parse().unwrap(),
            shown: shown.map(Arc::new),
        })
    }

    fn said(entrance: &Entrance, bearer: Option<&str>) -> String {
        let mut headers = HeaderMap::new();
        if let Some(bearer) = bearer {
            headers.insert(header::AUTHORIZATION, bearer.parse().unwrap());
        }
        match claim(&access(), TOKEN, entrance, &headers) {
            Ok(claim) => format!("{claim:?}"),
            Err(failure) => {
                let todo = failure.refusal.what_to_do;
                assert!(
                    todo.contains("/d/admin.sock") && todo.contains("/d/admin.token"),
                    "{todo}"
                );
                failure.status.as_u16().to_string()
            }
        }
    }

    #[test]
    fn the_owner_and_root_are_known_at_the_socket_and_others_are_looked_for() {
        for user in [0, 1000] {
            assert!(said(&unix(Some(user)), None).contains(&format!("Local({user})")));
        }
        assert_eq!(said(&unix(Some(1001)), None), "User(1001, [7])");
        let of_group = |group| Access {
            owner_group: Some(group),
            ..access()
        };
        let unnamed = |group| of_group(group).unnamed(1001, &[100, 7]);
        assert_eq!(unnamed(7), Caller::local(1001));
        assert_eq!(unnamed(8), Caller::nothing());
        assert_eq!(said(&unix(None), None), "Nothing");
        assert_eq!(said(&tcp("127.0.0.1"), None), "Nothing");
    }

    #[test]
    fn in_tls_an_account_is_known_by_its_certificate_and_a_node_is_nothing_here() {
        let astro = Some(Peer::Account("astro".into()));
        let of_astro = r#"Certificate("astro", Some(9), Serial("a1"))"#;
        assert_eq!(said(&in_tls("10.0.0.7", astro), None), of_astro);
        let node = Some(Peer::Node("n1".into()));
        for nothing in [node, Some(Peer::Unknown), None] {
            assert_eq!(said(&in_tls("10.0.0.7", nothing), None), "Nothing");
        }
        assert!(in_tls("::1", None).is_near() && !in_tls("10.0.0.7", None).is_near());
        assert!(!in_tls("127.0.0.1", None).is_unix(), "browsers reach it");
    }

    #[test]
    fn what_is_shown_counts_before_where_it_comes_from() {
        let astro = in_tls("10.0.0.7", Some(Peer::Account("astro".into())));
        for entrance in [tcp("10.0.0.7"), astro, unix(Some(0)), unix(Some(1001))] {
            assert!(said(&entrance, Some("Bearer 00ff")).contains("AdminToken"));
            assert_eq!(
                said(&entrance, Some("Bearer tanada_x")),
                "Token(\"tanada_x\")"
            );
            for wrong in [
                "Bearer 00fe",
                "Bearer 00f",
                "Bearer 00ff0",
                "Bearer ",
                "00ff",
                "Basic 00ff",
                "tanada_x",
                "Bearer Tanada_x",
            ] {
                assert_eq!(said(&entrance, Some(wrong)), "401", "{wrong}");
            }
        }
    }

    #[test]
    fn loopback_is_near_in_all_its_spellings_and_other_machines_are_not() {
        for near in ["127.0.0.1", "127.8.8.8", "::1", "::ffff:127.0.0.1"] {
            assert!(tcp(near).is_near(), "{near}");
        }
        for far in ["10.0.0.7", "0.0.0.0", "::ffff:10.0.0.7", "fe80::1", "::"] {
            assert!(!tcp(far).is_near(), "{far}");
        }
        assert!(unix(Some(5)).is_near());
    }
}
