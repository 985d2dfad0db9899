//! Before a measurement a target's data are asked for that it would lose.

use std::path::Path;

use clap::Args;
use report::terminal::consent;

use super::holds_data;

/// May a target's data be lost?
#[derive(Args)]
pub struct Over {
    /// Write to a target that holds data; they are lost.
    #[arg(long)]
    pub overwrite: bool,
    /// Ask nothing before they are lost.
    #[arg(long, requires = "overwrite")]
    pub yes: bool,
}

impl Over {
    /// Asks before the data of `target` are lost.
    pub fn consent(&self, target: &Path) -> anyhow::Result<()> {
        if !self.overwrite || target.is_dir() || !target.exists() || !holds_data(target)? {
            return Ok(());
        }
        let name = target.display().to_string();
        consent::ask(&name, &format!("what {name} holds is lost"), self.yes)
    }
}
