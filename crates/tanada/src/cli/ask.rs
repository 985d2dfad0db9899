//! Which daemon is asked, and in which form the answer is shown.

use clap::Args;
use hyper::Method;
use report::terminal;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::client::{ADMIN_HELP, Client, Target};

/// Where the daemon is, and in which form to answer.
#[derive(Debug, Args)]
pub struct Ask {
    #[arg(
        long,
        env = "TANADA_ADMIN",
        value_name = "ADDR",
        default_value_t = Target::default(),
        hide_default_value = true,
        help = ADMIN_HELP
    )]
    pub admin: Target,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

impl Ask {
    /// Sends `body`, and shows what comes back: as JSON, or as `said` says it.
    pub fn send<T: DeserializeOwned + Serialize>(
        self,
        method: Method,
        path: &str,
        body: &impl Serialize,
        said: impl FnOnce(&T) -> String,
    ) -> anyhow::Result<()> {
        let answer: T = Client::new(self.admin)?.send_json(method, path, body)?;
        terminal::answer(self.json, &answer, || said(&answer))
    }
}
