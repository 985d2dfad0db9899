//! Access control lists: what clients write, what is kept, and who may do what by it.
//!
//! ```text
//! x-amz-acl: one word | x-amz-grant-...: id="..", uri=".." | XML  ->  grants  ->  XML
//! caller is the owner -> yes; else a grant to the caller, to authenticated users or to all, of this permission or of all
//! ```
//!
//! Pure. A grant to all is one to every caller with an access key: without one no request comes so far.
//!
//! Always true: the owner may, whatever the grants are.

use hyper::HeaderMap;
use s3s::dto::{AccessControlPolicy, Grant as Shown, Grantee as ShownGrantee, Type};
use s3s::{S3Result, s3_error};

use super::account::owner;
use crate::index::record::{Bucket, Grant, Grantee, Permission};

/// What S3 calls all users, and those with a key.
const ALL_USERS: &str = "http://acs.amazonaws.com/groups/global/AllUsers";
const AUTHENTICATED_USERS: &str = "http://acs.amazonaws.com/groups/global/AuthenticatedUsers";
/// The most grants of one list.
const GRANTS_MAX: usize = 100;

/// Permissions by the ends of their headers, and by their words in XML.
const PERMISSIONS: [(&str, &str, Permission); 5] = [
    ("full-control", "FULL_CONTROL", Permission::Full),
    ("read", "READ", Permission::Read),
    ("read-acp", "READ_ACP", Permission::ReadAcl),
    ("write", "WRITE", Permission::Write),
    ("write-acp", "WRITE_ACP", Permission::WriteAcl),
];

/// Whose something is, and whose the bucket is that it lies in.
#[derive(Clone, Copy)]
pub(super) struct Owners<'a> {
    pub owner: &'a str,
    pub of_bucket: &'a str,
}

/// The account of a name, if there is one.
pub(super) type FindAccount<'a> = &'a dyn Fn(&str) -> Option<String>;

/// May `caller` do this with what `owner` owns in `bucket`?
pub(super) fn allows(
    bucket: &Bucket,
    grants: Option<&[Grant]>,
    (owner, caller): (&str, &str),
    wanted: Permission,
) -> bool {
    let ignores = bucket.public_block.is_some_and(|it| it.ignores_grants);
    let is_to = |grant: &&Grant| match &grant.to {
        Grantee::Account(account) => account == caller,
        Grantee::Everyone | Grantee::Authenticated => !ignores,
    };
    let mut to_caller = grants.unwrap_or_default().iter().filter(is_to);
    owner == caller
        || to_caller.any(|it| it.permission == wanted || it.permission == Permission::Full)
}

/// Does one of these let in others than `owner`?
pub(super) fn grant_others(grants: &[Grant], owner: &str) -> bool {
    let is_own = |it: &Grant| matches!(&it.to, Grantee::Account(account) if account == owner);
    !grants.iter().all(is_own)
}

/// Refuses grants to groups where the bucket does.
pub(super) fn unblocked(bucket: &Bucket, grants: Vec<Grant>) -> S3Result<Vec<Grant>> {
    let refuses = bucket.public_block.is_some_and(|it| it.refuses_grants);
    match refuses && grants.iter().any(Grant::is_public) {
        true => Err(s3_error!(
            AccessDenied,
            "the bucket refuses grants to groups"
        )),
        false => Ok(grants),
    }
}

/// The grants that the headers of a request name; `None`: they name none.
pub(super) fn of_headers(
    headers: &HeaderMap,
    owners: Owners<'_>,
    find: FindAccount<'_>,
) -> S3Result<Option<Vec<Grant>>> {
    let text = |name: &str| headers.get(name).and_then(|it| it.to_str().ok());
    let mut grants = Vec::new();
    for (end, _, permission) in PERMISSIONS {
        let Some(text) = text(&format!("x-amz-grant-{end}")) else {
            continue;
        };
        for grantee in text.split(',') {
            let to = of_text(grantee.trim(), find)?;
            grants.push(Grant { to, permission });
        }
    }
    match text("x-amz-acl") {
        Some(_) if !grants.is_empty() => Err(s3_error!(
            InvalidRequest,
            "send x-amz-acl or x-amz-grant- headers, not both"
        )),
        Some(word) => canned(word, owners).map(Some),
        None if grants.is_empty() => Ok(None),
        None => checked(grants).map(Some),
    }
}

fn canned(word: &str, owners: Owners<'_>) -> S3Result<Vec<Grant>> {
    let full = |account: &str| Grant {
        to: Grantee::Account(account.to_owned()),
        permission: Permission::Full,
    };
    let others = |to: Grantee, permission| Grant { to, permission };
    let before = match word {
        "private" | "aws-exec-read" => vec![],
        "public-read" => vec![others(Grantee::Everyone, Permission::Read)],
        "public-read-write" => vec![
            others(Grantee::Everyone, Permission::Read),
            others(Grantee::Everyone, Permission::Write),
        ],
        "authenticated-read" => vec![others(Grantee::Authenticated, Permission::Read)],
        "bucket-owner-read" | "bucket-owner-full-control" if owners.owner == owners.of_bucket => {
            vec![]
        }
        "bucket-owner-read" => vec![others(
            Grantee::Account(owners.of_bucket.to_owned()),
            Permission::Read,
        )],
        "bucket-owner-full-control" => vec![full(owners.of_bucket)],
        other => return Err(s3_error!(InvalidArgument, "no ACL is called {other:?}")),
    };
    Ok(before.into_iter().chain([full(owners.owner)]).collect())
}

/// `id="ACCOUNT"` or `uri="GROUP"`.
fn of_text(text: &str, find: FindAccount<'_>) -> S3Result<Grantee> {
    let (kind, value) = text.split_once('=').unwrap_or((text, ""));
    let value = value.trim().trim_matches('"');
    match kind.trim().to_ascii_lowercase().as_str() {
        "id" => account(value, find),
        "uri" => group(value),
        "emailaddress" => Err(s3_error!(
            UnresolvableGrantByEmailAddress,
            "accounts have names here, not addresses: grant to id=\"ACCOUNT\""
        )),
        _ => Err(s3_error!(
            InvalidArgument,
            "a grantee is id=\"ACCOUNT\" or uri=\"GROUP\""
        )),
    }
}

fn account(name: &str, find: FindAccount<'_>) -> S3Result<Grantee> {
    match find(name) {
        Some(account) => Ok(Grantee::Account(account)),
        None => Err(s3_error!(
            InvalidArgument,
            "no account with an access key is called {name:?}"
        )),
    }
}

fn group(uri: &str) -> S3Result<Grantee> {
    match uri {
        ALL_USERS => Ok(Grantee::Everyone),
        AUTHENTICATED_USERS => Ok(Grantee::Authenticated),
        other => Err(s3_error!(InvalidArgument, "there is no group {other:?}")),
    }
}

fn checked(grants: Vec<Grant>) -> S3Result<Vec<Grant>> {
    match grants.len() > GRANTS_MAX {
        true => Err(s3_error!(
            MalformedACLError,
            "a list has at most {GRANTS_MAX} grants"
        )),
        false => Ok(grants),
    }
}

/// The grants of a list in XML, for what `owner` owns.
pub(super) fn of_policy(
    policy: AccessControlPolicy,
    owner: &str,
    find: FindAccount<'_>,
) -> S3Result<Vec<Grant>> {
    let said = policy.owner.and_then(|it| it.id);
    if said.is_some_and(|it| it != owner) {
        return Err(s3_error!(
            AccessDenied,
            "a list does not change whose it is: {owner}'s"
        ));
    }
    let grants = policy.grants.unwrap_or_default().into_iter().map(|grant| {
        let bad = || {
            s3_error!(
                MalformedACLError,
                "each grant has a Grantee and a Permission"
            )
        };
        let (grantee, word) = grant.grantee.zip(grant.permission).ok_or_else(bad)?;
        let known = PERMISSIONS.iter().find(|it| it.1 == word.as_str());
        let permission = known.ok_or_else(bad)?.2;
        let to = match (&grantee.id, &grantee.uri, &grantee.email_address) {
            (Some(id), ..) => account(id, find)?,
            (_, Some(uri), _) => group(uri)?,
            (_, _, Some(address)) => of_text(&format!("emailaddress={address}"), find)?,
            _ => return Err(bad()),
        };
        Ok(Grant { to, permission })
    });
    checked(grants.collect::<S3Result<Vec<_>>>()?)
}

/// As clients see them.
pub(super) fn shown(grants: Option<&[Grant]>, of: &str) -> Vec<Shown> {
    let own = [Grant {
        to: Grantee::Account(of.to_owned()),
        permission: Permission::Full,
    }];
    let grants = grants.unwrap_or(&own).iter();
    let group = |uri: &str| ShownGrantee {
        display_name: None,
        email_address: None,
        id: None,
        type_: Type::from_static(Type::GROUP),
        uri: Some(uri.to_owned()),
    };
    let shown = grants.map(|grant| {
        let word = PERMISSIONS.iter().find(|it| it.2 == grant.permission);
        Shown {
            grantee: Some(match &grant.to {
                Grantee::Everyone => group(ALL_USERS),
                Grantee::Authenticated => group(AUTHENTICATED_USERS),
                Grantee::Account(account) => ShownGrantee {
                    display_name: owner(account).display_name,
                    email_address: None,
                    id: owner(account).id,
                    type_: Type::from_static(Type::CANONICAL_USER),
                    uri: None,
                },
            }),
            permission: word.map(|it| s3s::dto::Permission::from_static(it.1)),
        }
    });
    shown.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bucket(blocked: bool) -> Bucket {
        let block = crate::index::record::PublicBlock {
            refuses_grants: blocked,
            ignores_grants: blocked,
            ..Default::default()
        };
        Bucket {
            owner: "bio".into(),
            public_block: Some(block),
            ..Bucket::default()
        }
    }

    #[test]
    fn a_public_access_block_refuses_grants_to_groups_and_ignores_those_there_are() {
        let read = grants(&[("x-amz-acl", "public-read")]).unwrap().unwrap();
        let may = |blocked| {
            allows(
                &bucket(blocked),
                Some(&read),
                ("astro", "geo"),
                Permission::Read,
            )
        };
        assert!(may(false) && !may(true));
        assert!(unblocked(&bucket(false), read.clone()).is_ok());
        assert!(unblocked(&bucket(true), read.clone()).is_err());
        let own = grants(&[("x-amz-acl", "private")]).unwrap().unwrap();
        assert!(unblocked(&bucket(true), own).is_ok());
    }

    fn grants(pairs: &[(&'static str, &str)]) -> S3Result<Option<Vec<Grant>>> {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.insert(*name, value.parse().unwrap());
        }
        let owners = Owners {
            owner: "astro",
            of_bucket: "bio",
        };
        of_headers(&headers, owners, &|name| {
            (["astro", "bio"].contains(&name)).then(|| name.to_owned())
        })
    }

    #[test]
    fn who_may_what_follows_from_the_grants_and_the_owner_always_may() {
        let may = |grants: &Option<Vec<Grant>>, caller, wanted| {
            allows(&bucket(false), grants.as_deref(), ("astro", caller), wanted)
        };
        let none = grants(&[]).unwrap();
        assert!(may(&none, "astro", Permission::Write) && !may(&none, "bio", Permission::Read));
        let read = grants(&[("x-amz-acl", "authenticated-read")]).unwrap();
        assert!(may(&read, "bio", Permission::Read) && !may(&read, "bio", Permission::Write));
        let full = grants(&[("x-amz-acl", "bucket-owner-full-control")]).unwrap();
        assert!(may(&full, "bio", Permission::WriteAcl) && !may(&full, "geo", Permission::Read));
        let one = grants(&[(
            "x-amz-grant-write-acp",
            "id=\"bio\", uri=\"http://acs.amazonaws.com/groups/global/AllUsers\"",
        )]);
        let one = one.unwrap();
        assert!(may(&one, "geo", Permission::WriteAcl) && !may(&one, "bio", Permission::ReadAcl));
        assert!(may(&one, "astro", Permission::Full));
        // What is shown reads back as it was.
        for list in [none, read, full, one] {
            let policy = AccessControlPolicy {
                grants: Some(shown(list.as_deref(), "astro")),
                owner: Some(owner("astro")),
            };
            let back = of_policy(policy, "astro", &|name| Some(name.to_owned())).unwrap();
            let own = shown(None, "astro").len();
            assert_eq!(back.len(), list.as_ref().map_or(own, Vec::len));
            assert!(list.is_none_or(|it| it == back));
        }
    }

    #[test]
    fn what_is_no_list_is_refused() {
        for bad in [
            &[("x-amz-acl", "public")][..],
            &[("x-amz-grant-read", "id=\"geo\"")],
            &[("x-amz-grant-read", "uri=\"all\"")],
            &[("x-amz-grant-read", "emailAddress=\"a@b\"")],
            &[("x-amz-grant-read", "bio")],
            &[("x-amz-acl", "private"), ("x-amz-grant-read", "id=\"bio\"")],
        ] {
            assert!(grants(bad).is_err(), "{bad:?}");
        }
        let of_other = AccessControlPolicy {
            grants: None,
            owner: Some(owner("bio")),
        };
        assert!(of_policy(of_other, "astro", &|name| Some(name.to_owned())).is_err());
    }
}
