//! Names that commands take: a volume with its kind, a snapshot with its volume.
//!
//! ```text
//! vm1 | hybrid:vm1 | virtual:vm1 -> VolumeName      vm1@monday -> SnapshotName      vm1 or vm1@monday -> At
//! ```

use std::fmt;
use std::str::FromStr;

use vdisk::record::Name;

/// What a volume is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A slow and a fast device of one daemon.
    Hybrid,
    /// Thin, with copies in several stores of a cluster.
    Virtual,
}

impl Kind {
    pub fn word(self) -> &'static str {
        match self {
            Kind::Hybrid => "hybrid",
            Kind::Virtual => "virtual",
        }
    }
}

/// A volume: its name, and its kind where there are two of that name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeName {
    pub kind: Option<Kind>,
    pub name: String,
}

impl FromStr for VolumeName {
    type Err = String;
    fn from_str(text: &str) -> Result<VolumeName, String> {
        let (kind, name) = match text.split_once(':') {
            None => (None, text),
            Some(("hybrid", name)) => (Some(Kind::Hybrid), name),
            Some(("virtual", name)) => (Some(Kind::Virtual), name),
            Some((other, _)) => {
                return Err(format!(
                    "'{other}' is no kind of volume; write hybrid:NAME or virtual:NAME"
                ));
            }
        };
        config::check_name(name)?;
        Ok(VolumeName {
            kind,
            name: name.to_owned(),
        })
    }
}

impl fmt::Display for VolumeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            Some(kind) => write!(f, "{}:{}", kind.word(), self.name),
            None => f.write_str(&self.name),
        }
    }
}

/// The name of a virtual disk: `vm1`, or `virtual:vm1`.
pub fn a_disk(text: &str) -> Result<Name, String> {
    let name = match text.split_once(':') {
        None => text,
        Some(("virtual", name)) => name,
        Some(("hybrid", _)) => return Err("this is of virtual disks: name one".to_owned()),
        Some((other, _)) => {
            return Err(format!(
                "'{other}' is no kind of volume; write NAME or virtual:NAME"
            ));
        }
    };
    name.parse::<Name>().map_err(|error| error.to_string())
}

/// `VOLUME@SNAPSHOT`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotName {
    pub volume: Name,
    pub snapshot: Name,
}

impl FromStr for SnapshotName {
    type Err = String;
    fn from_str(text: &str) -> Result<SnapshotName, String> {
        let at: At = text.parse()?;
        let missing = || {
            format!(
                "name a snapshot, such as {text}@monday; `tanada snapshot list {text}` lists them"
            )
        };
        Ok(SnapshotName {
            volume: at.volume,
            snapshot: at.snapshot.ok_or_else(missing)?,
        })
    }
}

impl SnapshotName {
    /// Its path in the admin API.
    pub fn path(&self, rest: &str) -> String {
        format!(
            "/v1/cluster/volumes/{}/snapshots/{}{rest}",
            self.volume, self.snapshot
        )
    }
}

impl fmt::Display for SnapshotName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.volume, self.snapshot)
    }
}

/// `VOLUME` or `VOLUME@SNAPSHOT`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct At {
    pub volume: Name,
    pub snapshot: Option<Name>,
}

impl FromStr for At {
    type Err = String;

    fn from_str(text: &str) -> Result<At, String> {
        let name = |text: &str| text.parse::<Name>().map_err(|error| error.to_string());
        let (volume, snapshot) = match text.split_once('@') {
            Some((volume, snapshot)) => (volume, Some(name(snapshot)?)),
            None => (text, None),
        };
        Ok(At {
            volume: a_disk(volume)?,
            snapshot,
        })
    }
}

impl At {
    /// The snapshot, if one is named.
    pub fn snapshot(&self) -> Option<SnapshotName> {
        let snapshot = self.snapshot.clone()?;
        Some(SnapshotName {
            volume: self.volume.clone(),
            snapshot,
        })
    }
}

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.snapshot {
            Some(snapshot) => write!(f, "{}@{snapshot}", self.volume),
            None => write!(f, "{}", self.volume),
        }
    }
}

/// What `tanada volume delete` names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToDelete {
    Volume(VolumeName),
    /// As `tanada volume rm` took it.
    Snapshot(SnapshotName),
}

impl FromStr for ToDelete {
    type Err = String;
    fn from_str(text: &str) -> Result<ToDelete, String> {
        match text.contains('@') {
            true => text.parse().map(ToDelete::Snapshot),
            false => text.parse().map(ToDelete::Volume),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_is_named_behind_its_volume() {
        let at: At = "vm1@monday".parse().unwrap();
        assert_eq!(
            (at.volume.as_str(), at.to_string().as_str()),
            ("vm1", "vm1@monday")
        );
        assert_eq!("vm1".parse::<At>().unwrap().snapshot(), None);
        assert_eq!("virtual:vm1@monday".parse::<At>().unwrap(), at);
        assert!("hybrid:vm1@monday".parse::<At>().is_err());
        assert!("disk:vm1".parse::<At>().is_err());
        assert!("vm1@".parse::<At>().is_err() && "vm1@a@b".parse::<At>().is_err());
        let refused = "vm1".parse::<SnapshotName>().unwrap_err();
        assert!(refused.contains("vm1@monday"), "{refused}");
        let snapshot = at.snapshot().unwrap();
        assert_eq!(
            snapshot.path("/clone"),
            "/v1/cluster/volumes/vm1/snapshots/monday/clone"
        );
    }

    #[test]
    fn a_volume_says_its_kind_where_two_have_its_name() {
        let of = |text: &str| text.parse::<VolumeName>();
        assert_eq!(of("vm1").unwrap().kind, None);
        assert_eq!(of("hybrid:vm1").unwrap().kind, Some(Kind::Hybrid));
        let disk = of("virtual:vm1").unwrap();
        assert_eq!(disk.to_string(), "virtual:vm1");
        for odd in ["", "disk:vm1", "virtual:", "../etc", "hybrid:a:b"] {
            assert!(of(odd).is_err(), "{odd}");
        }
    }
}
