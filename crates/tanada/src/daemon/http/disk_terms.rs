//! What is set on a virtual disk, as it is asked for: texts and numbers, checked.
//!
//! Pure: nothing is asked of the cluster.

use config::export;
use policy::share::cap::Caps;
use vdisk::cluster::set::{CapChange, Setting};
use vdisk::names::RESERVED_HOLDER;
use vdisk::record::{CapRecord, Fairness, Name, OnMetaLoss};

use super::control::{Failure, unprocessable};
use crate::api::cluster::DiskChange;

/// No holder's name is longer.
const HOLDER_MAX: usize = 64;

impl DiskChange {
    /// As the cluster takes it.
    pub(super) fn setting(&self) -> Result<Setting, Failure> {
        let class = self.priority.as_deref().map(export::priority).transpose();
        let holder = self.holder.clone();
        let holder = holder.map(|it| Some(it).filter(|it| !it.is_empty()));
        check_holder(holder.iter().flatten().next())?;
        let caps = self.caps()?;
        Ok(Setting {
            priority: class
                .map_err(|why| unprocessable(why, "leave it out where it is to stay"))?,
            fairness: self.fairness.map(fairness).transpose()?,
            min_isr: self.min_copies,
            holder,
            on_meta_loss: on_meta_loss(self.on_meta_loss.as_deref())?,
            caps,
        })
    }

    fn caps(&self) -> Result<CapChange, Failure> {
        cap_change([
            self.max_read.as_deref(),
            self.max_write.as_deref(),
            self.max_read_iops.as_deref(),
            self.max_write_iops.as_deref(),
        ])
    }
}

/// A change of caps, from texts in the order of [`config::caps::KEYS`].
pub(super) fn cap_change(texts: [Option<&str>; 4]) -> Result<CapChange, Failure> {
    let new = config::caps::change(Caps::default(), texts).map_err(|(key, what)| {
        unprocessable(format!("{key}: {what}"), "leave it out where it is to stay")
    })?;
    let new = CapRecord::from(new);
    // What is named and is no number: off.
    let set = |text: Option<&str>, new: Option<u64>| text.map(|_| new.unwrap_or(0));
    Ok(CapChange {
        read: set(texts[0], new.read),
        write: set(texts[1], new.write),
        read_iops: set(texts[2], new.read_iops),
        write_iops: set(texts[3], new.write_iops),
    })
}

pub(super) fn called(text: &str) -> Result<Name, Failure> {
    text.parse().map_err(|error: vdisk::record::BadName| {
        unprocessable(error.to_string(), "choose another name")
    })
}

pub(super) fn on_meta_loss(text: Option<&str>) -> Result<Option<OnMetaLoss>, Failure> {
    let parsed = text.map(str::parse).transpose();
    parsed.map_err(|why: String| unprocessable(why, "leave it out where it is to stay"))
}

pub(super) fn check_holder(holder: Option<&String>) -> Result<(), Failure> {
    match holder {
        Some(holder) if holder.is_empty() || holder.len() > HOLDER_MAX => Err(unprocessable(
            format!("a holder has 1 to {HOLDER_MAX} bytes"),
            "write it as in `tanada reservation create --holder`",
        )),
        Some(holder) if holder.starts_with(RESERVED_HOLDER) => Err(unprocessable(
            format!("holders that begin with {RESERVED_HOLDER} are those of other volumes"),
            "choose another; a volume needs none to come under its own reservation",
        )),
        _ => Ok(()),
    }
}

pub(super) fn fairness(number: f64) -> Result<Fairness, Failure> {
    Fairness::try_from(number).map_err(|error| {
        unprocessable(
            error.to_string(),
            "leave it out where no holder is to be kept apart",
        )
    })
}
