//! `tanada slurm install`: the files of a cluster's Slurm, with this cluster's settings in them.
//!
//! ```text
//! settings (made, if there are none) -> beside slurm.conf: burst_buffer.lua and scripts; units of systemd, if asked for
//!                                    -> what is left to do, in words
//! ```

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::Args;

use super::slurm_jobs::Slurm;
use super::slurm_settings::Settings;

const LUA: &str = include_str!("../../../../packaging/slurm/burst_buffer.lua");
const SETTINGS: &str = include_str!("../../../../packaging/slurm/slurm.toml");
/// Each minute, beside the controller.
const TIMER: [(&str, &str); 2] = [
    (
        "tanada-slurm.service",
        include_str!("../../../../packaging/slurm/tanada-slurm.service"),
    ),
    (
        "tanada-slurm.timer",
        include_str!("../../../../packaging/slurm/tanada-slurm.timer"),
    ),
];
/// On compute nodes.
const AGENT: (&str, &str) = (
    "tanada-slurm-agent.service",
    include_str!("../../../../packaging/slurm/tanada-slurm-agent.service"),
);
/// What slurm.conf names: Slurm runs a file, and gives it no arguments.
const SCRIPTS: [&str; 3] = ["prolog", "epilog", "task-prolog"];
const SCRIPT: &str = "#!/bin/sh\nexec \"@PROGRAM@\" slurm --settings \"@SETTINGS@\" @HOOK@\n";

#[derive(Debug, Args)]
pub struct Install {
    /// The folder of slurm.conf.
    #[arg(long, default_value = "/etc/slurm", value_name = "DIR")]
    to: PathBuf,
    /// ClusterName of slurm.conf [default: what scontrol says]
    #[arg(long, value_name = "NAME")]
    cluster: Option<String>,
    /// Write units of systemd there, too: a timer for the controller's machine, an agent for compute nodes.
    #[arg(long, value_name = "DIR")]
    units: Option<PathBuf>,
    /// SlurmUser of slurm.conf, whom the timer runs as.
    #[arg(long, default_value = "slurm", value_name = "NAME")]
    user: String,
}

/// Writes the files; what is to be done now, in words.
///
/// # Errors
/// A file cannot be written, or the settings make no sense.
pub fn install(arguments: &Install, file: &Path) -> anyhow::Result<String> {
    let mut said = String::new();
    if !file.exists() {
        make_settings(arguments, file)?;
        said.push_str(&format!("made {}: look through it\n", file.display()));
    }
    let settings = Settings::read(file)?;
    if let Some(cluster) = arguments
        .cluster
        .as_ref()
        .filter(|it| **it != settings.cluster)
    {
        bail!(
            "{} is for the cluster {}, not for {cluster}",
            file.display(),
            settings.cluster
        );
    }
    let marks = Marks {
        settings: &settings,
        program: std::env::current_exe().context("where is this program?")?,
        file: fs::canonicalize(file)?,
        user: &arguments.user,
    };
    let mut put = |folder: &Path, name: &str, text: &str| -> anyhow::Result<()> {
        let path = folder.join(name);
        write(&path, &marks.filled(text)?)?;
        said.push_str(&format!("made {}\n", path.display()));
        Ok(())
    };
    put(&arguments.to, "burst_buffer.lua", LUA)?;
    for hook in SCRIPTS {
        let name = format!("tanada-{hook}");
        put(&arguments.to, &name, &SCRIPT.replace("@HOOK@", hook))?;
        let script = arguments.to.join(name);
        fs::set_permissions(script, fs::Permissions::from_mode(0o755))?;
    }
    if let Some(units) = &arguments.units {
        for (name, text) in TIMER.into_iter().chain([AGENT]) {
            put(units, name, text)?;
        }
    }
    Ok(said + &left_to_do(&arguments.to, settings.prolog))
}

fn left_to_do(to: &Path, prolog: bool) -> String {
    let to = to.display();
    let lines = match prolog {
        true => {
            format!("Prolog={to}/tanada-prolog\n  Epilog={to}/tanada-epilog\n  PrologFlags=Alloc")
        }
        false => "BurstBufferType=burst_buffer/lua".to_owned(),
    };
    format!(
        "next, in slurm.conf:\n  {lines}\n  TaskProlog={to}/tanada-task-prolog\nand, each minute, as SlurmUser: `tanada slurm pools \
         --write` and `tanada slurm reap`;\non each compute node: `tanada slurm agent` (--units writes units of systemd for \
         both)\n"
    )
}

fn make_settings(arguments: &Install, file: &Path) -> anyhow::Result<()> {
    let cluster = match &arguments.cluster {
        Some(cluster) => cluster.clone(),
        None => Slurm::new(None).cluster().context("say --cluster")?.name,
    };
    if let Some(folder) = file.parent() {
        fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    }
    write(file, &SETTINGS.replace("@CLUSTER@", &cluster))
}

/// What stands between two `@` in the files.
struct Marks<'a> {
    settings: &'a Settings,
    program: PathBuf,
    file: PathBuf,
    user: &'a str,
}

impl Marks<'_> {
    fn filled(&self, text: &str) -> anyhow::Result<String> {
        let mut text = text.to_owned();
        for (mark, value) in [
            ("@PROGRAM@", self.program.to_str()),
            ("@SETTINGS@", self.file.to_str()),
            ("@CLUSTER@", Some(self.settings.cluster.as_str())),
            ("@POOL@", Some(self.settings.pool.name.as_str())),
            ("@POOLS@", self.settings.pool.file.to_str()),
            ("@USER@", Some(self.user)),
        ] {
            // It becomes a string of Lua, of a shell, of systemd.
            let good = |c: char| !c.is_control() && !"\"\\$`%".contains(c);
            match value.filter(|value| value.chars().all(good)) {
                Some(value) => text = text.replace(mark, value),
                None => bail!(
                    "{} is a path with one of \" \\ $ ` %, or no text; choose another",
                    mark.trim_matches('@')
                ),
            }
        }
        Ok(text)
    }
}

fn write(file: &Path, text: &str) -> anyhow::Result<()> {
    let said = || format!("cannot write {}", file.display());
    let new = file.with_extension("new");
    fs::write(&new, text).with_context(said)?;
    fs::rename(&new, file).with_context(said)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_have_this_cluster_s_settings_and_no_mark_is_left() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("etc/slurm.toml");
        let install_to = |cluster: &str| {
            let arguments = Install {
                to: dir.path().to_owned(),
                cluster: Some(cluster.to_owned()),
                units: Some(dir.path().to_owned()),
                user: "slurm".to_owned(),
            };
            install(&arguments, &file)
        };
        let said = install_to("c1").unwrap();
        assert!(said.contains("BurstBufferType"), "{said}");
        let read = |name: &str| fs::read_to_string(dir.path().join(name)).unwrap();
        let lua = read("burst_buffer.lua");
        assert!(lua.contains("cluster = \"c1\"") && lua.contains("pool = \"tanada\""));
        assert!(read("tanada-task-prolog").ends_with("task-prolog\n"));
        assert!(read("tanada-slurm.service").contains("User=slurm"));
        for made in [
            "burst_buffer.lua",
            "tanada-prolog",
            "tanada-slurm.service",
            "tanada-slurm-agent.service",
        ] {
            assert!(!read(made).contains('@'), "{made}");
        }
        // Again, after an upgrade: the settings stay.
        assert!(!install_to("c1").unwrap().contains("look through"));
        let other = install_to("c2").unwrap_err().to_string();
        assert!(other.contains("not for c2"), "{other}");
    }

    #[test]
    fn a_path_that_would_end_a_string_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("slurm.toml");
        fs::write(&file, "cluster = \"c1\"").unwrap();
        let settings = Settings::read(&file).unwrap();
        let marks = Marks {
            settings: &settings,
            program: PathBuf::from("/a\"b"),
            file,
            user: "slurm",
        };
        let odd = marks.filled("@PROGRAM@").unwrap_err().to_string();
        assert!(odd.contains("PROGRAM"), "{odd}");
    }
}
