//! Whose the objects of a bucket are that other accounts put: the rules of S3's ownership controls.
//!
//! ```text
//! BucketOwnerEnforced   the bucket's owner's, and no list counts
//! BucketOwnerPreferred  the bucket's owner's, where the request says bucket-owner-full-control
//! ObjectWriter, or none the account's that puts it
//! ```
//!
//! Pure.

use hyper::HeaderMap;
use s3s::dto::ObjectOwnership;
use s3s::{S3Error, S3Result, s3_error};

use super::grants::grant_others;
use crate::index::Refused;
use crate::index::record::{Bucket, Grant};
use crate::index::settings::Ownership;

/// What gives an object to the bucket's owner.
const FULL_CONTROL: &str = "bucket-owner-full-control";

/// Whose an object is that `caller` puts into `bucket`.
pub(super) fn owner_of<'a>(
    headers: &HeaderMap,
    caller: &'a str,
    bucket: &'a Bucket,
) -> S3Result<&'a str> {
    let names_list = |name: &str| name == "x-amz-acl" || name.starts_with("x-amz-grant-");
    let names_list = headers.keys().any(|it| names_list(it.as_str()));
    let gives =
        (headers.get("x-amz-acl")).is_some_and(|it| it.as_bytes() == FULL_CONTROL.as_bytes());
    match bucket.ownership {
        Some(Ownership::BucketOwnerEnforced) if names_list && !gives => Err(no_lists()),
        Some(Ownership::BucketOwnerEnforced) => Ok(&bucket.owner),
        Some(Ownership::BucketOwnerPreferred) if gives => Ok(&bucket.owner),
        _ => Ok(caller),
    }
}

/// Refuses to change a list that does not count.
pub(super) fn check_lists(bucket: &Bucket) -> S3Result<()> {
    match bucket.ownership {
        Some(Ownership::BucketOwnerEnforced) => Err(no_lists()),
        _ => Ok(()),
    }
}

fn no_lists() -> S3Error {
    s3_error!(
        AccessControlListNotSupported,
        "the bucket's owner owns all of it, and access control lists count for nothing"
    )
}

/// Can the list of a bucket stop counting? Not one that lets in others: they would be shut out unasked.
pub(super) fn check(
    ownership: Option<Ownership>,
    grants: Option<&[Grant]>,
    owner: &str,
) -> Result<(), Refused> {
    let others = grants.is_some_and(|it| grant_others(it, owner));
    match ownership == Some(Ownership::BucketOwnerEnforced) && others {
        true => Err(Refused::HasGrants),
        false => Ok(()),
    }
}

/// As the record has it.
pub(super) fn of_word(word: &ObjectOwnership) -> S3Result<Ownership> {
    match word.as_str() {
        ObjectOwnership::BUCKET_OWNER_ENFORCED => Ok(Ownership::BucketOwnerEnforced),
        ObjectOwnership::BUCKET_OWNER_PREFERRED => Ok(Ownership::BucketOwnerPreferred),
        ObjectOwnership::OBJECT_WRITER => Ok(Ownership::ObjectWriter),
        other => Err(s3_error!(
            MalformedXML,
            "ObjectOwnership is BucketOwnerEnforced, BucketOwnerPreferred or ObjectWriter, not {other:?}"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::record::{Grantee, Permission};

    #[test]
    fn an_object_is_the_writers_unless_the_bucket_says_otherwise() {
        use Ownership::{BucketOwnerEnforced, BucketOwnerPreferred, ObjectWriter};
        for (ownership, acl, owner) in [
            (None, "", Some("astro")),
            (None, FULL_CONTROL, Some("astro")),
            (Some(ObjectWriter), FULL_CONTROL, Some("astro")),
            (Some(BucketOwnerPreferred), "", Some("astro")),
            (Some(BucketOwnerPreferred), "private", Some("astro")),
            (Some(BucketOwnerPreferred), FULL_CONTROL, Some("bio")),
            (Some(BucketOwnerEnforced), "", Some("bio")),
            (Some(BucketOwnerEnforced), FULL_CONTROL, Some("bio")),
            (Some(BucketOwnerEnforced), "private", None),
        ] {
            let bucket = Bucket {
                owner: "bio".into(),
                ownership,
                ..Bucket::default()
            };
            let mut headers = HeaderMap::new();
            if !acl.is_empty() {
                headers.insert("x-amz-acl", acl.parse().unwrap());
            }
            let found = owner_of(&headers, "astro", &bucket).ok();
            assert_eq!(found, owner, "{ownership:?} {acl:?}");
        }
    }

    #[test]
    fn a_list_that_lets_in_others_counts_on() {
        let grant = |account: &str| Grant {
            to: Grantee::Account(account.into()),
            permission: Permission::Read,
        };
        let enforced = Some(Ownership::BucketOwnerEnforced);
        assert!(check(enforced, Some(&[grant("bio")]), "bio").is_ok());
        assert!(check(enforced, Some(&[grant("astro")]), "bio").is_err());
        assert!(
            check(
                Some(Ownership::ObjectWriter),
                Some(&[grant("astro")]),
                "bio"
            )
            .is_ok()
        );
    }
}
