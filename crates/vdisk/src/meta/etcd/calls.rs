//! One call to the cluster: which member is asked, what is asked again, and what is known when no member answers.
//!
//! ```text
//! call -> member -> answer                                   -> done
//!                -> not sent, or refused before it was done  -> next member, while there is time
//!                -> sent, no answer: may it be done twice?   -> yes: next member | no: Unknown
//!                -> token not known any more                 -> a new token, once more
//! ```
//!
//! Always true:
//! 1. A transaction that may have been sent is never sent again.
//! 2. `Unavailable` for a transaction means that no member got it.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::sync::Mutex;
use tokio::time::{sleep, timeout};

use super::super::checked::Asked;
use super::super::{Compare, Entry, LeaseId, MetaError, Op, Outcome, Page, Revision};
use super::http::{Endpoint, Fault};
use super::wire::{
    Complaint, Granted, KeptAlive, Line, Names, Nothing, RangeAnswer, Token, TxnAnswer,
};

/// Between two rounds over all members.
const PAUSE: Duration = Duration::from_millis(100);

/// How etcd's gRPC codes are called; with any other the outcome is indeterminate.
mod code {
    pub const INVALID: u64 = 3;
    pub const NOT_FOUND: u64 = 5;
    pub const DENIED: u64 = 7;
    pub const EXHAUSTED: u64 = 8;
    pub const PRECONDITION: u64 = 9;
    pub const OUT_OF_RANGE: u64 = 11;
    pub const UNIMPLEMENTED: u64 = 12;
    pub const UNAUTHENTICATED: u64 = 16;
}

/// A user and its password.
#[derive(Clone)]
pub struct User {
    pub name: String,
    pub password: String,
}

/// Everything that is asked of one etcd cluster.
pub struct Cluster {
    /// Fixed at open.
    pub name: String,
    pub endpoints: Vec<Endpoint>,
    pub names: Names,
    pub user: Option<User>,
    pub connect_timeout: Duration,
    pub call_timeout: Duration,
    /// The member that answered last.
    pub preferred: AtomicUsize,
    /// What proves who we are, and how many there were before.
    pub token: Mutex<(u64, Option<String>)>,
}

/// May a call be sent again when its outcome is indeterminate?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Again {
    Yes,
    No,
}

/// Why a call was not answered.
pub enum Failure {
    /// Nothing was done. What etcd said, or which member was asked in vain.
    Nothing(String),
    /// It may have been done.
    Unknown(String),
    /// It can never be done.
    Never(String),
    /// The lease is not there. Was an earlier try of this call left without an answer?
    NoLease { tried: bool },
    /// The answer is too long.
    TooBig,
}

/// What one member made of one request.
enum Tried {
    Answer(Bytes),
    /// Surely nothing was done; another may do it.
    Elsewhere(String),
    /// Perhaps it was done.
    Perhaps(String),
    /// Nothing was done: the token is old.
    Token(String),
    Failed(Failure),
}

/// What is known of a call while members are asked.
struct SoFar {
    /// Why the last one asked gave no answer.
    last: String,
    /// Was a request left without an answer?
    unanswered: bool,
    /// How often a new token was needed.
    new_tokens: u32,
}

impl Failure {
    pub fn error(self, cluster: &Cluster, asked: Asked<'_>, lease: Option<LeaseId>) -> MetaError {
        let (store, asked) = (cluster.name.clone(), asked.to_string());
        match self {
            Failure::Nothing(why) => MetaError::Unavailable { store, asked, why },
            Failure::Unknown(why) => MetaError::Unknown { store, asked, why },
            Failure::Never(why) => MetaError::Bad { store, asked, why },
            Failure::NoLease { .. } => match lease {
                Some(lease) => MetaError::NoLease { store, lease },
                None => MetaError::Bad {
                    store,
                    asked,
                    why: "one of its leases is not there".to_owned(),
                },
            },
            Failure::TooBig => MetaError::Unavailable {
                store,
                asked,
                why: "the answer is longer than is ever read".to_owned(),
            },
        }
    }
}

/// What a complaint says about what was done.
fn judge(complaint: Complaint) -> Tried {
    let Complaint { code, message } = complaint;
    let token_is_old = code == code::UNAUTHENTICATED
        || (code == code::INVALID
            && (message.contains("user name is empty") || message.contains("auth store is old")));
    match code {
        _ if token_is_old => Tried::Token(message),
        code::NOT_FOUND if message.contains("lease") => {
            Tried::Failed(Failure::NoLease { tried: false })
        }
        // Too many requests, or no room left: refused before anything was done.
        code::EXHAUSTED => Tried::Failed(Failure::Nothing(message)),
        code::INVALID
        | code::NOT_FOUND
        | code::DENIED
        | code::PRECONDITION
        | code::OUT_OF_RANGE
        | code::UNIMPLEMENTED => Tried::Failed(Failure::Never(message)),
        _ => Tried::Perhaps(message),
    }
}

impl Cluster {
    /// One request to one member.
    async fn try_at(
        &self,
        at: usize,
        path: &str,
        body: &Bytes,
        token: Option<&str>,
        call_timeout: Duration,
        sent: &AtomicBool,
    ) -> Tried {
        let endpoint = &self.endpoints[at];
        let at_endpoint = |why: String| format!("{}: {why}", endpoint.url);
        let (status, answer) = match endpoint
            .post(path, body, token, self.connect_timeout, call_timeout, sent)
            .await
        {
            Ok(answered) => answered,
            Err(Fault::NotSent(why)) => return Tried::Elsewhere(at_endpoint(why)),
            Err(Fault::NoAnswer(why)) => return Tried::Perhaps(at_endpoint(why)),
            Err(Fault::TooBig) => return Tried::Failed(Failure::TooBig),
        };
        if status.is_success() {
            return Tried::Answer(answer);
        }
        let value: Value = serde_json::from_slice(&answer).unwrap_or_default();
        match Complaint::read(&value) {
            Some(complaint) => match judge(complaint) {
                Tried::Perhaps(why) => Tried::Perhaps(at_endpoint(why)),
                judged => judged,
            },
            // Something in between spoke, not etcd.
            None if status.is_client_error() => Tried::Elsewhere(at_endpoint(status.to_string())),
            None => Tried::Perhaps(at_endpoint(status.to_string())),
        }
    }

    /// A call to whichever member answers.
    async fn call(&self, path: &str, body: &Value, again: Again) -> Result<Bytes, Failure> {
        let body = Bytes::from(body.to_string());
        let mut so_far = SoFar {
            last: "no member could be asked yet".to_owned(),
            unanswered: false,
            new_tokens: 0,
        };
        let sent = AtomicBool::new(false);
        let tries = async {
            loop {
                let first = self.preferred.load(Ordering::Relaxed);
                for turn in 0..self.endpoints.len() {
                    let at = (first + turn) % self.endpoints.len();
                    let asked = self.ask_one(at, path, &body, again, &sent, &mut so_far);
                    if let Some(answer) = asked.await? {
                        return Ok(answer);
                    }
                }
                sleep(PAUSE).await;
            }
        };
        match timeout(self.call_timeout, tries).await {
            Ok(result) => result,
            // The time ran out with a request on its way, or one got no answer.
            Err(_) if so_far.unanswered || sent.load(Ordering::Relaxed) => {
                self.prefer_another_than(self.preferred.load(Ordering::Relaxed));
                let call_timeout = self.call_timeout;
                let why = format!("no answer in {call_timeout:?}; {}", so_far.last);
                Err(Failure::Unknown(why))
            }
            Err(_) => {
                let why = format!("no member answered; {}", so_far.last);
                Err(Failure::Nothing(why))
            }
        }
    }

    /// Asks one member for its part of a call. Without an answer another may be asked, and `so_far` says why.
    async fn ask_one(
        &self,
        at: usize,
        path: &str,
        body: &Bytes,
        again: Again,
        sent: &AtomicBool,
        so_far: &mut SoFar,
    ) -> Result<Option<Bytes>, Failure> {
        let (number, token) = match self.token(None).await {
            Ok(token) => token,
            Err(Failure::Nothing(why)) => {
                so_far.last = why;
                return Ok(None);
            }
            Err(failure) => return Err(failure),
        };
        let (token, time) = (token.as_deref(), self.time_for_one(again));
        let tried = self.try_at(at, path, body, token, time, sent).await;
        sent.store(false, Ordering::Relaxed);
        so_far.last = match tried {
            Tried::Answer(answer) => {
                self.preferred.store(at, Ordering::Relaxed);
                return Ok(Some(answer));
            }
            Tried::Elsewhere(why) => why,
            Tried::Perhaps(why) if again == Again::Yes => {
                so_far.unanswered = true;
                why
            }
            Tried::Perhaps(why) => {
                self.prefer_another_than(at);
                return Err(Failure::Unknown(why));
            }
            Tried::Token(why) if so_far.new_tokens < 3 => {
                so_far.new_tokens += 1;
                if let Err(failure @ Failure::Never(_)) = self.token(Some(number)).await {
                    return Err(failure);
                }
                why
            }
            Tried::Token(why) => return Err(Failure::Never(why)),
            Tried::Failed(Failure::NoLease { .. }) => {
                let tried = so_far.unanswered;
                return Err(Failure::NoLease { tried });
            }
            Tried::Failed(failure) => return Err(failure),
        };
        Ok(None)
    }

    /// How long one member may take. What may be sent again leaves time for another.
    fn time_for_one(&self, again: Again) -> Duration {
        match again {
            Again::Yes if self.endpoints.len() > 1 => self.call_timeout / 3,
            _ => self.call_timeout * 2,
        }
    }

    /// A call that changes nothing, or nothing that matters: without an answer it is as if it was not made.
    async fn ask(&self, path: &str, body: &Value) -> Result<Bytes, Failure> {
        let said = self.call(path, body, Again::Yes).await;
        said.map_err(|failure| match failure {
            Failure::Unknown(why) => Failure::Nothing(why),
            failure => failure,
        })
    }

    fn prefer_another_than(&self, at: usize) {
        let next = (at + 1) % self.endpoints.len();
        let _ = self
            .preferred
            .compare_exchange(at, next, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// The token and its number, a new one if `old` is the number of the present one.
    pub async fn token(&self, old: Option<u64>) -> Result<(u64, Option<String>), Failure> {
        let Some(user) = &self.user else {
            return Ok((0, None));
        };
        let mut held = self.token.lock().await;
        if held.1.is_some() && old != Some(held.0) {
            return Ok(held.clone());
        }
        let body = json!({ "name": user.name, "password": user.password }).to_string();
        let body = Bytes::from(body);
        let mut last = String::new();
        let first = self.preferred.load(Ordering::Relaxed);
        for turn in 0..self.endpoints.len() {
            let at = (first + turn) % self.endpoints.len();
            let path = "/v3/auth/authenticate";
            let sent = AtomicBool::new(false);
            let tried = self.try_at(at, path, &body, None, self.call_timeout / 3, &sent);
            match tried.await {
                Tried::Answer(answer) => {
                    let token: Token = read(&answer)?;
                    *held = (held.0 + 1, Some(token.token));
                    return Ok(held.clone());
                }
                Tried::Elsewhere(why) | Tried::Perhaps(why) | Tried::Token(why) => last = why,
                Tried::Failed(Failure::Never(why)) => {
                    let user = &user.name;
                    return Err(Failure::Never(format!(
                        "etcd does not let in {user}: {why}"
                    )));
                }
                Tried::Failed(failure) => return Err(failure),
            }
        }
        Err(Failure::Nothing(format!("no member gave a token; {last}")))
    }

    /// Does this member hear its leader? Asked when a stream of it has been silent.
    pub async fn is_alive(&self, at: usize) -> bool {
        let body = Bytes::from(json!({ "key": "AA==", "count_only": true }).to_string());
        let token = self.token(None).await.ok().and_then(|(_, token)| token);
        let (token, sent) = (token.as_deref(), AtomicBool::new(false));
        let tried = self.try_at(
            at,
            "/v3/kv/range",
            &body,
            token,
            self.call_timeout / 3,
            &sent,
        );
        !matches!(tried.await, Tried::Elsewhere(_) | Tried::Perhaps(_))
    }

    // --- what can be asked ------------------------------------------------------------------------------

    pub async fn get(&self, key: &str) -> Result<Option<Entry>, Failure> {
        let answer = self.ask("/v3/kv/range", &self.names.get(key)).await?;
        Ok(self.entries(read(&answer)?)?.pop())
    }

    fn entries(&self, range: RangeAnswer) -> Result<Vec<Entry>, Failure> {
        let entries = self.names.entries(range);
        entries.map_err(|foreign| Failure::Nothing(foreign.to_string()))
    }

    pub async fn range(
        &self,
        prefix: &str,
        after: Option<&str>,
        mut most: usize,
    ) -> Result<Page, Failure> {
        loop {
            let asked = self.names.range(prefix, after, most);
            match self.ask("/v3/kv/range", &asked).await {
                Err(Failure::TooBig) if most > 1 => most = most.div_ceil(2),
                Err(failure) => return Err(failure),
                Ok(answer) => {
                    let range: RangeAnswer = read(&answer)?;
                    let (revision, more) = (Revision(range.header.revision), range.more);
                    return Ok(Page {
                        entries: self.entries(range)?,
                        revision,
                        more,
                    });
                }
            }
        }
    }

    pub async fn txn(&self, compares: &[Compare], ops: &[Op]) -> Result<Outcome, Failure> {
        let asked = self.names.txn(compares, ops);
        let answer = self.call("/v3/kv/txn", &asked, Again::No).await?;
        // It was done, whatever the answer's form.
        let unreadable = |failure| match failure {
            Failure::Nothing(why) => Failure::Unknown(why),
            failure => failure,
        };
        let answer: TxnAnswer = read(&answer).map_err(unreadable)?;
        if answer.succeeded {
            return Ok(Outcome::Done(Revision(answer.header.revision)));
        }
        let mut held = Vec::with_capacity(compares.len());
        for part in answer.responses {
            let range = part.response_range.unwrap_or_default();
            held.push(self.entries(range).map_err(unreadable)?.pop());
        }
        if held.len() != compares.len() {
            let (said, asked) = (held.len(), compares.len());
            let why = format!("it answered for {said} keys, {asked} were compared");
            return Err(Failure::Unknown(why));
        }
        Ok(Outcome::Refused(held))
    }

    /// Whole seconds, rounded up.
    pub async fn lease(&self, seconds: u64) -> Result<LeaseId, Failure> {
        // A lease whose answer is lost expires.
        let asked = json!({ "TTL": seconds.to_string() });
        let answer = self.ask("/v3/lease/grant", &asked).await?;
        Ok(LeaseId(read::<Granted>(&answer)?.id))
    }

    /// Its time in seconds.
    pub async fn keep(&self, lease: LeaseId) -> Result<u64, Failure> {
        let asked = json!({ "ID": lease.0.to_string() });
        let answer = self.ask("/v3/lease/keepalive", &asked).await?;
        // A stream of one line.
        let line: Line<KeptAlive> = read(&answer)?;
        match (line.result, line.error) {
            (Some(kept), None) if kept.ttl > 0 => Ok(kept.ttl),
            (Some(_), None) => Err(Failure::NoLease { tried: false }),
            (_, error) => match Complaint::read(&error.unwrap_or_default()).map(judge) {
                Some(Tried::Failed(failure)) => Err(failure),
                Some(Tried::Perhaps(why) | Tried::Elsewhere(why) | Tried::Token(why)) => {
                    Err(Failure::Nothing(why))
                }
                _ => Err(Failure::Nothing("it answered nothing".to_owned())),
            },
        }
    }

    pub async fn revoke(&self, lease: LeaseId) -> Result<(), Failure> {
        let asked = json!({ "ID": lease.0.to_string() });
        match self.call("/v3/lease/revoke", &asked, Again::Yes).await {
            Ok(answer) => read::<Nothing>(&answer).map(drop),
            // The try without an answer did it, or it ran out since: it is gone either way.
            Err(Failure::NoLease { tried: true }) => Ok(()),
            Err(failure) => Err(failure),
        }
    }
}

pub fn read<T: DeserializeOwned>(answer: &[u8]) -> Result<T, Failure> {
    serde_json::from_slice(answer)
        .map_err(|why| Failure::Nothing(format!("it answered what etcd does not say: {why}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(code: u64, message: &str) -> &'static str {
        let message = message.to_owned();
        match judge(Complaint { code, message }) {
            Tried::Answer(_) => "answer",
            Tried::Elsewhere(_) => "elsewhere",
            Tried::Perhaps(_) => "perhaps",
            Tried::Token(_) => "token",
            Tried::Failed(Failure::Nothing(_)) => "nothing",
            Tried::Failed(Failure::Never(_)) => "never",
            Tried::Failed(Failure::NoLease { .. }) => "no lease",
            Tried::Failed(_) => "other",
        }
    }

    #[test]
    fn only_what_is_surely_not_done_is_said_not_to_be() {
        for (code, message, expected) in [
            (14, "etcdserver: request timed out", "perhaps"),
            (14, "etcdserver: leader changed", "perhaps"),
            (14, "transport is closing", "perhaps"),
            (4, "context deadline exceeded", "perhaps"),
            (2, "something new", "perhaps"),
            (8, "etcdserver: mvcc: database space exceeded", "nothing"),
            (8, "etcdserver: too many requests", "nothing"),
            (5, "etcdserver: requested lease not found", "no lease"),
            (7, "etcdserver: permission denied", "never"),
            (3, "etcdserver: request is too large", "never"),
            (3, "etcdserver: user name is empty", "token"),
            (3, "etcdserver: revision of auth store is old", "token"),
            (16, "etcdserver: invalid auth token", "token"),
        ] {
            assert_eq!(judged(code, message), expected, "{message}");
        }
    }
}
