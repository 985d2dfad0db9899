//! On which data thread each export lives, of a configuration that was read anew. Pure.
//!
//! Always true: threads are those of the start: an export lives where its device, hybrid or cluster does, and an address
//! with all its exports on one thread.

use config::ExportConfig;

use crate::daemon::thread::command::Things;

/// Does what an export shows live there?
fn lives_on(thread: &Things, export: &ExportConfig) -> bool {
    match &export.volume {
        Some(_) => thread.cluster,
        None => thread.devices.contains(&export.device) || thread.volumes.contains(&export.device),
    }
}

/// The exports of each thread. `before`: those there are.
///
/// # Errors
/// In words: what a restart alone can do.
pub fn by_thread(
    before: &[ExportConfig],
    after: &[ExportConfig],
    threads: &[&Things],
) -> Result<Vec<Vec<ExportConfig>>, String> {
    let home = |export: &ExportConfig| threads.iter().position(|thread| lives_on(thread, export));
    let mut all = vec![Vec::new(); threads.len()];
    for export in after {
        let Some(at) = home(export) else {
            let (name, device) = (&export.name, &export.device);
            return Err(format!(
                "export {name} shows {device}, which is opened at a restart"
            ));
        };
        for other in before.iter().chain(after) {
            let mut shared = other.nbd.iter().chain(&other.vhost_user);
            let here = |address: &&_| {
                export.nbd.contains(address) || export.vhost_user.as_ref() == Some(address)
            };
            if let Some(address) = shared.find(here)
                && home(other) != Some(at)
            {
                let (one, other) = (&export.device, &other.device);
                return Err(format!(
                    "{address} is an address of {other} and of {one}, which share a thread after a restart alone"
                ));
            }
        }
        all[at].push(export.clone());
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exports(of: &[(&str, &str)]) -> Vec<ExportConfig> {
        let mut text = String::new();
        for name in ["a", "b", "c"] {
            text.push_str(&format!(
                "[[device]]\nname = \"{name}\"\nmemory = true\nsize = \"8MiB\"\n"
            ));
        }
        for (device, at) in of {
            text.push_str(&format!(
                "[[export]]\ndevice = \"{device}\"\nnbd = \"unix:{at}\"\n"
            ));
        }
        config::read(&text, "test", None).unwrap().exports
    }

    fn names(before: &[(&str, &str)], after: &[(&str, &str)]) -> Result<Vec<Vec<String>>, String> {
        let threads = [vec!["a", "c"], vec!["b"]].map(|devices| Things {
            devices: devices.into_iter().map(str::to_owned).collect(),
            ..Things::default()
        });
        let threads = [&threads[0], &threads[1]];
        let split = by_thread(&exports(before), &exports(after), &threads)?;
        let names = |all: Vec<ExportConfig>| all.into_iter().map(|it| it.name).collect();
        Ok(split.into_iter().map(names).collect())
    }

    #[test]
    fn an_export_lives_where_its_device_does() {
        let split = names(&[], &[("a", "x"), ("b", "y"), ("c", "x")]).unwrap();
        assert_eq!(split, [vec!["a", "c"], vec!["b"]]);
        assert_eq!(names(&[("a", "x")], &[]).unwrap(), [vec![""; 0], vec![]]);
    }

    #[test]
    fn an_address_does_not_move_between_threads() {
        let shared = names(&[], &[("a", "x"), ("b", "x")]).unwrap_err();
        assert!(shared.starts_with("unix:x is an address of"), "{shared}");
        let moved = names(&[("a", "x")], &[("b", "x")]).unwrap_err();
        assert!(
            moved.starts_with("unix:x is an address of a and of b"),
            "{moved}"
        );
        assert!(names(&[("a", "x")], &[("c", "x"), ("b", "y")]).is_ok());
    }

    #[test]
    fn what_is_not_open_waits_for_a_restart() {
        let mut new = exports(&[("a", "x")]);
        new[0].device = "z".to_owned();
        let why = by_thread(&[], &new, &[&Things::default()]).unwrap_err();
        assert_eq!(why, "export a shows z, which is opened at a restart");
    }
}
