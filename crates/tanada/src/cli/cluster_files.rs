//! Virtual disks to files and from files, over NBD.

use super::ask::Ask;
use super::client::Client;
use super::cluster::{DiskSettings, Filling, new_disk, nothing, path};
use super::consent::Loss;
use super::named::{At, VolumeName};
use super::{consent, disk_copy, disk_image, show, volume_list};
use crate::api::cluster::{Called, Disk as Shown, Done, Here};
use base::Bytes;
use hyper::Method;
use report::terminal::{Refused, Usage, table};
use std::path::Path;

/// It is not done, and nothing was changed.
fn refused(why: String) -> anyhow::Error {
    Refused(why).into()
}

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

/// What an export to this path writes over; empty: nothing.
fn written_over(file: &Path) -> String {
    use std::os::unix::fs::FileTypeExt;
    let Ok(status) = std::fs::metadata(file) else {
        return String::new();
    };
    let shown = file.display();
    match status.file_type() {
        kind if kind.is_block_device() => format!("what the disk {shown} has would be lost"),
        kind if kind.is_file() && status.len() > 0 => format!(
            "{shown} is there, with {}, and would be written over",
            table::size(status.len())
        ),
        _ => String::new(),
    }
}

pub(super) fn export(source: &At, file: &Path, loss: &Loss, ask: Ask) -> anyhow::Result<()> {
    let lost = match written_over(file) {
        none if none.is_empty() && loss.dry_run => {
            format!("{} has nothing to lose", file.display())
        }
        lost => lost,
    };
    if !lost.is_empty() && !consent::is_given(&file.display().to_string(), &lost, loss, ask.json)? {
        return Ok(());
    }
    let client = Client::new(ask.admin)?;
    let here: Here = client.get("/v1/cluster")?;
    // A snapshot is read by way of a clone, which takes no room.
    let (disk, passing): (Shown, bool) = match source.snapshot() {
        None => (client.get(&path(&source.volume, ""))?, false),
        Some(snapshot) => {
            let name = format!("export-{}-{}", source.volume, std::process::id());
            let called = Called {
                name: name.chars().take(64).collect(),
            };
            (
                client.send_json(Method::POST, &snapshot.path("/clone"), &called)?,
                true,
            )
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
    // No user deleted it, so none will want it back.
    let path = format!("/v1/cluster/volumes/{name}?now=true");
    let mut tries = 0;
    loop {
        match client.send_json::<Done>(Method::DELETE, &path, &nothing()) {
            Ok(_) => return Ok(()),
            Err(error) if tries == 20 => {
                return Err(anyhow::Error::from(error).context(format!(
                    "the clone {name} is left over; remove it with `tanada volume delete --now {name}`"
                )));
            }
            Err(_) => client.wait(std::time::Duration::from_millis(250)),
        }
        tries += 1;
    }
}

pub(super) fn import(
    file: &Path,
    name: &VolumeName,
    (how, settings): (&Filling, &DiskSettings),
    ask: Ask,
) -> anyhow::Result<()> {
    let bytes = raw_size((file, &name.name), how)?;
    let client = Client::new(ask.admin)?;
    let name = &volume_list::new_disk(&client, name)?;
    let here: Here = client.get("/v1/cluster")?;
    let mut all = client.get::<Vec<Shown>>("/v1/cluster/volumes")?.into_iter();
    let known = all.find(|disk| disk.terms.name == name.as_str());
    let whole = Bytes(bytes.next_multiple_of(4096).max(4096));
    let data = known.as_ref().map(|disk| check(disk, (file, bytes), &here));
    let data = data.transpose()?.unwrap_or(0);
    let (has, shown) = (table::size(data), file.display());
    let lost = format!("{name} has {has} of data, which {shown} is to replace");
    if data > 0 && !how.replace {
        return Err(refused(format!(
            "{lost}: nothing was changed. Import it under another name, or add --replace; `tanada snapshot create \
             {name}@before` keeps what is there now"
        )));
    }
    if how.dry_run {
        let would = match (&known, data) {
            (None, _) => format!("{name} would be made, with {}", table::size(whole.0)),
            (Some(_), 0) => format!("{name} would be filled; it has no data"),
            (Some(_), _) => lost,
        };
        return consent::dry(&would, ask.json);
    }
    if data > 0 {
        report::terminal::consent::ask(name.as_str(), &lost, how.yes)?;
    }
    let is_new = known.is_none();
    let disk = match known {
        Some(_) => {
            let disk: Shown = client.get(&path(name, ""))?;
            // It may have been opened or written while its name was typed.
            check_again(&disk, (file, bytes), &here, data)?;
            disk
        }
        None => {
            let new = new_disk(name, whole, settings);
            client.send_json(Method::POST, "/v1/cluster/volumes", &new)?
        }
    };
    let address = entrance(&disk, &here)?;
    let copied = disk_copy::import(file, &address, &disk.terms.name, is_new)?;
    show::answer(ask.json, &copied, || {
        format!(
            "{name} has what {} has: {}, of which {} are data\n",
            file.display(),
            table::size(copied.size_bytes),
            table::size(copied.data_bytes)
        )
    })
}

/// Can a volume that is there be filled from so many bytes, and how many bytes of data has it?
fn check(disk: &Shown, (file, bytes): (&Path, u64), here: &Here) -> anyhow::Result<u64> {
    let name = &disk.terms.name;
    if disk.terms.size_bytes < bytes {
        return Err(refused(format!(
            "{} has {bytes} bytes, and {name} only {}; make it larger first: `tanada volume set {name} size={bytes}`",
            file.display(),
            disk.terms.size_bytes
        )));
    }
    if disk.clients > 0 {
        return Err(refused(format!(
            "{name} is open at {} NBD clients, beneath which its data would change; close it there first",
            disk.clients
        )));
    }
    disk_copy::data_of(&entrance(disk, here)?, name)
}

/// As [`check`]: is there as much data as before?
fn check_again(disk: &Shown, of: (&Path, u64), here: &Here, before: u64) -> anyhow::Result<()> {
    match check(disk, of, here)? == before {
        true => Ok(()),
        false => Err(refused(format!(
            "{} was written meanwhile: nothing was changed; import again when nothing writes to it",
            disk.terms.name
        ))),
    }
}

/// Refuses the volume in the file's place.
fn check_order(file: &Path, name: &str) -> Result<(), Usage> {
    match !file.exists() && Path::new(name).exists() {
        false => Ok(()),
        true => Err(Usage(format!(
            "there is no file {0}, and {name} is one; the file comes first: tanada volume import {name} {0}",
            file.display()
        ))),
    }
}

/// The length of a file that is a raw disk and is to fill `name`, as far as can be seen.
fn raw_size((file, name): (&Path, &str), how: &Filling) -> anyhow::Result<u64> {
    check_order(file, name)?;
    let bytes = disk_copy::size_of(file)?;
    match disk_copy::format_of(file)?.filter(|_| how.format.is_none()) {
        None => Ok(bytes),
        Some(format) => Err(refused(disk_image::refusal(file, format))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_export_over_something_loses_it() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("vm1.raw");
        assert_eq!(written_over(&file), "");
        std::fs::write(&file, b"").unwrap();
        assert_eq!(written_over(&file), "", "it is empty");
        std::fs::write(&file, [0; 2048]).unwrap();
        let lost = written_over(&file);
        assert!(
            lost.contains("with 2.0 KiB, and would be written over"),
            "{lost}"
        );
        for stream in ["-", "/dev/null"] {
            assert_eq!(written_over(Path::new(stream)), "", "{stream}");
        }
    }

    #[test]
    fn a_volume_in_the_place_of_the_file_is_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("x.raw");
        std::fs::write(&file, b"").unwrap();
        let (volume, name) = (Path::new("no such volume"), file.display().to_string());
        assert!(check_order(&file, "vm1").is_ok());
        assert!(
            check_order(volume, "vm1").is_ok(),
            "what is missing is said elsewhere"
        );
        let said = check_order(volume, &name).unwrap_err().0;
        assert!(said.contains("the file comes first"), "{said}");
    }
}
