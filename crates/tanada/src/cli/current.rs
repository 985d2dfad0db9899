//! From the words of a command to the command, whichever spelling they have.
//!
//! ```text
//! words -> Cli -> an old spelling? -> the command as it is called now, and a note on stderr
//! ```
//!
//! Always true: what `run` gets is spelt as it is now.

use std::ffi::OsString;
use std::path::Path;

use clap::Parser;

use super::ask::Ask;
use super::clients::{Client, DeleteClient};
use super::cluster_ca::CertificateOptions;
use super::cluster_node::{CreateNode, DeleteNode, Node, StoreOptions};
use super::configuration::Config;
use super::model::Model;
use super::named::{SnapshotName, ToDelete, VolumeName};
use super::object::Object;
use super::old_words::{self as old, AddReservation, DiskOptions};
use super::one_store::{OneStore, Serve};
use super::options::{Device, SetVolume, Volume};
use super::reservation::{Create, Delete, List, Reservation};
use super::reservation_wanted::Wanted;
use super::snapshot::Snapshot;
use super::store::Store;
use super::{Cli, Command, Passed};
use crate::daemon::serve;

/// An old spelling, and the new one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    old: String,
    new: String,
}

impl std::fmt::Display for Note {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Note { old, new } = self;
        write!(
            f,
            "note: 'tanada {old}' is now 'tanada {new}'; the old spelling goes in 0.3"
        )
    }
}

type Current = (Command, Option<Note>);

/// The command of these words, the program's name first.
///
/// # Errors
/// They are none; or help or the version is asked for.
pub fn read(words: &[OsString]) -> Result<Current, clap::Error> {
    let mut command = Cli::try_parse_from(words)?.command;
    if let Some(passed) = passed(&mut command) {
        // As they were typed, also `--`.
        passed.arguments = words.iter().skip(2).cloned().collect();
    }
    Ok(current(command))
}

/// The arguments of a command of the laboratory.
fn passed(command: &mut Command) -> Option<&mut Passed> {
    match command {
        Command::Experiment(passed)
        | Command::Sim(passed)
        | Command::Predict(passed)
        | Command::Bench(passed)
        | Command::Trace(passed)
        | Command::Advise(passed) => Some(passed),
        _ => None,
    }
}

fn now(command: Command, old: impl Into<String>, new: impl Into<String>) -> Current {
    let (old, new) = (old.into(), new.into());
    (command, Some(Note { old, new }))
}

fn current(command: Command) -> Current {
    match command {
        Command::Volume(Volume::Old(old)) => volume(old),
        Command::Volume(Volume::Set(set)) => set_volume(*set),
        Command::Volume(Volume::Delete(mut wanted)) => match wanted.what {
            ToDelete::Snapshot(name) => {
                let delete = Snapshot::Delete {
                    name,
                    loss: wanted.loss,
                    ask: wanted.ask,
                };
                now(
                    Command::Snapshot(delete),
                    "volume rm VOLUME@SNAPSHOT",
                    "snapshot delete VOLUME@SNAPSHOT",
                )
            }
            what => {
                wanted.what = what;
                (Command::Volume(Volume::Delete(wanted)), None)
            }
        },
        Command::Device(Device::Old(old)) => device(old),
        Command::Client(Client::Old(old::Client::Disconnect {
            client,
            export,
            ask,
        })) => {
            let delete = Client::Delete(DeleteClient {
                client,
                export,
                ask,
            });
            now(
                Command::Client(delete),
                "client disconnect",
                "client delete",
            )
        }
        Command::Node(Node::Old(old)) => node(old),
        Command::Object(Object::Old(old::Object::Stat(one))) => now(
            Command::Object(Object::Show(one)),
            "object stat",
            "object show",
        ),
        Command::Store(command) => store(command),
        Command::Reserve(old) => reserve(old),
        Command::Serve(wanted) => daemon(*wanted),
        Command::Trace(mut passed) if passed.arguments.first().is_some_and(|it| it == "stat") => {
            passed.arguments[0] = "show".into();
            now(Command::Trace(passed), "trace stat", "trace show")
        }
        command => (command, None),
    }
}

fn volume(command: old::Volume) -> Current {
    match command {
        old::Volume::Snapshot { volume, name, ask } => {
            let name = SnapshotName {
                volume,
                snapshot: name,
            };
            now(
                Command::Snapshot(Snapshot::Create { name, ask }),
                "volume snapshot VOLUME NAME",
                "snapshot create VOLUME@NAME",
            )
        }
        old::Volume::Snapshots { name, ask } => {
            let volume = Some(name);
            now(
                Command::Snapshot(Snapshot::List { volume, ask }),
                "volume snapshots",
                "snapshot list",
            )
        }
        old::Volume::Clone { source, name, ask } => now(
            Command::Snapshot(Snapshot::Clone { source, name, ask }),
            "volume clone",
            "snapshot clone",
        ),
        old::Volume::Rollback { target, loss, ask } => now(
            Command::Snapshot(Snapshot::Rollback { target, loss, ask }),
            "volume rollback",
            "snapshot rollback",
        ),
        old::Volume::Resize(old) => {
            let set = SetVolume {
                shrink: old.shrink,
                yes: old.yes,
                dry_run: old.dry_run,
                ..set_of(old.name.as_str(), format!("size={}", old.size.0), old.ask)
            };
            now(
                Command::Volume(Volume::Set(Box::new(set))),
                "volume resize VOLUME SIZE",
                "volume set VOLUME size=SIZE",
            )
        }
        old::Volume::Rename { name, new, ask } => {
            let set = set_of(name.as_str(), format!("name={new}"), ask);
            now(
                Command::Volume(Volume::Set(Box::new(set))),
                "volume rename VOLUME NEW",
                "volume set VOLUME name=NEW",
            )
        }
    }
}

fn set_of(name: &str, change: String, ask: Ask) -> SetVolume {
    SetVolume {
        name: VolumeName {
            kind: None,
            name: name.to_owned(),
        },
        changes: vec![change],
        until_restart: false,
        shrink: false,
        yes: false,
        dry_run: false,
        old: DiskOptions::default(),
        ask,
    }
}

fn set_volume(mut set: SetVolume) -> Current {
    let given = std::mem::take(&mut set.old).given();
    if given.is_empty() {
        return (Command::Volume(Volume::Set(Box::new(set))), None);
    }
    let (options, words): (Vec<String>, Vec<String>) = given.into_iter().unzip();
    let old = format!("volume set VOLUME {}", options.join(" "));
    let new = format!("volume set VOLUME {}", words.join(" "));
    set.changes = words;
    now(Command::Volume(Volume::Set(Box::new(set))), old, new)
}

fn device(command: old::Device) -> Current {
    match command {
        old::Device::Models { json } => now(
            Command::Model(Model::List { json }),
            "device models",
            "model list",
        ),
        old::Device::Bench {
            target,
            overwrite,
            json,
        } => {
            let is_device = Path::new(&target).exists() && !target.ends_with(".toml");
            let mut arguments: Vec<OsString> = match is_device {
                true => vec!["device".into(), target.into(), "--quick".into()],
                false => vec!["model".into(), target.into()],
            };
            if overwrite && is_device {
                arguments.extend(["--overwrite".into(), "--yes".into()]);
            }
            if json {
                arguments.push("--json".into());
            }
            let command = Command::Bench(Passed { arguments });
            match is_device {
                true => now(command, "device bench PATH", "bench device PATH --quick"),
                false => now(command, "device bench MODEL", "bench model MODEL"),
            }
        }
    }
}

fn node(command: old::Node) -> Current {
    match command {
        old::Node::Add {
            node,
            store,
            address,
            domain,
            number,
            rotating,
            ask,
        } => {
            let create = CreateNode {
                node,
                certificate: CertificateOptions::usual(),
                store: StoreOptions {
                    store: Some(store),
                    address: Some(address),
                    domain,
                    number,
                    rotating,
                },
                ask,
            };
            now(
                Command::Node(Node::Create(Box::new(create))),
                "node add",
                "node create",
            )
        }
        old::Node::Remove {
            name,
            lost,
            loss,
            ask,
        } => {
            let delete = DeleteNode {
                name,
                lost,
                loss,
                ask,
            };
            now(
                Command::Node(Node::Delete(delete)),
                "node remove",
                "node delete",
            )
        }
    }
}

fn store(command: Store) -> Current {
    match command {
        Store::Old(old::Store::Status { name: None, ask }) => now(
            Command::Store(Store::List(ask)),
            "store status",
            "store list",
        ),
        Store::Old(old::Store::Status {
            name: Some(name),
            ask,
        }) => now(
            Command::Store(Store::Show {
                name,
                calibration: false,
                ask,
            }),
            "store status STORE",
            "store show STORE",
        ),
        Store::Calibrate {
            name,
            show: true,
            ask,
            ..
        } => now(
            Command::Store(Store::Show {
                name,
                calibration: true,
                ask,
            }),
            "store calibrate STORE --show",
            "store show STORE --calibration",
        ),
        Store::Old(old::Store::Serve(old)) => serve_store(*old),
        command => (Command::Store(command), None),
    }
}

fn serve_store(old: old::Serve) -> Current {
    let store = OneStore {
        store: Some(old.device),
        options: old.options,
    };
    if old.print_config {
        let example = Config::Example {
            config: None,
            data_dir: old.data_dir,
            store: Box::new(store),
        };
        return now(
            Command::Config(example),
            "store serve --print-config",
            "config example --store",
        );
    }
    let serve = Serve {
        serve: serve::Serve {
            config: None,
            data_dir: old.data_dir,
            check: false,
            verify: false,
            print_config: false,
            log_format: old.log_format,
            json: false,
        },
        store,
    };
    let serve = Command::Serve(Box::new(serve));
    now(serve, "store serve", "serve --store")
}

fn daemon(wanted: Serve) -> Current {
    let Serve { serve, store } = wanted;
    if serve.check && store.store.is_none() {
        let check = Config::Check {
            file: serve.config,
            data_dir: serve.data_dir,
            json: false,
        };
        return now(Command::Config(check), "serve --check", "config check");
    }
    if serve.print_config {
        let example = Config::Example {
            config: serve.config,
            data_dir: serve.data_dir,
            store: Box::new(store),
        };
        return now(
            Command::Config(example),
            "serve --print-config",
            "config example",
        );
    }
    (Command::Serve(Box::new(Serve { serve, store })), None)
}

fn reserve(command: old::Reserve) -> Current {
    let (command, old, new) = match command {
        old::Reserve::Add(add) => (
            Reservation::Create(Box::new(create(*add, false))),
            "reserve add",
            "reservation create --holder WHO",
        ),
        old::Reserve::Offer(offer) => (
            Reservation::Create(Box::new(create(*offer, true))),
            "reserve offer",
            "reservation create --holder WHO --dry-run",
        ),
        old::Reserve::List(ask) => (
            Reservation::List(List { parts: true, ask }),
            "reserve list",
            "reservation list --parts",
        ),
        old::Reserve::Show(one) => (Reservation::Show(one), "reserve show", "reservation show"),
        old::Reserve::Cancel(one) => (
            Reservation::Delete(Delete {
                one,
                if_exists: false,
            }),
            "reserve cancel",
            "reservation delete",
        ),
        old::Reserve::Calendar(asked) => (
            Reservation::Calendar(asked),
            "reserve calendar",
            "reservation calendar",
        ),
        old::Reserve::Create(create) => (
            Reservation::Create(create),
            "reserve create",
            "reservation create",
        ),
        old::Reserve::Set(set) => (Reservation::Set(set), "reserve set", "reservation set"),
        old::Reserve::Capability(one) => (
            Reservation::Capability(one),
            "reserve capability",
            "reservation capability",
        ),
        old::Reserve::Delete(delete) => (
            Reservation::Delete(delete),
            "reserve delete",
            "reservation delete",
        ),
        old::Reserve::Run(run) => (Reservation::Run(run), "reserve run", "reservation run"),
    };
    now(Command::Reservation(command), old, new)
}

/// Without a holder it was the user's, as far as it was known.
fn create(old: AddReservation, dry_run: bool) -> Create {
    let user = || std::env::var("USER").unwrap_or_default();
    Create {
        name: None,
        wanted: Wanted {
            store: old.store,
            scope: Some(old.scope),
            read: old.read,
            write: old.write,
            window: old.window,
            probability: old.probability,
            ..Wanted::default()
        },
        from: old.from,
        span: old.span,
        space: old.space,
        idle: None,
        allotment: false,
        agent: None,
        offline: false,
        holder: Some(old.holder.unwrap_or_else(user)),
        dry_run,
        ask: old.ask,
    }
}

#[cfg(test)]
#[path = "current_tests.rs"]
mod tests;
