//! `tanada health ...`: the verdict on a daemon, and codes that do not count for a while.

use std::fmt::Write as _;
use std::process::ExitCode;

use base::Nanos;
use clap::Subcommand;
use hyper::Method;
use report::terminal::{self, Ending};
use serde_json::{Map, Value};

use super::ask::Ask;
use super::client::Client;
use crate::api::health::{Health, HealthCheck, MuteAsk};
use crate::daemon::common::when;
use policy::share::Second;

/// So many reasons of one code are shown each for itself.
const ALONE: usize = 3;

#[derive(Debug, Subcommand)]
pub enum HealthCommand {
    /// Show the verdict and its reasons; exit status 0, 3 (HEALTH_WARN) or 4 (HEALTH_ERR).
    Show(Ask),
    /// Do not count a code for a while; it counts again at once when it gets worse.
    Mute {
        /// Such as DIRTY_OLD.
        code: String,
        /// For how long, such as 2h; 30d at most.
        #[arg(long = "for", default_value = "1d", value_name = "SPAN", value_parser = config::read_span)]
        span: Nanos,
        #[command(flatten)]
        ask: Ask,
    },
    /// Count a code again.
    Unmute {
        code: String,
        #[command(flatten)]
        ask: Ask,
    },
}

/// Runs one of them.
pub fn run(command: HealthCommand) -> anyhow::Result<ExitCode> {
    match command {
        HealthCommand::Show(ask) => {
            let health: Health = Client::new(ask.admin)?.get("/v1/health")?;
            terminal::answer(ask.json, &health, || page(&health))?;
            Ok(Ending::from(health.status).into())
        }
        HealthCommand::Mute { code, span, ask } => {
            let asked = MuteAsk {
                for_seconds: span.0.div_ceil(1_000_000_000),
            };
            ask.send(Method::PUT, &path(&code), &asked, page)?;
            Ok(ExitCode::SUCCESS)
        }
        HealthCommand::Unmute { code, ask } => {
            let nothing: Map<String, Value> = Map::new();
            ask.send(Method::DELETE, &path(&code), &nothing, page)?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn path(code: &str) -> String {
    let safe = code
        .chars()
        .filter(|it| it.is_ascii_alphanumeric() || *it == '_');
    format!(
        "/v1/health/mutes/{}",
        safe.collect::<String>().to_uppercase()
    )
}

/// The verdict, and each reason with what to do.
pub fn page(health: &Health) -> String {
    let mut text = format!("{}\n", health.status.word());
    let is_one =
        |one: &HealthCheck, next: &HealthCheck| (&one.code, one.muted) == (&next.code, next.muted);
    for checks in health.checks.chunk_by(is_one) {
        match checks.len() > ALONE {
            false => checks.iter().for_each(|it| text.push_str(&lines(it))),
            true => text.push_str(&together(checks)),
        }
    }
    for mute in &health.mutes {
        let until = when::shown(Second(mute.until_unix_seconds));
        let _ = writeln!(text, "muted by {}: {} until {until}", mute.who, mute.code);
    }
    text
}

/// Many reasons of one code: how many, the first names, and the first in full.
fn together(checks: &[HealthCheck]) -> String {
    let first = &checks[0];
    let names = checks.iter().filter_map(|it| it.about.as_deref());
    let names: Vec<&str> = names.take(ALONE).collect();
    let muted = if first.muted { " (muted)" } else { "" };
    format!(
        "  {}{muted}  {} times: {} and {} more (`tanada health show --json` has all); the first: {}\n      {}\n",
        first.code,
        checks.len(),
        names.join(", "),
        checks.len() - names.len(),
        first.message,
        first.what_to_do
    )
}

fn lines(check: &HealthCheck) -> String {
    let about = check.about.as_ref().map(|about| format!("{about}: "));
    let about = about.unwrap_or_default();
    let muted = if check.muted { " (muted)" } else { "" };
    format!(
        "  {}{muted}  {about}{}\n      {}\n",
        check.code, check.message, check.what_to_do
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::health::{HealthStatus, Mute, Severity};

    #[test]
    fn many_reasons_of_one_code_are_one() {
        let offline = |n: usize| HealthCheck {
            code: "VOLUME_OFFLINE".to_owned(),
            severity: Severity::Error,
            about: Some(format!("vm{n}")),
            message: "it answers no requests".to_owned(),
            what_to_do: format!("look at vm{n}"),
            muted: false,
        };
        let of = |count: usize| {
            page(&Health {
                status: HealthStatus::Err,
                checks: (0..count).map(offline).collect(),
                mutes: Vec::new(),
            })
        };
        assert_eq!(of(3).lines().count(), 7);
        let many = of(1000);
        assert_eq!(many.lines().count(), 3, "{many}");
        assert!(
            many.contains("1000 times: vm0, vm1, vm2 and 997 more"),
            "{many}"
        );
    }

    #[test]
    fn the_page_names_each_reason_and_its_cure() {
        assert_eq!(page(&Health::default()), "HEALTH_OK\n");
        let check = HealthCheck {
            code: "DIRTY_OLD".to_owned(),
            severity: Severity::Warning,
            about: Some("vol0".to_owned()),
            message: "1 GiB are on ssd0 alone for 3 h".to_owned(),
            what_to_do: "look at hdd0".to_owned(),
            muted: false,
        };
        let muted = HealthCheck {
            code: "NODE_DOWN".to_owned(),
            about: None,
            muted: true,
            ..check.clone()
        };
        let mute = Mute {
            code: "NODE_DOWN".to_owned(),
            until_unix_seconds: 0,
            who: "root".to_owned(),
            about: Vec::new(),
            severity: Severity::Warning,
        };
        let health = Health {
            status: HealthStatus::Warn,
            checks: vec![check, muted],
            mutes: vec![mute],
        };
        let until = when::shown(Second(0));
        assert_eq!(
            page(&health),
            format!(
                "HEALTH_WARN\n  DIRTY_OLD  vol0: 1 GiB are on ssd0 alone for 3 h\n      look at hdd0\n  \
                 NODE_DOWN (muted)  1 GiB are on ssd0 alone for 3 h\n      look at hdd0\nmuted by root: NODE_DOWN until \
                 {until}\n"
            )
        );
    }
}
