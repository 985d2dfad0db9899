//! The gate of the admin API: its guard, its owner, its token and its audit log.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};

use axum::http::HeaderMap;
use config::Config;
use env::net::Address;

use super::audit_log::AuditLog;
use super::guard::Guard;
use crate::api::access::Access;
use crate::daemon::common::secrets;

/// What the file with the bearer token is called, in the data directory.
pub const TOKEN_FILE: &str = "admin.token";

/// Who is let in: what browsers may not do, and the token that commands.
pub struct Gate {
    /// As the configuration is, also when it was read anew.
    pub guard: Arc<RwLock<Guard>>,
    pub access: Access,
    /// As it stands in its file.
    pub token: String,
    /// What is asked and answered.
    pub audit: Arc<AuditLog>,
}

impl Gate {
    /// The gate of a daemon that runs as this process: its token is made if it is missing.
    ///
    /// # Errors
    /// The token can neither be read nor made, or others can read it; the audit log cannot be written.
    pub fn new(config: &Config, listen: &[Address]) -> anyhow::Result<Gate> {
        let shown = |path: &Path| {
            let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
            path.display().to_string()
        };
        let token_file = config.data_dir.join(TOKEN_FILE);
        let token = secrets::read_or_make(&token_file)?;
        let paths = listen.iter().filter_map(|address| match address {
            Address::Unix(path) => Some(path.as_path()),
            Address::Tcp(_) | Address::Tls(_) => None,
        });
        Ok(Gate {
            guard: Arc::new(RwLock::new(Guard::of(&config.admin))),
            access: Access {
                owner_user: rustix::process::geteuid().as_raw(),
                owner_group: paths.clone().find_map(group_of),
                sockets: paths.map(shown).collect(),
                token_file: shown(&token_file),
                ..Access::default()
            },
            token: secrets::to_hex(&token),
            audit: Arc::new(AuditLog::open(&config.data_dir)?),
        })
    }
}

impl Gate {
    /// As [`Guard::check`].
    pub fn check(&self, headers: &HeaderMap) -> Result<(), String> {
        let guard = self.guard.read().unwrap_or_else(PoisonError::into_inner);
        guard.check(headers)
    }
}

/// The group that commands the daemon at the Unix socket `path`.
fn group_of(path: &Path) -> Option<u32> {
    let file = fs::symlink_metadata(path).ok()?;
    let me = (
        rustix::process::geteuid().as_raw(),
        rustix::process::getegid().as_raw(),
    );
    commanding(me, (file.uid(), file.gid()), file.mode())
}

/// The group that commands a daemon of the user and group `me` at a socket of `owner`: the daemon's own, where not the
/// daemon but root gave it the socket. In a group that the daemon merely runs with, everybody of a machine may be.
fn commanding(me: (u32, u32), owner: (u32, u32), mode: u32) -> Option<u32> {
    let of_root = owner.0 == 0 && me.0 != 0;
    let connects = mode & 0o060 == 0o060;
    (of_root && connects && owner.1 == me.1 && me.1 != 0).then_some(me.1)
}

#[cfg(test)]
mod tests {
    use super::commanding;

    #[test]
    fn the_daemons_group_commands_it_where_root_made_the_socket_for_that() {
        let me = (120, 130);
        assert_eq!(commanding(me, (0, 130), 0o140660), Some(130));
        for (me, owner, mode) in [
            (me, (120, 130), 0o140660), // the daemon's own socket
            (me, (0, 100), 0o140660),
            (me, (0, 130), 0o140600),
            ((0, 0), (0, 0), 0o140660),
            ((120, 0), (0, 0), 0o140660),
        ] {
            assert_eq!(
                commanding(me, owner, mode),
                None,
                "{me:?} {owner:?} {mode:o}"
            );
        }
    }
}
