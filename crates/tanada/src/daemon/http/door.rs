//! The door of the admin API: whose request it is, whether it may, and the line in the audit log.
//!
//! ```text
//! request -> guard (browsers) -> access::claim -> meta store, for tokens, certificates and users -> Caller
//!         -> rights: may this role? -> change_log -> handler, which finds the Caller in the request -> audit -> answer
//! ```
//!
//! Always true:
//! 1. A meta store that is silent lets no token or certificate in (status 503), and the owner and root at the Unix socket without asking it.
//! 2. What changes something runs to its end and is in the audit log, durable, before its answer goes out, be the client
//!    there or not.

use std::sync::Arc;

use access::audit::Event;
use access::caller::Caller;
use access::name::AccountName;
use access::registry::{AccessError, Peer, Registry};
use access::role::{Action, Whose};
use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderMap, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Router};

use super::access::{Claim, Entrance, claim};
use super::account_records::Accounts;
use super::change_log;
use super::control::{Control, Failure};
use super::gate::Gate;
use super::rights;
use crate::api::access::ACCOUNT_HEADER;
use crate::daemon::common::when::unix_seconds;

/// The gate, and the daemon behind it.
pub(super) struct Door {
    pub control: Arc<Control>,
    pub gate: Gate,
    /// The routes without a door, to look what is there before a change.
    pub behind: Router,
}

/// What is asked, as far as it matters here.
struct Asked {
    method: Method,
    path: String,
    /// As it stands in the document; `None`: nothing is there.
    route: Option<String>,
    from: Entrance,
}

impl Asked {
    fn action(&self) -> Option<Action> {
        let route = self.route.as_deref()?;
        Some(rights::action(&self.method, route))
    }

    fn is_change(&self) -> bool {
        let route = self.route.as_deref();
        route.is_some_and(|route| change_log::is_change(&self.method, route))
    }

    fn is_noted(&self) -> bool {
        rights::is_noted(&self.method, self.route.as_deref().unwrap_or_default())
    }
}

/// Lets a request in, or refuses it.
pub(super) async fn stand(
    State(door): State<Arc<Door>>,
    Extension(from): Extension<Entrance>,
    mut request: Request,
    next: Next,
) -> Response {
    let route = request.extensions().get::<MatchedPath>();
    let asked = Asked {
        method: request.method().clone(),
        path: request.uri().path().to_owned(),
        route: route.map(|route| route.as_str().to_owned()),
        from,
    };
    let (caller, let_in) = door.judge(&asked, request.headers()).await;
    if let Err(failure) = let_in {
        let (path, why) = (without_secrets(&asked.path, '/'), &failure.refusal.error);
        tracing::warn!(path, why, "refused an admin request");
        let status = failure.status;
        let known = caller.role.is_some();
        let noted = known || door.gate.audit.has_room_for_a_stranger();
        if noted {
            let _ = door.note(&asked, &caller, status).await;
        }
        return failure.into_response();
    }
    request.extensions_mut().insert(caller.clone());
    if !asked.is_noted() {
        return next.run(request).await;
    }
    if let Err(failure) = door.may_be_noted(&caller) {
        return failure.into_response();
    }
    // The client may hang up: what is begun is done, and noted.
    let whole = tokio::spawn(async move {
        let answer = match asked.is_change() {
            true => {
                let looks = door.behind.clone();
                change_log::run((request, next), looks, (&caller, &asked.from)).await
            }
            false => next.run(request).await,
        };
        match door.note(&asked, &caller, answer.status()).await {
            Ok(()) => answer,
            Err(failure) => failure.into_response(),
        }
    });
    whole.await.unwrap_or_else(|_| {
        let error = "the request was cut off by a mistake of the daemon; its log says which";
        let todo = "look whether it was carried out, and report this as a bug";
        Failure::new(StatusCode::INTERNAL_SERVER_ERROR, error, todo).into_response()
    })
}

/// A secret is longer than this behind its mark; what is shorter, such as `tanada_prod`, is a name.
const SECRET_FROM: usize = 32;

/// A path, or another text of parts, without what could be a token or a capability: clients mistake them for names.
pub(super) fn without_secrets(text: &str, between: char) -> String {
    // Tokens are tanada_..., capabilities and sets of them tanada1.... and tanadaset1...., whatever their version.
    let is_secret = |part: &str| {
        let mut behind = part.split("tanada").skip(1);
        behind.any(|it| {
            let kind = it.trim_start_matches(|of: char| of.is_ascii_alphanumeric());
            kind.starts_with(['_', '.']) && kind.len() > SECRET_FROM
        })
    };
    let part = |part: &str| match is_secret(part) {
        true => "..".to_owned(),
        false => part.to_owned(),
    };
    let parts: Vec<String> = text.split(between).map(part).collect();
    parts.join(&between.to_string())
}

impl Door {
    /// Whose request it is, and may it?
    async fn judge(&self, asked: &Asked, headers: &HeaderMap) -> (Caller, Result<(), Failure>) {
        if !asked.from.is_unix()
            && let Err(why) = self.gate.check(headers)
        {
            let todo =
                "call this machine by an IP address or localhost, or name it in [admin] hosts";
            let error = format!("the request was refused: {why}");
            let failure = Failure::new(StatusCode::FORBIDDEN, error, todo);
            return (Caller::nothing(), Err(failure));
        }
        match self.caller(asked, headers).await {
            Ok(caller) => {
                let let_in = self.may(asked, &caller);
                (caller, let_in)
            }
            Err(failure) => (Caller::nothing(), Err(failure)),
        }
    }

    fn may(&self, asked: &Asked, caller: &Caller) -> Result<(), Failure> {
        let looks = asked.action() == Some(Action::Look) && asked.from.is_near();
        match asked.action() {
            _ if caller.role.is_none() && looks => Ok(()),
            _ if caller.role.is_none() => {
                let what = (&asked.method, asked.path.as_str());
                Err(self.gate.access.without_a_role(&asked.from, what))
            }
            // Nothing is there, which each caller with a role may learn.
            None => Ok(()),
            Some(action) if caller.may_ever(action) => Ok(()),
            Some(action) => Err(caller.denied(action, Whose::Own).into()),
        }
    }

    /// Whose request it is.
    async fn caller(&self, asked: &Asked, headers: &HeaderMap) -> Result<Caller, Failure> {
        let access = &self.gate.access;
        match claim(access, &self.gate.token, &asked.from, headers)? {
            Claim::Is(caller) => Ok(caller),
            Claim::Nothing => Ok(Caller::nothing()),
            Claim::Token(token) => {
                let (token, now) = (token.to_owned(), unix_seconds() as u64);
                self.asked_of_accounts(async move |it: &Registry| it.by_token(&token, now).await)
                    .await
            }
            Claim::Certificate(name, id, serial) => {
                let (account, serial) = (name.parse::<AccountName>(), serial.to_string());
                let (Ok(account), Some(id)) = (account, id) else {
                    return Err(access.unauthorized(format!(
                        "the certificate {serial} does not say which account {name} it is for; issue another one with `tanada \
                         cluster ca issue --account {name}`"
                    )));
                };
                self.asked_of_accounts(async move |it: &Registry| {
                    it.by_certificate((&account, id), &serial).await
                })
                .await
            }
            Claim::User(user, groups) => {
                let unnamed = self.gate.access.unnamed(user, groups);
                if self.control.records.were_never_made() {
                    return Ok(unnamed);
                }
                let (groups, wanted) = (groups.to_vec(), wanted(headers)?);
                let found = Accounts(&self.control).ask(async move |it: &Registry| {
                    let groups = &groups;
                    it.by_user(Peer { user, groups }, wanted.as_ref()).await
                });
                let found = match found.await {
                    // Health is looked at also while the meta store is silent.
                    Err(_) if asked.action() == Some(Action::Look) => None,
                    found => found?,
                };
                Ok(found.unwrap_or(unnamed))
            }
        }
    }

    /// Whose is what was shown? With the ways in, where it is not taken.
    async fn asked_of_accounts(
        &self,
        look: impl AsyncFnOnce(&Registry) -> Result<Caller, AccessError> + Send + 'static,
    ) -> Result<Caller, Failure> {
        let found = Accounts(&self.control).ask(look).await;
        found.map_err(|failure| match failure.status {
            StatusCode::UNAUTHORIZED => self.gate.access.unauthorized(failure.refusal.error),
            _ => failure,
        })
    }

    /// Refuses what could not be noted, but not to the owner, who can repair that.
    fn may_be_noted(&self, caller: &Caller) -> Result<(), Failure> {
        match self.gate.audit.trouble() {
            Some(why) if !caller.is_owner() => Err(Failure::new(
                StatusCode::SERVICE_UNAVAILABLE,
                format!(
                    "the audit log cannot be written, and nothing is changed without it: {why}"
                ),
                "the daemon's owner and root can go on; make room in the data directory",
            )),
            _ => Ok(()),
        }
    }

    /// Writes the line of a request, and waits until it is durable.
    async fn note(
        &self,
        asked: &Asked,
        caller: &Caller,
        status: StatusCode,
    ) -> Result<(), Failure> {
        let event = Event {
            at: unix_seconds(),
            who: caller.to_string(),
            from: asked.from.to_string(),
            what: format!("{} {}", asked.method, without_secrets(&asked.path, '/')),
            answer: status.as_u16(),
        };
        self.gate.audit.append(event).await.map_err(|why| {
            Failure::new(
                StatusCode::INTERNAL_SERVER_ERROR,
                format!("the answer was {status}, and it is not in the audit log: {why}"),
                "look whether it was carried out; make room in the data directory",
            )
        })
    }
}

/// For which account a user of several asks.
fn wanted(headers: &HeaderMap) -> Result<Option<AccountName>, Failure> {
    let Some(name) = headers.get(ACCOUNT_HEADER) else {
        return Ok(None);
    };
    let name = name.to_str().unwrap_or_default().parse();
    name.map(Some)
        .map_err(|error: access::name::BadAccountName| {
            Failure::new(
                StatusCode::UNPROCESSABLE_ENTITY,
                format!("the header Tanada-Account: {error}"),
                "leave it out, or name an account",
            )
        })
}
