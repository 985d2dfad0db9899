//! Options of commands that lose data, and what a dry run of one answers.

use clap::Args;
use report::terminal;
use report::terminal::consent::ask;
use serde::Serialize;
use utoipa::ToSchema;

/// What a command takes that loses data.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
pub struct Loss {
    /// Ask nothing before data are lost.
    #[arg(long)]
    pub yes: bool,
    /// Say what would be lost, and change nothing.
    #[arg(long)]
    pub dry_run: bool,
}

/// What a dry run answers.
#[derive(Debug, Serialize, ToSchema)]
pub struct DryRun {
    dry_run: bool,
    /// What would be lost.
    lost: String,
}

/// May what loses data go on? A dry run says what would be lost, and goes no further. Where nothing is lost (`lost` is empty) nothing is asked.
///
/// # Errors
/// As [`ask`].
pub fn is_given(name: &str, lost: &str, loss: &Loss, as_json: bool) -> anyhow::Result<bool> {
    let nothing = format!("nothing of {name} would be lost");
    match (lost.is_empty(), loss.dry_run) {
        (true, false) => return Ok(true),
        (true, true) => return dry(&nothing, as_json).map(|()| false),
        (false, true) => return dry(lost, as_json).map(|()| false),
        (false, false) => {}
    }
    ask(name, lost, loss.yes).map(|()| true)
}

/// Answers a dry run: what would be lost or done.
///
/// # Errors
/// It cannot be printed.
pub fn dry(lost: &str, as_json: bool) -> anyhow::Result<()> {
    let answer = DryRun {
        dry_run: true,
        lost: lost.to_owned(),
    };
    terminal::answer(as_json, &answer, || {
        format!("{lost}; nothing was changed\n")
    })
}
