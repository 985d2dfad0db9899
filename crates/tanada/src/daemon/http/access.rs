//! Which requests of the admin API are carried out for whom?
//!
//! ```text
//! Unix socket -> peer credentials: the owner or root -> everything
//! TCP         -> the bearer token                    -> everything
//!             -> no token                            -> GET of the paths in READABLE, nothing else
//! ```
//!
//! Pure: no socket, no file. `guard` looks at what a browser adds, `listen` says where a request came from.
//!
//! Always true:
//! 1. A route that is added later is out of a reader's reach until its path stands in [`READABLE`].
//! 2. No answer of these paths holds a capability, a key or a token.

use axum::http::{HeaderMap, Method, StatusCode, header};
use subtle::ConstantTimeEq;

use super::control::Failure;
use crate::api::access::{Access, READABLE};

/// Where a request came in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Entrance {
    /// Over TCP: the user at the other end is unknown.
    Tcp,
    /// Over a Unix socket, from a process of this user; `None`: the system did not say.
    Unix(Option<u32>),
}

impl Entrance {
    pub fn is_unix(self) -> bool {
        matches!(self, Entrance::Unix(_))
    }
}

/// Carries a request out for the owner; for others only what is readable.
///
/// `token` is the daemon's own, as it stands behind `Authorization: Bearer`.
///
/// # Errors
/// What is answered then: status 401 without the right token, 403 for another user at a Unix socket.
pub(crate) fn check(
    access: &Access,
    token: &str,
    entrance: Entrance,
    (method, path): (&Method, &str),
    headers: &HeaderMap,
) -> Result<(), Failure> {
    if bears(headers, token) {
        return Ok(());
    }
    match entrance {
        Entrance::Unix(Some(user)) if user == access.owner_user || user == 0 => Ok(()),
        Entrance::Unix(user) => Err(access.not_the_owner(user)),
        Entrance::Tcp if headers.contains_key(header::AUTHORIZATION) => Err(access.wrong_token()),
        Entrance::Tcp if method == Method::GET && READABLE.contains(&path) => Ok(()),
        Entrance::Tcp => Err(access.for_the_owner(method, path)),
    }
}

/// Does the request carry the token? The time this takes does not depend on how much of it is right.
fn bears(headers: &HeaderMap, token: &str) -> bool {
    let said = headers.get(header::AUTHORIZATION).map(|it| it.as_bytes());
    let given = said.and_then(|said| said.strip_prefix(b"Bearer "));
    given.is_some_and(|given| bool::from(given.ct_eq(token.as_bytes())))
}

impl Access {
    fn for_the_owner(&self, method: &Method, path: &str) -> Failure {
        Failure::new(
            StatusCode::UNAUTHORIZED,
            format!(
                "{method} {path} is for the daemon's owner, user {}; without a token TCP answers only GET of {}",
                self.owner_user,
                READABLE.join(", ")
            ),
            self.ways_in(),
        )
    }

    fn wrong_token(&self) -> Failure {
        Failure::new(
            StatusCode::UNAUTHORIZED,
            "the Authorization header holds another token than this daemon's",
            self.ways_in(),
        )
    }

    fn not_the_owner(&self, user: Option<u32>) -> Failure {
        let who = user.map_or("unknown".to_owned(), |user| format!("user {user}"));
        Failure::new(
            StatusCode::FORBIDDEN,
            format!(
                "the daemon obeys its owner, user {}, and root; this request comes from {who}",
                self.owner_user
            ),
            self.ways_in(),
        )
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
             `Authorization: Bearer TOKEN` for others",
            self.token_file
        )
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
        }
    }

    fn status(entrance: Entrance, method: Method, path: &str, bearer: Option<&str>) -> u16 {
        let mut headers = HeaderMap::new();
        if let Some(bearer) = bearer {
            headers.insert(header::AUTHORIZATION, bearer.parse().unwrap());
        }
        match check(&access(), TOKEN, entrance, (&method, path), &headers) {
            Ok(()) => 200,
            Err(failure) => {
                let todo = failure.refusal.what_to_do;
                assert!(
                    todo.contains("/d/admin.sock") && todo.contains("/d/admin.token"),
                    "{todo}"
                );
                failure.status.as_u16()
            }
        }
    }

    #[test]
    fn a_reader_gets_what_is_listed_and_nothing_that_is_not() {
        for path in READABLE {
            assert_eq!(
                status(Entrance::Tcp, Method::GET, path, None),
                200,
                "{path}"
            );
            for method in [Method::POST, Method::PATCH, Method::DELETE, Method::PUT] {
                assert_eq!(status(Entrance::Tcp, method, path, None), 401, "{path}");
            }
        }
        // What no list names is refused, be it there or not.
        for path in [
            "/v1/reservations/s0/1",
            "/v1/volumes/vol0",
            "/v1/status/",
            "/v1//status",
            "/v1/st%61tus",
            "/brand-new",
            "",
        ] {
            assert_eq!(
                status(Entrance::Tcp, Method::GET, path, None),
                401,
                "{path}"
            );
        }
    }

    #[test]
    fn the_owner_and_root_command_at_the_socket_and_others_do_not() {
        let patch = |user| status(Entrance::Unix(user), Method::PATCH, "/v1/volumes/v", None);
        assert_eq!(patch(Some(1000)), 200);
        assert_eq!(patch(Some(0)), 200);
        assert_eq!(patch(Some(1001)), 403);
        assert_eq!(patch(None), 403);
    }

    #[test]
    fn the_token_opens_everything_and_a_wrong_one_not_even_what_readers_get() {
        let with = |bearer| status(Entrance::Tcp, Method::DELETE, "/v1/x", Some(bearer));
        assert_eq!(with("Bearer 00ff"), 200);
        for wrong in [
            "Bearer 00fe",
            "Bearer 00f",
            "Bearer 00ff0",
            "Bearer ",
            "00ff",
            "Basic 00ff",
        ] {
            assert_eq!(with(wrong), 401, "{wrong}");
        }
        let get = status(Entrance::Tcp, Method::GET, "/metrics", Some("Bearer 1"));
        assert_eq!(get, 401);
    }
}
