//! Access control lists of buckets and objects: shown and changed.

use s3s::dto::*;
use s3s::{S3Response, s3_error};

use super::asked::Asked;
use super::core::{Answer, Gateway, Request};
use super::failure::failed;
use super::grants::{self, Owners, of_headers, of_policy, unblocked};
use super::owners::check_lists;
use super::policies::Action;
use crate::index::Transaction;
use crate::index::record::{Bucket, Grant};

/// The grants that a request names in its headers or its XML.
fn named<T>(
    gateway: &Gateway,
    request: &Request<T>,
    policy: Option<AccessControlPolicy>,
    (bucket, owners): (&Bucket, Owners<'_>),
) -> s3s::S3Result<Vec<Grant>> {
    let account = |name: &str| gateway.account(name);
    let in_headers = of_headers(&request.headers, owners, &account)?;
    let grants = match (in_headers, policy) {
        (Some(grants), None) => Ok(grants),
        (None, Some(policy)) => of_policy(policy, owners.owner, &account),
        (Some(_), Some(_)) => Err(s3_error!(
            UnexpectedContent,
            "send a list in headers or in XML, not both"
        )),
        (None, None) => Err(s3_error!(
            MissingSecurityHeader,
            "send a list in headers or in XML"
        )),
    }?;
    unblocked(bucket, grants)
}

pub(super) fn of_bucket(
    gateway: &Gateway,
    request: &Request<GetBucketAclInput>,
) -> Answer<GetBucketAclOutput> {
    let asked = Asked::of(request, &request.input.bucket, Action::GetBucketAcl)?;
    let bucket = gateway.admit(&asked)?;
    let counting = bucket
        .grants
        .as_deref()
        .filter(|_| check_lists(&bucket).is_ok());
    Ok(S3Response::new(GetBucketAclOutput {
        grants: Some(grants::shown(counting, &bucket.owner)),
        owner: Some(super::account::owner(&bucket.owner)),
    }))
}

pub(super) async fn set_of_bucket(
    gateway: &Gateway,
    mut request: Request<PutBucketAclInput>,
) -> Answer<PutBucketAclOutput> {
    let asked = Asked::of(&request, &request.input.bucket, Action::PutBucketAcl)?;
    let bucket = gateway.admit(&asked)?;
    check_lists(&bucket)?;
    let policy = request.input.access_control_policy.take();
    let owners = Owners {
        owner: &bucket.owner,
        of_bucket: &bucket.owner,
    };
    let grants = named(gateway, &request, policy, (&bucket, owners))?;
    let name = request.input.bucket;
    let id = bucket.id;
    let change = move |t: &mut Transaction<'_>| {
        t.change_bucket((&name, id), |bucket| bucket.grants = Some(grants))
    };
    gateway.index.change(change).await.map_err(failed)?;
    Ok(S3Response::new(PutBucketAclOutput::default()))
}

pub(super) fn of_object(
    gateway: &Gateway,
    request: &Request<GetObjectAclInput>,
) -> Answer<GetObjectAclOutput> {
    let input = &request.input;
    let version = input.version_id.as_deref();
    let asked = Asked::of(request, &input.bucket, Action::GetObjectAcl)?;
    let asked = asked.key(&input.key).version(version);
    let (bucket, found, _) = gateway.admit_to(&asked, version)?;
    let version = &found.version;
    let (owner, counting) = match check_lists(&bucket) {
        Ok(()) => (&version.owner, version.grants.as_deref()),
        Err(_) => (&bucket.owner, None),
    };
    Ok(S3Response::new(GetObjectAclOutput {
        grants: Some(grants::shown(counting, owner)),
        owner: Some(super::account::owner(owner)),
        ..GetObjectAclOutput::default()
    }))
}

pub(super) async fn set_of_object(
    gateway: &Gateway,
    mut request: Request<PutObjectAclInput>,
) -> Answer<PutObjectAclOutput> {
    let asked = Asked::of(&request, &request.input.bucket, Action::PutObjectAcl)?;
    let version = request.input.version_id.as_deref();
    let asked = asked.key(&request.input.key).version(version);
    let (bucket, found, _) = gateway.admit_to(&asked, version)?;
    check_lists(&bucket)?;
    let policy = request.input.access_control_policy.take();
    let owners = Owners {
        owner: &found.version.owner,
        of_bucket: &bucket.owner,
    };
    let grants = named(gateway, &request, policy, (&bucket, owners))?;
    let input = request.input;
    let (id, number) = (bucket.id, found.number);
    let change = move |t: &mut Transaction<'_>| {
        t.change_version((&input.bucket, id), (&input.key, number), |it| {
            it.grants = Some(grants);
            Ok(())
        })
    };
    gateway.index.change(change).await.map_err(failed)?;
    Ok(S3Response::new(PutObjectAclOutput::default()))
}
