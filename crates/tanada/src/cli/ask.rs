//! Which daemon is asked, and in which form the answer is shown.

use clap::Args;

use super::client::Target;

/// Where the daemon is, and in which form to answer.
#[derive(Args)]
pub struct Ask {
    /// The daemon's admin API: HOST:PORT or unix:/path
    #[arg(
        long,
        env = "TANADA_ADMIN",
        value_name = "ADDR",
        default_value_t = Target::default()
    )]
    pub admin: Target,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}
