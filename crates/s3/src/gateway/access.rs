//! May a request do what it asks? The one place where policies, access control lists and owners are weighed.
//!
//! ```text
//! the policy denies                       -> no  (but its own bucket's owner reaches the policy itself)
//! the caller owns the bucket              -> yes (but another account's list is changed by that account)
//! the policy allows, and is not restricted -> yes
//! a list grants it, where lists count     -> yes
//! else                                    -> no
//! ```
//!
//! Pure.
//!
//! Always true:
//! 1. A bucket is given to no operation that did not say what it asks of it.
//! 2. A policy that cannot be read allows nothing and denies all.

use s3s::{S3Error, s3_error};

use super::account::name_of;
use super::asked::Asked;
use super::grants::allows;
use super::policies::{Action, Facts, Policy, Verdict};
use crate::index::record::{Bucket, Permission, Version};
use crate::index::settings::Ownership;

/// Who may do something where no policy says so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Right {
    /// The owner of the bucket.
    Owner,
    /// Those to whom the list of the bucket grants this, too.
    Bucket(Permission),
    /// Those to whom the list of the object grants this, too.
    Object(Permission),
}

fn right(action: Action) -> Right {
    match action {
        Action::ListBucket | Action::ListBucketVersions => Right::Bucket(Permission::Read),
        Action::GetBucketAcl => Right::Bucket(Permission::ReadAcl),
        Action::PutBucketAcl => Right::Bucket(Permission::WriteAcl),
        Action::PutObject
        | Action::DeleteObject
        | Action::DeleteObjectVersion
        | Action::PutObjectTagging
        | Action::PutObjectVersionTagging
        | Action::DeleteObjectTagging
        | Action::DeleteObjectVersionTagging
        | Action::AbortMultipartUpload
        | Action::ListMultipartUploadParts
        | Action::ListBucketMultipartUploads => Right::Bucket(Permission::Write),
        Action::GetObject
        | Action::GetObjectVersion
        | Action::GetObjectAttributes
        | Action::GetObjectVersionAttributes
        | Action::GetObjectTagging
        | Action::GetObjectVersionTagging => Right::Object(Permission::Read),
        Action::GetObjectAcl | Action::GetObjectVersionAcl => Right::Object(Permission::ReadAcl),
        Action::PutObjectAcl | Action::PutObjectVersionAcl => Right::Object(Permission::WriteAcl),
        _ => Right::Owner,
    }
}

/// A bucket, ready to judge what is asked of it.
pub(super) struct Judge<'b> {
    bucket: &'b Bucket,
    /// `Err`: it cannot be read.
    policy: Result<Option<Policy>, ()>,
}

impl<'b> Judge<'b> {
    /// Of the bucket of this name.
    pub fn of(name: &str, bucket: &'b Bucket) -> Judge<'b> {
        let policy = bucket.policy.as_ref().map(|policy| {
            Policy::parse(&policy.text, name, &|it| policy.accounts.get(it).cloned())
        });
        let policy = policy.transpose().map_err(|error| {
            tracing::error!(bucket = name, "nothing is let in to the bucket: {error}");
        });
        Judge { bucket, policy }
    }

    /// May the request do it, to `object` where that was found?
    pub fn check(&self, asked: &Asked, object: Option<&Version>) -> Result<(), S3Error> {
        let allowed = [asked.action].into_iter().chain(asked.with.iter().copied());
        let may = allowed.into_iter().all(|it| self.may(asked, it, object));
        let mut beside = asked.beside.iter();
        match may && !beside.any(|it| self.verdict(asked, *it, object) == Verdict::Deny) {
            true => Ok(()),
            false => Err(denied(asked)),
        }
    }

    fn verdict(&self, asked: &Asked, action: Action, object: Option<&Version>) -> Verdict {
        let policy = match &self.policy {
            Ok(Some(policy)) => policy,
            Ok(None) => return Verdict::Silent,
            Err(()) => return Verdict::Deny,
        };
        let content = object.and_then(|it| it.content.as_ref());
        let verdict = policy.judge(&Facts {
            account: &asked.caller.account,
            action,
            resource: &asked.resource(),
            said: &asked.said,
            tags: content.map(|it| &it.about.tags),
        });
        let restricts = self.bucket.public_block.is_some_and(|it| it.restricts);
        match verdict {
            Verdict::Allow if restricts && policy.is_public() => Verdict::Silent,
            verdict => verdict,
        }
    }

    fn may(&self, asked: &Asked, action: Action, object: Option<&Version>) -> bool {
        let caller = &*asked.caller.account;
        let owns = self.bucket.owner == caller;
        if owns && action.is_of_policy() {
            return true;
        }
        match self.verdict(asked, action, object) {
            Verdict::Deny => false,
            Verdict::Allow => true,
            Verdict::Silent => self.is_granted(caller, right(action), object),
        }
    }

    /// Without a policy: by lists, where they count, and owners.
    fn is_granted(&self, caller: &str, right: Right, object: Option<&Version>) -> bool {
        let bucket = self.bucket;
        let owns = bucket.owner == caller;
        let lists = bucket.ownership != Some(Ownership::BucketOwnerEnforced);
        let grants =
            |grants, of: &str, wanted| lists && allows(bucket, grants, (of, caller), wanted);
        match (right, object) {
            (Right::Owner, _) | (Right::Object(_), None) => owns,
            (Right::Bucket(wanted), _) => {
                owns || grants(bucket.grants.as_deref(), &bucket.owner, wanted)
            }
            (Right::Object(wanted), Some(object)) => {
                let by_bucket = owns && (wanted != Permission::WriteAcl || !lists);
                by_bucket || grants(object.grants.as_deref(), &object.owner, wanted)
            }
        }
    }

    /// May the caller learn whether there is such an object?
    pub fn lists(&self, asked: &Asked) -> bool {
        let list = Asked {
            key: None,
            ..asked.instead(Action::ListBucket)
        };
        let list = list.saying("s3:prefix", asked.key.as_deref());
        self.check(&list, None).is_ok()
    }

    /// Does a bypass of Governance count that the request asks for?
    pub fn bypasses(&self, asked: &Asked) -> bool {
        let bypass = asked.instead(Action::BypassGovernanceRetention);
        asked.bypass && self.check(&bypass, None).is_ok()
    }

    /// Is it open to all, by its policy or its list?
    pub fn is_public(&self) -> bool {
        let by_policy = matches!(&self.policy, Ok(Some(policy)) if policy.is_public());
        let ignores = self.bucket.public_block.is_some_and(|it| it.ignores_grants);
        let lists = self.bucket.ownership != Some(Ownership::BucketOwnerEnforced) && !ignores;
        let mut grants = self.bucket.grants.iter().flatten();
        by_policy || (lists && grants.any(|it| it.is_public()))
    }
}

/// Not so.
pub(super) fn denied(asked: &Asked) -> S3Error {
    s3_error!(
        AccessDenied,
        "{} of {} is not granted to account {}, or the bucket's policy denies it",
        asked.action.name(),
        asked.resource(),
        name_of(&asked.caller.account)
    )
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::index::record::{Content, Grant, Grantee, PublicBlock};
    use crate::index::settings::BucketPolicy;

    fn asked(account: &str, action: Action, key: Option<&str>) -> Asked {
        Asked {
            caller: crate::gateway::entrance::Caller {
                account: account.to_owned(),
                key: "TA".to_owned(),
                payer: None,
                terms: crate::gateway::service::ServiceTerms::default(),
            },
            bucket: "photos".to_owned(),
            key: key.map(str::to_owned),
            action,
            with: Vec::new(),
            beside: Vec::new(),
            said: BTreeMap::new(),
            bypass: false,
        }
    }

    /// Of bio; `statements` are of its policy.
    fn bucket(statements: &str) -> Bucket {
        let text = format!(r#"{{"Statement":[{statements}]}}"#);
        Bucket {
            owner: "bio".into(),
            policy: (!statements.is_empty()).then(|| BucketPolicy {
                text,
                accounts: [("astro".to_owned(), "astro".to_owned())].into(),
            }),
            ..Bucket::default()
        }
    }

    fn statement(effect: &str, action: &str) -> String {
        format!(
            r#"{{"Effect":"{effect}","Principal":{{"AWS":"astro"}},"Action":"{action}","Resource":["arn:aws:s3:::photos","arn:aws:s3:::photos/*"]}}"#
        )
    }

    fn grants(permission: Permission) -> Option<Vec<Grant>> {
        let to = Grantee::Account("astro".into());
        Some(vec![Grant { to, permission }])
    }

    fn object(owner: &str, grants: Option<Vec<Grant>>) -> Version {
        Version {
            owner: owner.into(),
            grants,
            content: Some(Content::default()),
            ..Version::default()
        }
    }

    fn may(bucket: &Bucket, asked: &Asked, object: Option<&Version>) -> bool {
        Judge::of("photos", bucket).check(asked, object).is_ok()
    }

    #[test]
    fn a_policy_is_asked_before_lists_and_a_denial_wins() {
        use Action::{GetObject, ListBucket, PutObject};
        let granted = |statements: &str| Bucket {
            grants: grants(Permission::Full),
            ..bucket(statements)
        };
        let both = statement("Allow", "s3:*") + "," + &statement("Deny", "s3:PutObject");
        for (bucket, account, action, expected) in [
            (bucket(""), "astro", ListBucket, false),
            (bucket(""), "bio", ListBucket, true),
            (granted(""), "astro", PutObject, true),
            (
                granted(&statement("Deny", "s3:Put*")),
                "astro",
                PutObject,
                false,
            ),
            (
                granted(&statement("Deny", "s3:Put*")),
                "astro",
                ListBucket,
                true,
            ),
            (
                bucket(&statement("Allow", "s3:PutObject")),
                "astro",
                PutObject,
                true,
            ),
            (
                bucket(&statement("Allow", "s3:PutObject")),
                "astro",
                GetObject,
                false,
            ),
            (
                bucket(&statement("Allow", "s3:PutObject")),
                "geo",
                PutObject,
                false,
            ),
            (bucket(&both), "astro", PutObject, false),
            (bucket(&both), "astro", GetObject, true),
            // A policy that cannot be read shuts all out, but its owner from the policy.
            (bucket("{}"), "bio", GetObject, false),
            (bucket("{}"), "bio", Action::DeleteBucketPolicy, true),
            (bucket("{}"), "astro", Action::DeleteBucketPolicy, false),
        ] {
            let key = (!matches!(action, ListBucket | Action::DeleteBucketPolicy)).then_some("a");
            let found = may(&bucket, &asked(account, action, key), None);
            assert_eq!(found, expected, "{account} {action:?} {:?}", bucket.policy);
        }
    }

    #[test]
    fn an_owner_shut_out_by_a_policy_reaches_the_policy_still() {
        let text = statement("Deny", "*").replace(r#"{"AWS":"astro"}"#, "\"*\"");
        let bucket = bucket(&text);
        for (action, expected) in [
            (Action::GetBucketPolicy, true),
            (Action::PutBucketPolicy, true),
            (Action::DeleteBucketPolicy, true),
            (Action::ListBucket, false),
            (Action::DeleteBucket, false),
        ] {
            assert_eq!(may(&bucket, &asked("bio", action, None), None), expected);
        }
    }

    #[test]
    fn a_restricted_bucket_takes_no_leave_from_a_public_policy() {
        let own = statement("Allow", "s3:GetObject");
        let all = own.replace(r#"{"AWS":"astro"}"#, "\"*\"");
        let get = asked("astro", Action::GetObject, Some("a"));
        for (statements, restricts, expected) in [
            (all.clone(), false, true),
            (all.clone(), true, false),
            (own.clone(), true, true),
            (format!("{own},{all}"), true, false),
        ] {
            let bucket = Bucket {
                public_block: Some(PublicBlock {
                    restricts,
                    ..PublicBlock::default()
                }),
                ..bucket(&statements)
            };
            assert_eq!(
                may(&bucket, &get, None),
                expected,
                "{restricts} {statements}"
            );
        }
    }

    #[test]
    fn lists_count_for_nothing_where_the_owner_owns_all() {
        let enforced = Bucket {
            grants: grants(Permission::Full),
            ownership: Some(Ownership::BucketOwnerEnforced),
            ..bucket("")
        };
        let plain = Bucket {
            ownership: None,
            ..enforced.clone()
        };
        let own = object("astro", grants(Permission::Full));
        let get = asked("astro", Action::GetObject, Some("a"));
        let list = asked("astro", Action::ListBucket, None);
        assert!(may(&plain, &get, Some(&own)) && may(&plain, &list, None));
        assert!(!may(&enforced, &get, Some(&own)) && !may(&enforced, &list, None));
        // The list of another account's object is that account's, where lists count.
        let acl = asked("bio", Action::PutObjectAcl, Some("a"));
        assert!(may(&enforced, &acl, Some(&own)) && !may(&plain, &acl, Some(&own)));
    }

    #[test]
    fn what_a_request_comes_with_is_judged_with_it() {
        let mut put = asked("astro", Action::PutObject, Some("a"));
        let writes = bucket(&statement("Allow", "s3:PutObject"));
        assert!(may(&writes, &put, None));
        put.beside = vec![Action::PutObjectAcl];
        let denies =
            statement("Allow", "s3:PutObject") + "," + &statement("Deny", "s3:PutObjectAcl");
        assert!(may(&writes, &put, None) && !may(&bucket(&denies), &put, None));
        put.with = vec![Action::PutObjectRetention];
        let locks = statement("Allow", "s3:PutObject*");
        assert!(!may(&writes, &put, None) && may(&bucket(&locks), &put, None));
        let mut delete = asked("astro", Action::DeleteObjectVersion, Some("a"));
        let all = bucket(&statement("Allow", "s3:*"));
        let judge = Judge::of("photos", &all);
        assert!(!judge.bypasses(&delete));
        delete.bypass = true;
        assert!(judge.bypasses(&delete));
        assert!(!Judge::of("photos", &writes).bypasses(&delete));
    }

    #[test]
    fn who_may_list_by_prefix_learns_what_is_not_there() {
        let list = statement("Allow", "s3:ListBucket").replace(
            r#""Resource""#,
            r#""Condition":{"StringLike":{"s3:prefix":"pub/*"}},"Resource""#,
        );
        let bucket = bucket(&list);
        let judge = Judge::of("photos", &bucket);
        for (key, expected) in [("pub/a", true), ("a", false)] {
            let get = asked("astro", Action::GetObject, Some(key));
            assert_eq!(judge.lists(&get), expected, "{key}");
        }
    }
}
