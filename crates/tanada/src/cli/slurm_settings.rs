//! What `tanada slurm` is told once: `/etc/tanada/slurm.toml`.
//!
//! ```text
//! file -> cluster, daemon, whose bookings are, where notes go, the pool, the agent's socket
//! ```
//!
//! Every user may read it: it names files with secrets and has none.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, anyhow};
use config::read_span;
use policy::share::BytesPerSec;
use report::terminal::Usage;
use serde::Deserialize;

use super::client::{Client, Target};
use super::reservation_service::{Service, check_account};

/// Where it is, unless said otherwise.
pub const SETTINGS_FILE: &str = "/etc/tanada/slurm.toml";
/// A name has 64 characters: `slurm-`, the cluster's, `-`, and ten digits.
const CLUSTER_MAX: usize = 46;

/// The settings of one cluster's Slurm.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// `ClusterName` of slurm.conf.
    pub cluster: String,
    /// The daemon's admin API: `HOST:PORT` or `unix:/path`; absent: as for other commands.
    admin: Option<String>,
    /// The file with the token to show there.
    token_file: Option<PathBuf>,
    /// Whose a job's booking is: `{user}` and `{account}` are those of the job; empty: the caller's own.
    #[serde(default = "of_user")]
    pub account: String,
    /// Notes about jobs, kept by the users that run the hooks.
    #[serde(default = "default_state")]
    pub state: PathBuf,
    /// How long a hook tries again where the daemon does not answer.
    #[serde(default = "default_wait")]
    wait: String,
    /// Where `squeue` and `scontrol` are, if PATH does not say.
    pub slurm_bin: Option<PathBuf>,
    /// Jobs are booked by Prolog, not by burst buffers: bookings of jobs that wait are left alone.
    #[serde(default)]
    pub prolog: bool,
    #[serde(default)]
    pub pool: Pool,
    #[serde(default)]
    pub agent: Agent,
}

/// What jobs are counted against.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Pool {
    pub name: String,
    /// So many bytes per second, a text such as `600MB/s`.
    pub rate: Option<String>,
    /// Or as much as this standing booking has.
    pub reservation: Option<String>,
    /// Or as much as this allotment has, inside of which jobs are booked. It is of the account that jobs are booked for.
    pub allotment: Option<String>,
    /// Where `tanada slurm pools` writes it.
    pub file: PathBuf,
}

impl Default for Pool {
    fn default() -> Pool {
        Pool {
            name: "tanada".to_owned(),
            rate: None,
            reservation: None,
            allotment: None,
            file: PathBuf::from("/var/spool/tanada/slurm/pools.json"),
        }
    }
}

impl Pool {
    /// The standing booking, or the allotment, whose rates count.
    pub fn standing(&self) -> Option<&String> {
        self.allotment.as_ref().or(self.reservation.as_ref())
    }
}

/// The node's socket where a job has its capability.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Agent {
    pub listen: PathBuf,
    /// The account of the agent's token: it may have the capabilities of jobs' bookings, and of no other. Absent: the agent
    /// has a token of the account that the bookings are of.
    pub account: Option<String>,
    /// Tasks have their capability in a file in this folder, and `@FILE` in their environment; absent: in the environment.
    pub folder: Option<PathBuf>,
}

impl Default for Agent {
    fn default() -> Agent {
        Agent {
            listen: PathBuf::from("/run/tanada/slurm.sock"),
            account: None,
            folder: None,
        }
    }
}

fn of_user() -> String {
    "{user}".to_owned()
}

fn default_state() -> PathBuf {
    PathBuf::from("/var/spool/tanada/slurm")
}

fn default_wait() -> String {
    "2m".to_owned()
}

impl Settings {
    /// Reads and checks them.
    ///
    /// # Errors
    /// The file cannot be read, or something in it makes no sense.
    pub fn read(path: &Path) -> anyhow::Result<Settings> {
        let shown = path.display();
        let text = std::fs::read_to_string(path).with_context(|| {
            format!(
                "cannot read {shown}; `tanada slurm install` makes it, --settings says where it is"
            )
        })?;
        Settings::parse(&text).map_err(|why| Usage(format!("{shown}: {why}")).into())
    }

    fn parse(text: &str) -> Result<Settings, String> {
        let settings: Settings = toml::from_str(text).map_err(|error| error.to_string())?;
        config::check_name(&settings.cluster)?;
        if settings.cluster.len() > CLUSTER_MAX {
            return Err(format!(
                "cluster has {} characters, and {CLUSTER_MAX} are the most",
                settings.cluster.len()
            ));
        }
        config::check_name(&settings.pool.name)?;
        settings.pool_rate()?;
        if let Some(name) = &settings.pool.reservation {
            config::check_name(name)?;
        }
        if let Some(name) = &settings.pool.allotment {
            config::check_name(name)?;
            if settings.account.contains('{') {
                return Err(format!(
                    "jobs that are booked inside the allotment {name} are of its account, and account = {:?} differs by job; \
                     write the allotment's account",
                    settings.account
                ));
            }
        }
        if let Some(account) = &settings.agent.account {
            check_account(account)?;
        }
        settings.account_of("user", "account")?;
        read_span(&settings.wait)?;
        settings.target()?;
        Ok(settings)
    }

    fn target(&self) -> Result<Target, String> {
        match &self.admin {
            Some(admin) => admin.parse(),
            None => match std::env::var("TANADA_ADMIN") {
                Ok(admin) => admin.parse(),
                Err(_) => Ok(Target::default()),
            },
        }
    }

    /// The daemon's reservation service.
    pub fn service(&self) -> anyhow::Result<Service> {
        let target = self.target().map_err(|why| anyhow!(why))?;
        let client = Client::new(target)?.with_token_file(self.token_file.clone());
        Ok(Service::new(client))
    }

    /// How long a daemon that does not answer is asked again.
    pub fn wait(&self) -> Duration {
        let wait = read_span(&self.wait).unwrap_or_default();
        Duration::from_nanos(wait.0)
    }

    /// What the pool has by the settings; `None`: not said.
    ///
    /// # Errors
    /// What is no rate.
    pub fn pool_rate(&self) -> Result<Option<u64>, String> {
        let rate = self
            .pool
            .rate
            .as_ref()
            .map(|rate| rate.parse::<BytesPerSec>());
        let rate = rate.transpose().map_err(|error| error.to_string())?;
        Ok(rate.map(|rate| rate.0))
    }

    /// The name of a job's booking.
    pub fn booking(&self, job: u32) -> String {
        format!("slurm-{}-{job}", self.cluster)
    }

    /// Where a job of this user has its capability, if it has it in a file.
    pub fn capability_file(&self, job: u32, user: u32) -> Option<PathBuf> {
        let folder = self.agent.folder.as_ref()?;
        Some(folder.join(format!("tanada-{}-{job}.{user}", self.cluster)))
    }

    /// The job of a booking with this name; `None`: it is none of this cluster's.
    pub fn job_of(&self, booking: &str) -> Option<u32> {
        let number = booking
            .strip_prefix("slurm-")?
            .strip_prefix(&self.cluster)?;
        let job: u32 = number.strip_prefix('-')?.parse().ok()?;
        // `+7` and `007` are numbers, and not what a booking is called.
        (self.booking(job) == booking).then_some(job)
    }

    /// Whose booking the job of this user, and of this account of Slurm, has; `None`: the caller's own.
    ///
    /// # Errors
    /// What is no account.
    pub fn account_of(&self, user: &str, account: &str) -> Result<Option<String>, String> {
        if self.account.is_empty() {
            return Ok(None);
        }
        let whose = self
            .account
            .replace("{user}", user)
            .replace("{account}", account);
        check_account(&whose)?;
        Ok(Some(whose))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_booking_is_named_by_cluster_and_job() {
        let settings = Settings::parse("cluster = \"c1\"").unwrap();
        assert_eq!(settings.booking(7), "slurm-c1-7");
        assert_eq!(settings.job_of("slurm-c1-7"), Some(7));
        for other in [
            "slurm-c1-",
            "slurm-c1-07",
            "slurm-c1-+7",
            "slurm-c2-7",
            "slurm-c1-7-8",
            "nightly",
            "slurm-c1-x",
        ] {
            assert_eq!(settings.job_of(other), None, "{other}");
        }
    }

    #[test]
    fn a_job_s_booking_is_of_its_user_s_account() {
        let of = |account: &str| {
            let settings =
                Settings::parse(&format!("cluster = \"c1\"\naccount = \"{account}\"")).unwrap();
            settings.account_of("ann", "astro").unwrap()
        };
        assert_eq!(of("{user}").as_deref(), Some("ann"));
        assert_eq!(of("{account}/{user}").as_deref(), Some("astro/ann"));
        assert_eq!(of("hpc").as_deref(), Some("hpc"));
        assert_eq!(of(""), None);
        let settings = Settings::parse("cluster = \"c1\"").unwrap();
        assert!(
            settings
                .account_of("a&b", "")
                .unwrap_err()
                .contains("is not a name")
        );
    }

    #[test]
    fn settings_that_make_no_sense_are_refused() {
        for (text, part) in [
            ("", "missing field `cluster`"),
            ("cluster = \"a b\"", "is not a name"),
            ("cluster = \"c\"\ncolour = 1", "unknown field `colour`"),
            ("cluster = \"c\"\nwait = \"soon\"", "is not a span"),
            ("cluster = \"c\"\nadmin = \"nowhere\"", "127.0.0.1"),
            ("cluster = \"c\"\n[pool]\nrate = \"600\"", "is no rate"),
            (
                "cluster = \"c\"\n[pool]\nallotment = \"pool\"",
                "are of its account",
            ),
        ] {
            let why = Settings::parse(text).unwrap_err();
            assert!(why.contains(part), "{text}: {why}");
        }
    }

    #[test]
    fn the_settings_that_are_installed_are_read() {
        let text = include_str!("../../../../packaging/slurm/slurm.toml");
        let settings = Settings::parse(&text.replace("@CLUSTER@", "c1")).unwrap();
        assert_eq!(
            (settings.cluster.as_str(), settings.account.as_str()),
            ("c1", "{user}")
        );
        assert_eq!(settings.wait(), Duration::from_secs(120));
        assert_eq!(settings.pool_rate(), Ok(Some(600_000_000)));
    }
}
