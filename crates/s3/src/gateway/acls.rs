//! Access control lists of buckets and objects: shown and changed.

use s3s::dto::*;
use s3s::{S3Response, s3_error};

use super::buckets::name_of;
use super::core::{Answer, Gateway, Request};
use super::failure::failed;
use super::grants::{self, Owners, allows, of_headers, of_policy, unblocked};
use super::objects::{find, version_of};
use crate::index::Transaction;
use crate::index::record::{Bucket, Grant, Permission as Wanted};

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
    let (bucket, _) = gateway.bucket_for(request, &request.input.bucket, Wanted::ReadAcl)?;
    Ok(S3Response::new(GetBucketAclOutput {
        grants: Some(grants::shown(bucket.grants.as_deref(), &bucket.owner)),
        owner: Some(super::buckets::owner(&bucket.owner)),
    }))
}

pub(super) async fn set_of_bucket(
    gateway: &Gateway,
    mut request: Request<PutBucketAclInput>,
) -> Answer<PutBucketAclOutput> {
    let (bucket, _) = gateway.bucket_for(&request, &request.input.bucket, Wanted::WriteAcl)?;
    let policy = request.input.access_control_policy.take();
    let owners = Owners {
        owner: &bucket.owner,
        of_bucket: &bucket.owner,
    };
    let grants = named(gateway, &request, policy, (&bucket, owners))?;
    let name = request.input.bucket;
    let change = move |t: &mut Transaction<'_>| {
        t.change_bucket(&name, |bucket| bucket.grants = Some(grants))
    };
    gateway.index.change(change).await.map_err(failed)?;
    Ok(S3Response::new(PutBucketAclOutput::default()))
}

pub(super) fn of_object(
    gateway: &Gateway,
    request: &Request<GetObjectAclInput>,
) -> Answer<GetObjectAclOutput> {
    let input = &request.input;
    let (bucket, caller) = gateway.any_bucket(request, &input.bucket)?;
    let (found, _) = find(
        gateway,
        (&bucket, &caller),
        &input.key,
        input.version_id.as_deref(),
    )?;
    let version = &found.version;
    let of = (&*version.owner, &*caller.account);
    if !allows(&bucket, version.grants.as_deref(), of, Wanted::ReadAcl)
        && bucket.owner != caller.account
    {
        return Err(s3_error!(
            AccessDenied,
            "its list is not for account {}",
            name_of(&caller.account)
        ));
    }
    Ok(S3Response::new(GetObjectAclOutput {
        grants: Some(grants::shown(version.grants.as_deref(), &version.owner)),
        owner: Some(super::buckets::owner(&version.owner)),
        ..GetObjectAclOutput::default()
    }))
}

pub(super) async fn set_of_object(
    gateway: &Gateway,
    mut request: Request<PutObjectAclInput>,
) -> Answer<PutObjectAclOutput> {
    let (bucket, caller) = gateway.any_bucket(&request, &request.input.bucket)?;
    let policy = request.input.access_control_policy.take();
    let input = &request.input;
    let named_version = input.version_id.as_deref();
    let (found, _) = find(gateway, (&bucket, &caller), &input.key, named_version)?;
    let of = (&*found.version.owner, &*caller.account);
    if !allows(
        &bucket,
        found.version.grants.as_deref(),
        of,
        Wanted::WriteAcl,
    ) {
        return Err(s3_error!(
            AccessDenied,
            "its list is not changed by account {}",
            name_of(&caller.account)
        ));
    }
    let owners = Owners {
        owner: &found.version.owner,
        of_bucket: &bucket.owner,
    };
    let grants = named(gateway, &request, policy, (&bucket, owners))?;
    let input = request.input;
    let version = version_of(&input.key, input.version_id.as_deref())?;
    let change = move |t: &mut Transaction<'_>| {
        let at = (&*input.bucket, &*input.key);
        t.change_version(at, version, |it| it.grants = Some(grants))
    };
    gateway.index.change(change).await.map_err(failed)?;
    Ok(S3Response::new(PutObjectAclOutput::default()))
}
