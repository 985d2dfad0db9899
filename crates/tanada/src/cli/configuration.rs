//! `tanada config ...`: check a configuration, print an example, and look at what stands before it.

use std::path::PathBuf;

use clap::Subcommand;
use hyper::Method;
use report::terminal::{Usage, table};
use serde_json::{Map, Value};

use super::ask::Ask;
use super::client::{Client, path};
use super::one_store::{self, OneStore};
use super::show;
use super::volume_set::tier_key;
use crate::api::settings::Setting;
use crate::api::volume::{Change, Volume};
use crate::daemon::common::log::LogFormat;
use crate::daemon::serve::{self, Serve};

/// Commands about configurations.
#[derive(Debug, Subcommand)]
pub enum Config {
    /// Check a configuration, and whether its devices are what it says; nothing is started.
    Check {
        /// The file; without it the built-in configuration.
        file: Option<PathBuf>,
        /// Where Tanada keeps its files [default: data_dir of the configuration, or tanada-data]
        #[arg(long, value_name = "DIR")]
        data_dir: Option<PathBuf>,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Print the built-in configuration, or with --store one of a single store: a good start for your own.
    Example {
        /// Another one than the built-in.
        #[arg(hide = true)]
        config: Option<PathBuf>,
        /// Where Tanada is to keep its files [default: tanada-data]
        #[arg(long, value_name = "DIR")]
        data_dir: Option<PathBuf>,
        #[command(flatten)]
        store: Box<OneStore>,
    },
    /// List the settings of volumes that are not as the configuration says: what `tanada volume set` changed.
    Diff(Ask),
    /// Take settings of a volume back to what the configuration says.
    #[command(
        after_help = "Examples: tanada config reset vol0 write tier.period\n          tanada config reset vol0"
    )]
    Reset {
        /// The volume.
        volume: String,
        /// Keys as `tanada config diff` lists them [default: all of the volume]
        keys: Vec<String>,
        #[command(flatten)]
        ask: Ask,
    },
}

/// Runs one of them.
pub fn run(command: Config) -> anyhow::Result<()> {
    match command {
        Config::Check {
            file,
            data_dir,
            json,
        } => serve::run(Serve {
            config: file,
            data_dir,
            check: true,
            verify: false,
            print_config: false,
            log_format: LogFormat::Text,
            json,
        }),
        Config::Example {
            config,
            data_dir,
            store,
        } => one_store::print_example(config, data_dir, &store),
        Config::Diff(ask) => diff(ask),
        Config::Reset { volume, keys, ask } => {
            let keys: Vec<String> = keys
                .iter()
                .map(|key| known(key))
                .collect::<Result<_, _>>()?;
            let mut path = path(&volume, "/settings")?;
            if !keys.is_empty() {
                path.push_str(&format!("?keys={}", keys.join(",")));
            }
            let nothing: Map<String, Value> = Map::new();
            ask.send(Method::DELETE, &path, &nothing, |_: &Volume| {
                let what = match keys.is_empty() {
                    true => "all settings".to_owned(),
                    false => keys.join(", "),
                };
                format!("{what} of {volume}: as the configuration says\n")
            })
        }
    }
}

/// A key as it is listed: `tier.period` also for `period`.
fn known(key: &str) -> Result<String, Usage> {
    match tier_key(key) {
        Some(key) => Ok(format!("tier.{key}")),
        None if Change::KEYS.contains(&key) && key != "tier" => Ok(key.to_owned()),
        None => Err(Usage(format!(
            "there is no setting '{key}'; `tanada config diff` lists those that were changed"
        ))),
    }
}

fn diff(ask: Ask) -> anyhow::Result<()> {
    let all: Vec<Setting> = Client::new(ask.admin)?.get("/v1/settings")?;
    show::answer(ask.json, &all, || listed(&all))
}

fn listed(all: &[Setting]) -> String {
    if all.is_empty() {
        return "All settings are as the configuration says.\n".to_owned();
    }
    let head = ["VOLUME", "KEY", "CONFIGURED", "KEPT", "UNTIL RESTART", "BY"];
    let mut rows = Vec::new();
    for it in all {
        let kept = it.kept.as_ref();
        rows.push(vec![
            it.volume.clone(),
            it.key.clone(),
            word(Some(&it.configured)),
            word(kept.map(|kept| &kept.value)),
            word(it.until_restart.as_ref()),
            kept.map_or_else(String::new, |kept| format!("{}, {}", kept.who, kept.when)),
        ]);
    }
    table::table(&head, &rows)
}

/// A value as it is typed; `-`: none.
fn word(value: Option<&Value>) -> String {
    match value {
        None | Some(Value::Null) => "-".to_owned(),
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(all)) => {
            let words: Vec<String> = all.iter().map(|it| word(Some(it))).collect();
            match words.is_empty() {
                true => "none".to_owned(),
                false => words.join(","),
            }
        }
        Some(other) => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::settings::KeptValue;

    #[test]
    fn a_key_is_what_volume_set_takes_and_never_nothing() {
        let of = |key: &str| known(key).ok();
        assert_eq!(of("write").as_deref(), Some("write"));
        assert_eq!(of("period").as_deref(), Some("tier.period"));
        assert_eq!(of("tier.policy").as_deref(), Some("tier.policy"));
        for none in ["", "#write", "tier", "warp", "write,policy", "tier."] {
            assert_eq!(of(none), None, "{none:?}");
        }
    }

    #[test]
    fn settings_are_listed_with_where_they_come_from() {
        let kept = KeptValue {
            value: Value::from("through"),
            who: "user 0".to_owned(),
            when: "2026-11-26T19:10:00Z".to_owned(),
        };
        let setting = |key: &str, kept, until_restart| Setting {
            volume: "vol0".to_owned(),
            key: key.to_owned(),
            configured: Value::from("back"),
            kept,
            until_restart,
        };
        let text = listed(&[
            setting("write", Some(kept), None),
            setting(
                "tier.pinned",
                None,
                Some(Value::from(vec!["1GiB+1MiB", "2GiB+1MiB"])),
            ),
        ]);
        let lines: Vec<Vec<&str>> = text
            .lines()
            .map(|it| it.split_whitespace().collect())
            .collect();
        assert_eq!(
            lines[1],
            [
                "vol0",
                "write",
                "back",
                "through",
                "-",
                "user",
                "0,",
                "2026-11-26T19:10:00Z"
            ]
        );
        assert_eq!(
            lines[2],
            ["vol0", "tier.pinned", "back", "-", "1GiB+1MiB,2GiB+1MiB"]
        );
        assert_eq!(listed(&[]), "All settings are as the configuration says.\n");
    }
}
