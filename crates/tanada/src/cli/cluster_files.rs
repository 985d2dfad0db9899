//! Virtual disks to files and from files, over NBD.

use super::ask::Ask;
use super::client::Client;
use super::cluster::{At, path, snapshot_path};
use super::cluster::{DiskSettings, new_disk, nothing};
use super::{disk_copy, show};
use crate::api::cluster::{Called, Disk as Shown, Done, Here};
use base::Bytes;
use hyper::Method;
use report::terminal::table;
use std::path::Path;
use vdisk::record::Name;

/// Where a volume can be read and written from here.
pub(super) fn entrance(disk: &Shown, here: &Here) -> anyhow::Result<env::net::Address> {
    if here.tls {
        return Err(anyhow::anyhow!(
            "the volumes of this node are exported in TLS, which this command does not speak; use `qemu-img convert` with {}",
            disk.nbd.first().map_or("", String::as_str)
        ));
    }
    let address = here.nbd.first().ok_or_else(|| {
        anyhow::anyhow!("this node exports no volumes; name an address in [cluster] nbd")
    })?;
    Ok(address.parse()?)
}

pub(super) fn export(source: &At, file: &Path, ask: Ask) -> anyhow::Result<()> {
    let client = Client::new(ask.admin)?;
    let here: Here = client.get("/v1/cluster")?;
    // A snapshot is read by way of a clone, which takes no room.
    let (disk, passing): (Shown, bool) = match &source.snapshot {
        None => (client.get(&path(&source.volume, ""))?, false),
        Some(_) => {
            let name = format!("export-{}-{}", source.volume, std::process::id());
            let called = Called {
                name: name.chars().take(64).collect(),
            };
            let path = snapshot_path(source, "/clone")?;
            (client.send_json(Method::POST, &path, &called)?, true)
        }
    };
    let copied = entrance(&disk, &here)
        .and_then(|address| disk_copy::export(&address, &disk.terms.name, file));
    if passing {
        remove_clone(&client, &disk.terms.name)?;
    }
    let copied = copied?;
    if file.as_os_str() == "-" {
        return Ok(());
    }
    show::answer(ask.json, &copied, || {
        format!(
            "{source} is in {}: {}, of which {} are data\n",
            file.display(),
            table::size(copied.size_bytes),
            table::size(copied.data_bytes)
        )
    })
}

/// The engine may take a moment to see that its client is gone.
pub(super) fn remove_clone(client: &Client, name: &str) -> anyhow::Result<()> {
    let path = format!("/v1/cluster/volumes/{name}");
    let mut tries = 0;
    loop {
        match client.send_json::<Done>(Method::DELETE, &path, &nothing()) {
            Ok(_) => return Ok(()),
            Err(error) if tries == 20 => {
                return Err(anyhow::Error::from(error).context(format!(
                    "the clone {name} is left over; remove it with `tanada volume rm {name}`"
                )));
            }
            Err(_) => client.wait(std::time::Duration::from_millis(250)),
        }
        tries += 1;
    }
}

pub(super) fn import(
    file: &Path,
    name: &Name,
    settings: &DiskSettings,
    ask: Ask,
) -> anyhow::Result<()> {
    let client = Client::new(ask.admin)?;
    let here: Here = client.get("/v1/cluster")?;
    let bytes = disk_copy::size_of(file)?;
    let all: Vec<Shown> = client.get("/v1/cluster/volumes")?;
    let (disk, fresh) = match all
        .into_iter()
        .find(|disk| disk.terms.name == name.as_str())
    {
        Some(disk) => (disk, false),
        None => {
            let whole = Bytes(bytes.next_multiple_of(4096).max(4096));
            let new = new_disk(name, whole, settings);
            (
                client.send_json(Method::POST, "/v1/cluster/volumes", &new)?,
                true,
            )
        }
    };
    if disk.terms.size_bytes < bytes {
        return Err(anyhow::anyhow!(
            "{} has {bytes} bytes, and {name} only {}; make it larger first: `tanada volume resize {name} {bytes}`",
            file.display(),
            disk.terms.size_bytes
        ));
    }
    let address = entrance(&disk, &here)?;
    let copied = disk_copy::import(file, &address, &disk.terms.name, fresh)?;
    show::answer(ask.json, &copied, || {
        format!(
            "{name} has what {} has: {}, of which {} are data\n",
            file.display(),
            table::size(copied.size_bytes),
            table::size(copied.data_bytes)
        )
    })
}
