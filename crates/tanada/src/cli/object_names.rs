//! Objects by name: listed, looked at, removed.

use super::object::{Delete, List, One, PAGE, is_not_there};
use super::show;
use anyhow::anyhow;
use report::terminal::Refused;
use report::terminal::printable::printable;
use report::terminal::table::{size, table};
use serde::Serialize;
use store::net::client::{Client, ClientError};
use store::{Change, ObjectCalls, Stat};
use utoipa::ToSchema;

/// An object, for programs.
#[derive(Serialize, ToSchema)]
pub struct Shown {
    pub(super) name: String,
    pub(super) size_bytes: u64,
    pub(super) generation: String,
    pub(super) born: String,
    pub(super) mark: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) attributes: Option<Vec<(String, String)>>,
}

impl From<Stat> for Shown {
    fn from(stat: Stat) -> Shown {
        Shown {
            name: stat.name,
            size_bytes: stat.size,
            generation: stat.version.to_string(),
            born: stat.born.to_string(),
            mark: stat.stamp,
            attributes: None,
        }
    }
}

pub(super) async fn list(client: &Client, wanted: &List) -> anyhow::Result<()> {
    let mut after: Option<String> = None;
    let mut all: Vec<Shown> = Vec::new();
    loop {
        let part = client.list(&wanted.prefix, after.as_deref(), PAGE).await?;
        match wanted.long || wanted.at.json {
            true => all.extend(part.objects.into_iter().map(Shown::from)),
            // A listing of names needs no widths: it comes as it is found.
            false => {
                let names = part.objects.iter().map(|stat| printable(&stat.name));
                show::text(&names.map(|name| format!("{name}\n")).collect::<String>())?;
            }
        }
        after = part.next;
        if after.is_none() {
            break;
        }
    }
    if wanted.at.json {
        return show::json(&all);
    }
    if !wanted.long {
        return Ok(());
    }
    let rows: Vec<Vec<String>> = all
        .iter()
        .map(|one| {
            vec![
                size(one.size_bytes),
                one.generation.clone(),
                printable(&one.name).into_owned(),
            ]
        })
        .collect();
    show::text(&table(&["SIZE", "GENERATION", "NAME"], &rows))
}

pub(super) async fn remove(client: &Client, wanted: &Delete) -> anyhow::Result<()> {
    let mut left = Left::default();
    let mut removed: Vec<&str> = Vec::new();
    for object in &wanted.objects {
        match client.delete(object, Change::default()).await {
            Ok(()) => removed.push(object),
            Err(error) if wanted.force && is_not_there(&error) => {}
            Err(error) => {
                left.count(&error);
                eprintln!("tanada: {error}");
            }
        }
    }
    client.flush().await?;
    if wanted.at.json {
        show::json(&removed)?;
    }
    left.ended(wanted.objects.len())
}

/// Objects that a deletion left.
#[derive(Default)]
struct Left {
    all: usize,
    /// Of these, those that are not there.
    absent: usize,
}

impl Left {
    fn count(&mut self, error: &ClientError) {
        self.all += 1;
        self.absent += usize::from(is_not_there(error));
    }

    /// How the deletion of `wanted` objects ends: where none was there, nothing was changed.
    fn ended(&self, wanted: usize) -> anyhow::Result<()> {
        let what = format!("{} of {wanted} were not removed", self.all);
        match self.all {
            0 => Ok(()),
            all if all == wanted && self.absent == all => Err(Refused(what).into()),
            _ => Err(anyhow!(what)),
        }
    }
}

pub(super) async fn stat(client: &Client, one: &One) -> anyhow::Result<()> {
    let mut shown = Shown::from(client.stat(&one.object).await?);
    let attributes = client.attributes(&one.object).await?;
    let attributes = attributes
        .into_iter()
        .map(|(name, value)| (name, String::from_utf8_lossy(&value).into_owned()));
    shown.attributes = Some(attributes.collect());
    if one.at.json {
        return show::json(&shown);
    }
    let mut text = format!(
        "{}\n  size        {} ({} bytes)\n  generation  {}\n  born        {}\n",
        shown.name,
        size(shown.size_bytes),
        shown.size_bytes,
        shown.generation,
        shown.born
    );
    if shown.mark > 0 {
        text.push_str(&format!("  mark        {}\n", shown.mark));
    }
    for (name, value) in shown.attributes.iter().flatten() {
        text.push_str(&format!("  {name} = {value}\n"));
    }
    show::text(&text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deletion_that_found_nothing_is_refused_and_another_failed() {
        let of = |all, absent, wanted| {
            let ended = Left { all, absent }.ended(wanted);
            ended.map_err(|error| error.downcast_ref::<Refused>().is_some())
        };
        assert_eq!(of(0, 0, 2), Ok(()));
        assert_eq!(of(2, 2, 2), Err(true), "nothing was changed");
        assert_eq!(of(1, 1, 2), Err(false), "one is gone");
        assert_eq!(of(2, 1, 2), Err(false));
    }
}
