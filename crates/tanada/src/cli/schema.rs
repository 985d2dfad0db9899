//! `tanada schema NOUN VERB`: what a command prints with --json, as a JSON schema.
//!
//! ```text
//! words -> COMMANDS -> the type that is printed -> its schema and those it names -> one document
//! ```
//!
//! The types are those of the admin API's document; within one major version keys are only added.

use std::collections::BTreeSet;

use clap::Args;
use report::terminal::Usage;
use serde_json::{Map, Value, json};
use utoipa::ToSchema;
use utoipa::openapi::schema::{AnyOfBuilder, Type};
use utoipa::openapi::{ArrayBuilder, ObjectBuilder, Ref, RefOr};

use super::audit::Verified;
use super::authority_files::Entry;
use super::cache::{Accepted, GivenUp};
use super::check_stop::Left;
use super::cluster_ca::{MadeAuthority, MadeCertificate, Revoked};
use super::cluster_pages::ListedSnapshot;
use super::consent::DryRun;
use super::device_claim::ClaimedDisk;
use super::disk_copy::Copied;
use super::doctor::Finding;
use super::frame::Frame;
use super::model::Listed as Model;
use super::object::Moved;
use super::object_names::Shown as Object;
use super::rescue::Report as Rescued;
use super::show::{self, StatusPage};
use super::store_offline::{Checked, Made};
use crate::api::access::{Account, AccountsGone, AuditLine, MadeToken, Token};
use crate::api::clients::{Gone, NbdListener};
use crate::api::cluster::{ClusterStore, Disk, Done, Here, Repaired};
use crate::api::health::Health;
use crate::api::job::Job;
use crate::api::level::Upgraded;
use crate::api::reload::Reloaded;
use crate::api::reservation::{ReservationOffer, WholeReservation};
use crate::api::s3::{MadeS3Key, S3Bucket, S3Gateway, S3Key};
use crate::api::settings::Setting;
use crate::api::status::Device;
use crate::api::store::{Calendar, Offer, Reservation, Scrub, Store};
use crate::api::tier::{Heat, Moves};
use crate::api::trash::{Deleted, DeletedVolume};
use crate::api::volume::Volume;
use crate::api::volumes::AnyVolume;
use crate::daemon::http::flattened::{self, Schemas};
use crate::daemon::look::CheckedConfig;

#[derive(Debug, Args)]
pub struct Schema {
    /// The command; without one those that have a schema are listed.
    #[arg(value_name = "NOUN VERB", allow_hyphen_values = true)]
    words: Vec<String>,
}

/// What is printed: one value of a type, or a list of such.
struct Shape {
    name: String,
    is_list: bool,
    schemas: Schemas,
}

fn one<T: ToSchema>() -> Shape {
    let mut schemas = Vec::new();
    T::schemas(&mut schemas);
    schemas.push((T::name().into_owned(), T::schema()));
    Shape {
        name: T::name().into_owned(),
        is_list: false,
        schemas: schemas.into_iter().collect(),
    }
}

fn many<T: ToSchema>() -> Shape {
    Shape {
        is_list: true,
        ..one::<T>()
    }
}

/// Names of what was forgotten or deleted.
fn names() -> Shape {
    let name = "Name".to_owned();
    let text = ObjectBuilder::new().schema_type(Type::String);
    let text = RefOr::T(text.description(Some("A name")).build().into());
    Shape {
        schemas: [(name.clone(), text)].into_iter().collect(),
        name,
        is_list: true,
    }
}

/// One of two, as it is asked.
fn either(name: &str, shapes: [Shape; 2]) -> Shape {
    let (mut schemas, mut either) = (Schemas::default(), AnyOfBuilder::new());
    for shape in shapes {
        let named = RefOr::Ref(Ref::from_schema_name(shape.name));
        either = match shape.is_list {
            true => either.item(ArrayBuilder::new().items(named)),
            false => either.item(named),
        };
        schemas.extend(shape.schemas);
    }
    let name = name.to_owned();
    schemas.insert(name.clone(), RefOr::T(either.build().into()));
    Shape {
        name,
        is_list: false,
        schemas,
    }
}

/// A volume after a change: a hybrid without its kind, or a virtual disk.
fn volume_then() -> Shape {
    either("VolumeThen", [one::<Volume>(), one::<Disk>()])
}

/// A reservation; or the part of one store, which is all that a daemon without a cluster has.
fn reservation() -> Shape {
    let either = [one::<WholeReservation>(), one::<Reservation>()];
    self::either("AnyReservation", either)
}

/// The same, and of parts all that go together.
fn reservation_or_parts() -> Shape {
    let either = [one::<WholeReservation>(), many::<Reservation>()];
    self::either("ReservationOrParts", either)
}

fn reservations() -> Shape {
    Shape {
        is_list: true,
        ..reservation()
    }
}

fn offer() -> Shape {
    either("AnyOffer", [one::<ReservationOffer>(), one::<Offer>()])
}

/// What a calibration found: rates of reads and writes, and what must stay free at each point.
fn calibration() -> Shape {
    let of = |kind: Type| ObjectBuilder::new().schema_type(kind);
    let mut whole = of(Type::Object);
    for (key, kind) in [
        ("device", Type::Object),
        ("measured", Type::Integer),
        ("took_ns", Type::Integer),
        ("scheduler", Type::String),
        ("depth", Type::Integer),
        ("read", Type::Object),
        ("write", Type::Object),
        ("beyond_ppb", Type::Integer),
        ("cut", Type::Boolean),
    ] {
        whole = whole.property(key, of(kind)).required(key);
    }
    let points = ArrayBuilder::new().items(of(Type::Object));
    whole = whole.property("points", points).required("points");
    let name = "Calibration".to_owned();
    Shape {
        schemas: [(name.clone(), RefOr::T(whole.build().into()))]
            .into_iter()
            .collect(),
        name,
        is_list: false,
    }
}

/// A command, and the shape of what it prints.
type Printed = (&'static str, fn() -> Shape);

/// Each command and what it prints.
const COMMANDS: [Printed; 121] = [
    ("account create", one::<Account>),
    ("account delete", one::<AccountsGone>),
    ("account list", many::<Account>),
    ("account set", one::<Account>),
    ("account show", one::<Account>),
    ("audit list", many::<AuditLine>),
    ("audit verify", one::<Verified>),
    ("client delete", many::<Gone>),
    ("client list", many::<NbdListener>),
    ("cluster ca init", one::<MadeAuthority>),
    ("cluster ca issue", one::<MadeCertificate>),
    ("cluster ca list", many::<Entry>),
    ("cluster ca renew", one::<MadeAuthority>),
    ("cluster ca revoke", one::<Revoked>),
    ("cluster upgrade", one::<Upgraded>),
    ("cluster upgrade --dry-run", one::<Upgraded>),
    ("config check", one::<CheckedConfig>),
    ("config diff", many::<Setting>),
    ("config reset", one::<Volume>),
    ("device claim", one::<ClaimedDisk>),
    ("device claim --dry-run", one::<ClaimedDisk>),
    ("device list", many::<Device>),
    ("device release", one::<ClaimedDisk>),
    ("device show", one::<Device>),
    ("device release --dry-run", one::<ClaimedDisk>),
    ("doctor", many::<Finding>),
    ("health mute", one::<Health>),
    ("health show", one::<Health>),
    ("health unmute", one::<Health>),
    ("job cancel", one::<Job>),
    ("job list", many::<Job>),
    ("job show", one::<Job>),
    ("model list", many::<Model>),
    ("model show", one::<Model>),
    ("node check-stop", many::<Left>),
    ("node create", one::<MadeCertificate>),
    ("node create --store", one::<ClusterStore>),
    ("node delete", names),
    ("node delete --dry-run", one::<DryRun>),
    ("node drain", many::<ClusterStore>),
    ("node list", one::<Here>),
    ("node show", one::<Here>),
    ("object delete", names),
    ("object delete --dry-run", one::<DryRun>),
    ("object get", one::<Moved>),
    ("object list", many::<Object>),
    ("object put", one::<Moved>),
    ("object show", one::<Object>),
    ("reload", one::<Reloaded>),
    ("reload --dry-run", one::<Reloaded>),
    ("reservation calendar", many::<Calendar>),
    ("reservation capability", reservation),
    ("reservation create", reservation_or_parts),
    ("reservation create --dry-run", offer),
    ("reservation create --holder", many::<Reservation>),
    ("reservation delete", reservation_or_parts),
    ("reservation list", reservations),
    ("reservation list --parts", many::<Reservation>),
    ("reservation set", one::<WholeReservation>),
    ("reservation show", reservation),
    ("snapshot clone", one::<Disk>),
    ("snapshot create", one::<Disk>),
    ("snapshot delete", one::<Done>),
    ("snapshot delete --dry-run", one::<DryRun>),
    ("snapshot list", many::<ListedSnapshot>),
    ("snapshot rollback", one::<Disk>),
    ("snapshot rollback --dry-run", one::<DryRun>),
    ("snapshot show", one::<ListedSnapshot>),
    ("status", one::<StatusPage>),
    ("store calibrate", calibration),
    ("store calibrate --no-wait", one::<Store>),
    ("store check", one::<Checked>),
    ("store create", one::<Made>),
    ("store create --dry-run", one::<DryRun>),
    ("store list", many::<Store>),
    ("store rotate-key", one::<Store>),
    ("store scrub", one::<Scrub>),
    ("store show", one::<Store>),
    ("store show --calibration", calibration),
    ("s3 bucket list", many::<S3Bucket>),
    ("s3 bucket set", one::<S3Bucket>),
    ("s3 credentials", one::<MadeS3Key>),
    ("s3 key create", one::<MadeS3Key>),
    ("s3 key delete", one::<S3Key>),
    ("s3 key list", many::<S3Key>),
    ("s3 key set", one::<S3Key>),
    ("s3 list", many::<S3Gateway>),
    ("token create", one::<MadeToken>),
    ("token delete", one::<Token>),
    ("token list", many::<Token>),
    ("top", one::<Frame>),
    ("trash delete", one::<Done>),
    ("trash delete --dry-run", one::<DryRun>),
    ("trash list", many::<DeletedVolume>),
    ("trash restore", one::<Disk>),
    ("volume accept", one::<Accepted>),
    ("volume accept --dry-run", one::<DryRun>),
    ("volume attach", one::<Volume>),
    ("volume attach --dry-run", one::<DryRun>),
    ("volume create", one::<Disk>),
    ("volume delete", one::<Deleted>),
    ("volume delete --dry-run", one::<DryRun>),
    ("volume detach", one::<Volume>),
    ("volume detach --no-wait", one::<Job>),
    ("volume export", one::<Copied>),
    ("volume export --dry-run", one::<DryRun>),
    ("volume give-up", one::<GivenUp>),
    ("volume give-up --dry-run", one::<DryRun>),
    ("volume heat", one::<Heat>),
    ("volume import", one::<Copied>),
    ("volume import --dry-run", one::<DryRun>),
    ("volume list", many::<AnyVolume>),
    ("volume moves", one::<Moves>),
    ("volume repair", one::<Repaired>),
    ("volume repair --no-wait", one::<Job>),
    ("volume rescue", one::<Rescued>),
    ("volume rescue --dry-run", one::<Rescued>),
    ("volume set", volume_then),
    ("volume set --dry-run", one::<DryRun>),
    ("volume show", one::<AnyVolume>),
    ("volume takeover", one::<Disk>),
];

/// Prints the schema of a command, or lists those that have one.
pub fn run(wanted: &Schema) -> anyhow::Result<()> {
    let command = wanted.words.join(" ");
    if command.is_empty() {
        let all: String = COMMANDS
            .iter()
            .map(|(name, _)| format!("{name}\n"))
            .collect();
        return show::text(&all);
    }
    match of(&command) {
        Some(schema) => show::json(&schema),
        None => Err(Usage(format!(
            "there is no schema of 'tanada {command}'; `tanada schema` lists the commands that have one"
        ))
        .into()),
    }
}

/// The schema of what a command prints.
fn of(command: &str) -> Option<Value> {
    let found = COMMANDS.iter().find(|(name, _)| *name == command)?;
    Some(document(command, found.1()))
}

fn document(command: &str, shape: Shape) -> Value {
    let Shape {
        name,
        is_list,
        schemas,
    } = shape;
    let whole = flattened::whole(schemas, |_| true);
    let mut all: Map<String, Value> = Map::new();
    for (name, schema) in whole {
        all.insert(name, here(serde_json::to_value(schema).unwrap_or_default()));
    }
    let named = json!({ "$ref": format!("#/$defs/{name}") });
    let mut document = match is_list {
        true => json!({ "type": "array", "items": named }),
        false => named,
    };
    let used = used(&all, &name);
    all.retain(|name, _| used.contains(name));
    document["$schema"] = "https://json-schema.org/draft/2020-12/schema".into();
    document["title"] = format!("tanada {command} --json").into();
    document["$defs"] = Value::Object(all);
    document
}

/// The schemas that `name` needs, itself among them.
fn used(all: &Map<String, Value>, name: &str) -> BTreeSet<String> {
    let mut used = BTreeSet::new();
    let mut open = vec![name.to_owned()];
    while let Some(name) = open.pop() {
        let Some(schema) = all.get(&name) else {
            continue;
        };
        let text = schema.to_string();
        let named = text.split("\"#/$defs/").skip(1);
        let named = named.filter_map(|rest| rest.split('"').next().map(str::to_owned));
        if used.insert(name) {
            open.extend(named);
        }
    }
    used
}

/// A schema of the admin API's document, as it stands in a document of its own.
fn here(mut schema: Value) -> Value {
    match &mut schema {
        Value::Object(map) => {
            if let Some(Value::String(to)) = map.get_mut("$ref") {
                *to = to.replace("#/components/schemas/", "#/$defs/");
            }
            map.values_mut().for_each(|it| *it = here(it.take()));
        }
        Value::Array(all) => all.iter_mut().for_each(|it| *it = here(it.take())),
        _ => {}
    }
    schema
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Commands that answer nothing to programs: they print a file or a secret for a shell, run until they are ended, or hand
    /// on what another program prints.
    const WITHOUT: [&str; 7] = [
        "serve",
        "schema",
        "completion",
        "config example",
        "client connect",
        "reservation run",
        "slurm",
    ];
    /// Carried out by `tanada-lab`.
    const LABORATORY: [&str; 6] = ["experiment", "sim", "predict", "bench", "trace", "advise"];

    /// The commands without commands of their own, as they are typed, and whether they take --json and --dry-run.
    fn leaves(command: &clap::Command, above: &str, out: &mut Vec<(String, [bool; 2])>) {
        let below: Vec<_> = command
            .get_subcommands()
            .filter(|it| !it.is_hide_set())
            .collect();
        if below.is_empty() {
            let takes = |option| {
                let mut all = command.get_arguments();
                all.any(|it| it.get_long() == Some(option))
            };
            out.push((above.to_owned(), ["json", "dry-run"].map(takes)));
        }
        for it in below {
            let name = format!("{above} {}", it.get_name());
            leaves(it, name.trim(), out);
        }
    }

    #[test]
    fn each_command_prints_json_and_has_a_schema_of_it() {
        use clap::CommandFactory;
        let mut all = Vec::new();
        leaves(&crate::cli::Cli::command(), "", &mut all);
        assert!(all.len() > 60, "{all:?}");
        for (name, [json, is_dry]) in all {
            let is_of = |group: &&str| name == **group || name.starts_with(&format!("{group} "));
            if WITHOUT.iter().chain(&LABORATORY).any(is_of) {
                continue;
            }
            assert!(json, "{name} has no --json");
            let is_known = |name: &str| COMMANDS.iter().any(|(it, _)| *it == name);
            assert!(is_known(&name), "{name} has no schema");
            let dry = format!("{name} --dry-run");
            assert!(!is_dry || is_known(&dry), "{dry} has no schema");
        }
    }

    #[test]
    fn each_schema_is_whole() {
        for (command, _) in COMMANDS {
            let schema = of(command).unwrap();
            let text = schema.to_string();
            for name in text.split("\"#/$defs/").skip(1) {
                let name = name.split('"').next().unwrap();
                assert!(schema["$defs"].get(name).is_some(), "{command}: {name}");
            }
        }
        assert_eq!(of("volume frobnicate"), None);
    }
}
