//! The cluster's level on a node: may this program take part, and which level has the data directory seen?

use std::path::Path;
use std::rc::Rc;

use anyhow::anyhow;
use vdisk::cluster::ClusterError;
use vdisk::cluster::levels::Levels;

use crate::daemon::common::level_file;

/// Refuses a cluster whose level this program cannot do, as far as the meta store is there.
///
/// # Errors
/// In words.
pub(super) async fn check(levels: &Levels) -> anyhow::Result<()> {
    match levels.check().await {
        Ok(_) | Err(ClusterError::Meta(_)) => Ok(()),
        Err(error) => Err(anyhow!("[cluster]: {error}")),
    }
}

/// From here on the file has the cluster's level, as long as the task lasts.
pub(super) fn follow(levels: &Rc<Levels>, file: &Path) -> env::CancelOnDrop<()> {
    let (levels, file) = (Rc::clone(levels), file.to_owned());
    env::cancel_scope(env::spawn(async move {
        let hear = |level| {
            if let Err(error) = level_file::note(&file, level) {
                tracing::warn!(%error, "cannot write {}", file.display());
            }
        };
        match levels.follow(hear).await {}
    }))
}
