//! The gate of the admin API: its guard, its owner, its token and its audit log.

use std::sync::Arc;

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
    pub guard: Guard,
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
        let shown = |path: &std::path::Path| {
            let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
            path.display().to_string()
        };
        let token_file = config.data_dir.join(TOKEN_FILE);
        let token = secrets::read_or_make(&token_file)?;
        let sockets = listen.iter().filter_map(|address| match address {
            Address::Unix(path) => Some(shown(path)),
            Address::Tcp(_) | Address::Tls(_) => None,
        });
        Ok(Gate {
            guard: Guard {
                far: config.admin.addresses().any(Address::is_tls),
                hosts: config.admin.hosts.clone(),
            },
            access: Access {
                owner_user: rustix::process::geteuid().as_raw(),
                sockets: sockets.collect(),
                token_file: shown(&token_file),
                ..Access::default()
            },
            token: secrets::to_hex(&token),
            audit: Arc::new(AuditLog::open(&config.data_dir)?),
        })
    }
}
