//! A gateway on a disk that another node may take over: does this one still have it?
//!
//! Always true: what was known of the disk when this was asked holds, if the answer is yes.

use std::time::Duration;

use s3s::{S3Result, s3_error};

use super::failure::unstored;
use crate::data::Data;

/// How long a request waits until that is known.
const WAIT: Duration = Duration::from_secs(30);

/// Can no other node have taken over what is answered from here?
pub(super) async fn check_ours(data: &Data) -> S3Result<()> {
    let asked = tokio::time::timeout(WAIT, data.still_ours()).await;
    let asked = asked.map_err(|_| {
        s3_error!(
            SlowDown,
            "it is not known whether another node serves this gateway now: the cluster's meta store is silent; come again later"
        )
    })?;
    asked.map_err(unstored)
}
