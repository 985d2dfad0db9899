//! Which daemon is asked, and why it gave no answer.

use std::fmt;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::str::FromStr;

use config::WEB;
use env::net::Address;
use hyper::StatusCode;
use report::terminal::Ending;

use crate::api::refusal::Refusal;

/// Where a daemon's admin API is: `127.0.0.1:10880`, `http://127.0.0.1:10880`, `tls:10.0.0.1:10880`,
/// `https://10.0.0.1:10880` or `unix:/path`.
#[derive(Debug, Clone, PartialEq)]
pub struct Target(pub Address);

impl FromStr for Target {
    type Err = String;
    fn from_str(text: &str) -> Result<Target, String> {
        let plain = match (text.strip_prefix("http://"), text.strip_prefix("https://")) {
            (Some(rest), _) => rest.trim_end_matches('/').to_owned(),
            (_, Some(rest)) => format!("tls:{}", rest.trim_end_matches('/')),
            _ => text.to_owned(),
        };
        let address = plain.parse::<Address>();
        address.map(Target).map_err(|error| error.to_string())
    }
}

/// What `--admin` says of itself; where a daemon answers is not known before it is asked.
pub const ADMIN_HELP: &str = "The daemon's admin API: HOST:PORT or unix:/path [default: /run/tanada/admin.sock or \
                              tanada-data/admin.sock if a daemon answers there, else 127.0.0.1:10880]";

/// Where the package's daemon takes commands, and where one that was started in this folder does.
const SOCKETS: [&str; 2] = ["/run/tanada/admin.sock", "tanada-data/admin.sock"];

impl Default for Target {
    /// The first socket at which a daemon answers this user; else the port at which one is seen, which names its socket.
    fn default() -> Self {
        let mut sockets = SOCKETS.iter().map(Path::new);
        match sockets.find(|path| answers(path)) {
            Some(path) => Target(Address::Unix(path.to_owned())),
            None => Target(WEB.parse().expect("a constant address")),
        }
    }
}

/// Does a daemon answer there? In a folder that others can write to, one of this user or root.
fn answers(path: &Path) -> bool {
    let me = rustix::process::geteuid().as_raw();
    let owner = std::fs::symlink_metadata(path).map(|it| it.uid());
    let is_trusted = path.is_absolute() || owner.is_ok_and(|owner| owner == me || owner == 0);
    is_trusted && UnixStream::connect(path).is_ok()
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Why a daemon gave no answer, or the wrong one.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error(
        "no daemon answers at {target} ({source}); start one with `tanada serve`, \
         or say where it is with --admin or TANADA_ADMIN; without these it is looked for at {}, too",
        SOCKETS.join(" and ")
    )]
    NoDaemon { target: Target, source: io::Error },
    #[error(
        "{target} is open to the daemon's owner alone, user {owner}; run this command as that user or root, or set \
         TANADA_ADMIN_TOKEN_FILE to a copy of the daemon's admin.token and ask over TCP"
    )]
    NotOurs { target: Target, owner: u32 },
    #[error("{0}")]
    Token(String),
    #[error("the daemon at {target} is not trusted, and nothing was sent: {why}")]
    Untrusted { target: Target, why: String },
    #[error("what answers at {target} is no Tanada admin API: {why}")]
    Stranger { target: Target, why: String },
    #[error(
        "the token of TANADA_TOKEN or TANADA_ADMIN_TOKEN_FILE is not shown at {target}: user {user} listens there, neither you nor \
         root; start your daemon, or say where it is with --admin or TANADA_ADMIN, such as unix:/path of its socket"
    )]
    OthersListen { target: Target, user: u32 },
    #[error("{target} gave no answer within {seconds} s; look at the daemon's log")]
    TooSlow { target: Target, seconds: u64 },
    #[error("{refusal}")]
    Refused {
        status: StatusCode,
        refusal: Refusal,
    },
}

impl ClientError {
    /// May the same question be answered a little later?
    pub fn may_pass(&self) -> bool {
        match self {
            ClientError::NoDaemon { .. }
            | ClientError::Stranger { .. }
            | ClientError::TooSlow { .. } => true,
            ClientError::NotOurs { .. }
            | ClientError::Token(_)
            | ClientError::OthersListen { .. }
            | ClientError::Untrusted { .. }
            | ClientError::Refused { .. } => false,
        }
    }

    /// Did the daemon say that there is no such thing?
    pub fn is_absent(&self) -> bool {
        matches!(self, ClientError::Refused { status, .. } if *status == StatusCode::NOT_FOUND)
    }

    /// How a command ends that has no better answer.
    pub fn ending(&self) -> Ending {
        match self {
            ClientError::NoDaemon { .. }
            | ClientError::Stranger { .. }
            | ClientError::OthersListen { .. }
            | ClientError::Untrusted { .. } => Ending::NoDaemon,
            ClientError::NotOurs { .. } => Ending::NotAllowed,
            ClientError::Token(_) => Ending::Usage,
            ClientError::TooSlow { .. } => Ending::Failed,
            ClientError::Refused { status, .. } => refused(*status),
        }
    }
}

/// What a daemon answers below 500 it decided before it changed anything; behind that it tried.
fn refused(status: StatusCode) -> Ending {
    match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Ending::NotAllowed,
        status if status.is_client_error() => Ending::Refused,
        _ => Ending::Failed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_ends_a_command_by_its_status() {
        for (status, ending) in [
            (401, Ending::NotAllowed),
            (403, Ending::NotAllowed),
            (404, Ending::Refused),
            (409, Ending::Refused),
            (422, Ending::Refused),
            (500, Ending::Failed),
            (503, Ending::Failed),
        ] {
            let status = StatusCode::from_u16(status).unwrap();
            assert_eq!(refused(status), ending, "{status}");
        }
    }
}
