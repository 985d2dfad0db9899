//! Accounts, as S3 shows them.

use s3s::dto::Owner;

/// An account, as S3 says whose something is.
pub(super) fn owner(account: &str) -> Owner {
    Owner {
        display_name: Some(name_of(account).to_owned()),
        id: Some(account.to_owned()),
    }
}

/// An account's name, without what tells it from a later one.
pub(super) fn name_of(account: &str) -> &str {
    account.rsplit_once('.').map_or(account, |it| it.0)
}
