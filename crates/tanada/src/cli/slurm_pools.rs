//! What jobs may book together, as Slurm's pool, and what they have booked.
//!
//! ```text
//! settings: a rate | a standing booking's rates -> pools.json, whole or not -> slurm_bb_pools
//! ```

use std::fs;
use std::path::Path;

use anyhow::{Context, anyhow};
use policy::share::BytesPerSec;

use super::reservation_service::{Service, Which};
use super::reservation_words::rates;
use super::slurm_book::is_live;
use super::slurm_settings::Settings;

/// Slurm counts in whole megabytes per second.
const GRANULE: u64 = 1_000_000;

/// The pool as Slurm reads it.
///
/// # Errors
/// The daemon does not answer.
pub fn pools(settings: &Settings) -> anyhow::Result<String> {
    let rate = match (
        settings.pool_rate().map_err(|why| anyhow!(why))?,
        settings.pool.standing(),
    ) {
        (_, Some(name)) => of_booking(&settings.service()?, name)?,
        (Some(rate), None) => rate,
        (None, None) => {
            return Err(anyhow!(
                "the settings name neither rate, reservation nor allotment in [pool]: without a pool Slurm counts nothing"
            ));
        }
    };
    Ok(json(&settings.pool.name, rate))
}

/// A booking that is not there has nothing to give.
fn of_booking(service: &Service, name: &str) -> anyhow::Result<u64> {
    let found = service.get(Which {
        id: name,
        account: None,
    })?;
    let live = found.filter(is_live);
    Ok(live.map_or(0, |one| {
        one.promised_now.read_bytes_per_second + one.promised_now.write_bytes_per_second
    }))
}

fn json(pool: &str, rate: u64) -> String {
    let pools = serde_json::json!({
        "pools": [{ "id": pool, "quantity": rate / GRANULE, "granularity": GRANULE }]
    });
    format!("{pools}\n")
}

/// Puts the pool into a file, which is never seen half written.
///
/// # Errors
/// The system's.
pub fn write(text: &str, file: &Path) -> anyhow::Result<()> {
    let said = || format!("cannot write {}", file.display());
    let new = file.with_extension("new");
    fs::write(&new, text).with_context(said)?;
    fs::rename(&new, file).with_context(said)
}

/// What jobs of this cluster have booked: sums alone.
///
/// # Errors
/// The daemon does not answer.
pub fn status(settings: &Settings) -> anyhow::Result<String> {
    let all = settings.service()?.list()?;
    let ours = all
        .iter()
        .filter(|one| is_live(one) && settings.job_of(&one.name).is_some());
    let (mut jobs, mut read, mut write) = (0, 0, 0);
    for one in ours {
        jobs += 1;
        read += one.read_bytes_per_second;
        write += one.write_bytes_per_second;
    }
    let booked = match jobs {
        0 => "no job has anything booked".to_owned(),
        1 => format!("1 job has booked {}", rates(read, write)),
        jobs => format!("{jobs} jobs have booked {}", rates(read, write)),
    };
    let pool = match settings.pool_rate() {
        Ok(Some(rate)) if settings.pool.standing().is_none() => {
            format!(
                "; the pool {} has {}",
                settings.pool.name,
                BytesPerSec(rate)
            )
        }
        _ => String::new(),
    };
    Ok(format!("cluster {}: {booked}{pool}\n", settings.cluster))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_is_written_as_slurm_reads_it() {
        let read: serde_json::Value = serde_json::from_str(&json("tanada", 600_500_000)).unwrap();
        let pool = &read["pools"][0];
        assert_eq!(pool["id"], "tanada");
        assert_eq!(
            (&pool["quantity"], &pool["granularity"]),
            (&600.into(), &1_000_000.into())
        );
    }
}
