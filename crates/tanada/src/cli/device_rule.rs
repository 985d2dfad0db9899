//! May a disk be given to the daemon's group, and by which rule of udev?
//!
//! ```text
//! what udev and the kernel say of a disk, the rule that is there -> decide -> the rule to write | a refusal
//! ```
//!
//! Pure: `device_claim` looks and writes.
//!
//! Always true:
//! 1. A rule names one disk, by its serial number: names such as `sdb` change from start to start.
//! 2. What stands in a rule are letters, digits and a few signs, none of which means anything to udev.

use std::path::{Path, PathBuf};

/// Where rules of this machine's administrator are.
pub const RULES: &str = "/etc/udev/rules.d";
/// The daemon's group.
pub const GROUP: &str = "tanada";

/// What is known of a disk.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Disk {
    /// As it was named, such as `/dev/sdb`.
    pub path: String,
    pub is_partition: bool,
    /// What udev has of its serial number.
    pub serial: Serial,
    /// Which part of an NVMe drive it is; several have one serial number.
    pub namespace: Option<u32>,
    /// What holds it or a partition of it, in words.
    pub in_use: Option<String>,
}

/// Udev's properties of a disk that tell it from others.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Serial {
    /// `ID_SERIAL`: most often the model's name and the number; without a number the model's name alone.
    pub whole: Option<String>,
    /// `ID_SERIAL_SHORT`: the number alone.
    pub short: Option<String>,
    /// `ID_BUS`.
    pub bus: Option<String>,
}

impl Serial {
    /// From lines such as `ID_SERIAL=WDC_WD40-1234`.
    pub fn from_properties(text: &str) -> Serial {
        let of = |wanted: &str| {
            let found = text
                .lines()
                .find_map(|line| line.strip_prefix(wanted)?.strip_prefix('='));
            found.filter(|value| !value.is_empty()).map(str::to_owned)
        };
        Serial {
            whole: of("ID_SERIAL"),
            short: of("ID_SERIAL_SHORT"),
            bus: of("ID_BUS"),
        }
    }

    /// What tells the disk from all others, if it has a serial number. Drivers without a bus of udev's (virtio) have it as
    /// `ID_SERIAL` alone; on a bus that is the model's name.
    fn unique(&self) -> Option<&str> {
        let whole = self.whole.as_deref()?;
        (self.short.is_some() || self.bus.is_none()).then_some(whole)
    }
}

/// A rule of udev and its file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    pub file: PathBuf,
    pub text: String,
    pub serial: String,
}

/// The file of the rule for a serial number, or what begins with one.
pub fn file(serial: &str) -> PathBuf {
    Path::new(RULES).join(format!("70-tanada-{serial}.rules"))
}

/// Is there nothing in `text` that a rule of udev, or a file's name, would take for more than itself?
pub fn is_plain(text: &str) -> bool {
    let plain = |sign: char| sign.is_ascii_alphanumeric() || "#+-.:=@_".contains(sign);
    !text.is_empty() && text.len() <= 200 && !text.starts_with('.') && text.chars().all(plain)
}

/// The rule of a disk, whatever uses it.
///
/// # Errors
/// In words: it has none.
pub fn rule(disk: &Disk) -> Result<Rule, String> {
    let Disk { path, .. } = disk;
    if disk.is_partition {
        return Err(format!(
            "{path} is a partition, and a rule is for a whole disk; name the disk (lsblk shows it)"
        ));
    }
    let Some(serial) = disk.serial.unique() else {
        return Err(format!(
            "{path} has no serial number by which it could be told from another disk at the next start \
             (udevadm info {path}); give it to the group {GROUP} by a rule of your own in {RULES}"
        ));
    };
    if !is_plain(serial) {
        return Err(format!(
            "{path} has the serial number {serial:?}, with signs that mean something in a rule of udev; write a rule of your \
             own in {RULES}"
        ));
    }
    let mut name = serial.to_owned();
    let mut matches = format!("ENV{{ID_SERIAL}}==\"{serial}\"");
    if let Some(number) = disk.namespace {
        name.push_str(&format!("-{number}"));
        matches.push_str(&format!(", ATTR{{nsid}}==\"{number}\""));
    }
    let text = format!(
        "# This disk is for the Tanada daemon. Made by `tanada device claim {path}`; `tanada device release {name}` undoes it.\n\
         SUBSYSTEM==\"block\", ENV{{DEVTYPE}}==\"disk\", {matches}, GROUP=\"{GROUP}\", MODE=\"0660\"\n"
    );
    Ok(Rule {
        file: file(&name),
        text,
        serial: name,
    })
}

/// What is to be done to claim a disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    Write(Rule),
    /// The same rule is there.
    Done(Rule),
}

/// May `disk` be claimed? `is_claimed`: is there a rule for it?
///
/// # Errors
/// In words: it may not.
pub fn decide(disk: &Disk, is_claimed: impl Fn(&Path) -> bool) -> Result<Decision, String> {
    let rule = rule(disk)?;
    if is_claimed(&rule.file) {
        return Ok(Decision::Done(rule));
    }
    match &disk.in_use {
        Some(what) => Err(format!(
            "{} is in use: {what}; nothing was changed. Free it first (umount, swapoff, vgchange -an), if nothing on it is \
             needed any more",
            disk.path
        )),
        None => Ok(Decision::Write(rule)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SDB: &str =
        "DEVTYPE=disk\nID_BUS=ata\nID_SERIAL=WDC_WD40-1\nID_SERIAL_SHORT=1\nID_SERIAL_RAW=x\n";

    fn disk(properties: &str) -> Disk {
        Disk {
            path: "/dev/sdb".to_owned(),
            serial: Serial::from_properties(properties),
            ..Disk::default()
        }
    }

    #[test]
    fn a_free_disk_gets_a_rule_on_its_serial_number() {
        let Ok(Decision::Write(rule)) = decide(&disk(SDB), |_| false) else {
            panic!("it is free");
        };
        assert_eq!(
            rule.file,
            Path::new("/etc/udev/rules.d/70-tanada-WDC_WD40-1.rules")
        );
        let lines: Vec<&str> = rule.text.lines().collect();
        assert_eq!(
            lines[1],
            "SUBSYSTEM==\"block\", ENV{DEVTYPE}==\"disk\", ENV{ID_SERIAL}==\"WDC_WD40-1\", GROUP=\"tanada\", MODE=\"0660\""
        );
        assert!(
            lines[0].starts_with('#') && lines.len() == 2,
            "{}",
            rule.text
        );
    }

    #[test]
    fn parts_of_an_nvme_drive_get_rules_of_their_own() {
        let text = "ID_SERIAL=Disk_42\nID_SERIAL_SHORT=42\n";
        let [first, second] = [1, 2].map(|number| {
            let disk = Disk {
                namespace: Some(number),
                ..disk(text)
            };
            rule(&disk).unwrap()
        });
        assert_ne!(first.file, second.file);
        assert!(
            second.text.contains("ATTR{nsid}==\"2\", GROUP"),
            "{}",
            second.text
        );
    }

    #[test]
    fn a_disk_that_is_claimed_stays_so_whatever_uses_it() {
        let used = Disk {
            in_use: Some("process 1 has it open".to_owned()),
            ..disk(SDB)
        };
        let there = |file: &Path| file.ends_with("70-tanada-WDC_WD40-1.rules");
        assert!(matches!(decide(&used, there), Ok(Decision::Done(_))));
        let refused = decide(&used, |_| false).unwrap_err();
        assert!(
            refused.starts_with(
                "/dev/sdb is in use: process 1 has it open; nothing was changed. Free it"
            ),
            "{refused}"
        );
    }

    #[test]
    fn a_disk_that_could_be_taken_for_another_one_is_refused() {
        let said = |properties: &str| rule(&disk(properties)).unwrap_err();
        // Udev names the model where a disk on a bus has no number.
        for none in ["", "ID_SERIAL=\n", "ID_BUS=scsi\nID_SERIAL=VMware_disk\n"] {
            assert!(said(none).contains("has no serial number"), "{none:?}");
        }
        assert!(rule(&disk("ID_SERIAL=virtio-7\n")).is_ok());
        for odd in ["a b", "a*", "a\"b", "../x", "a/b", "a$b", "é", "a\\x20b"] {
            let said = said(&format!("ID_SERIAL={odd}\nID_SERIAL_SHORT=1\n"));
            assert!(said.contains("write a rule of your own"), "{odd}: {said}");
        }
        let part = Disk {
            is_partition: true,
            ..disk(SDB)
        };
        assert!(
            rule(&part)
                .unwrap_err()
                .contains("is a partition, and a rule is for a whole disk")
        );
    }
}
