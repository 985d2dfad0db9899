//! A meta store that knows of no volume beside stores that have data of some: it is not the one they were made with.
//!
//! Always true: nothing is changed here. A cluster that ever made a volume by this meta store is not looked at.

use super::ClusterError;
use super::node::Node;
use crate::image::tree::Numbers;
use crate::replica::connect::ConnectionError;

/// The fence of looks at a store; nothing is fenced by it.
const FENCE: &str = "g/damage";

/// What is wrong, in words; `None`: this meta store has made volumes, or this node's stores have nothing of any.
///
/// # Errors
/// [`ClusterError::Meta`], [`ClusterError::Record`].
pub(super) async fn forgotten_volumes(node: &Node) -> Result<Option<String>, ClusterError> {
    let made = node.meta.images.numbers().await?.record.volume > Numbers::first().volume;
    if made || !node.meta.volumes().await?.is_empty() {
        return Ok(None);
    }
    let stores = node.stores.all().await?;
    let mut having = Vec::new();
    for (record, _) in stores.values() {
        let (connector, local) = node.stores.way(record);
        if !local {
            continue;
        }
        let asked = async {
            let connection = connector.open(FENCE, 1).await?;
            let listed = connection.list("v/", None).await?;
            Ok::<_, ConnectionError>(!listed.objects.is_empty())
        };
        match env::timeout(node.settings.timeout, asked).await {
            Ok(Ok(true)) => having.push(record.name.to_string()),
            Ok(Ok(false)) => {}
            Ok(Err(error)) => {
                tracing::debug!(store = %record.name, %error, "what it has is not known");
            }
            Err(late) => {
                tracing::debug!(store = %record.name, %late, "what it has is not known")
            }
        }
    }
    Ok((!having.is_empty()).then(|| {
        format!(
            "the meta store knows of no volume, but there are data of volumes on {}: it is new, or another one than they were \
             made with; stop this node, put the meta store from before or its backup in its place, and make no volume until then",
            having.join(", ")
        )
    }))
}
