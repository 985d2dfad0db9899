//! Buckets: made, found, listed, deleted.

use s3s::dto::*;
use s3s::{S3Response, s3_error};

use super::account::owner;
use super::asked::Asked;
use super::core::{Answer, Gateway, Request};
use super::entrance::Caller;
use super::failure::failed;
use super::grants::{Owners, of_headers};
use super::headers::moment;
use super::owners;
use super::policies::Action;
use crate::index::lock::LockRule;
use crate::index::record::Versioning;
use crate::index::{Refused, Transaction};

pub(super) async fn create(
    gateway: &Gateway,
    request: Request<CreateBucketInput>,
) -> Answer<CreateBucketOutput> {
    let account = Caller::of(&request)?.account;
    let owners = Owners {
        owner: &account,
        of_bucket: &account,
    };
    let grants = of_headers(&request.headers, owners, &|it| gateway.account(it))?;
    let ownership = request.input.object_ownership.as_ref();
    let ownership = ownership.map(owners::of_word).transpose()?;
    owners::check(ownership, grants.as_deref(), &account).map_err(|it| failed(it.into()))?;
    let name = request.input.bucket;
    let has_lock = request.input.object_lock_enabled_for_bucket == Some(true);
    let wanted = request.input.create_bucket_configuration;
    let wanted = wanted.and_then(|it| it.location_constraint);
    if let Some(wanted) = wanted.filter(|it| it.as_str() != gateway.terms.region) {
        return Err(s3_error!(
            IllegalLocationConstraintException,
            "buckets are in {} here, and {} was asked for",
            gateway.terms.region,
            wanted.as_str()
        ));
    }
    let (location, now) = (format!("/{name}"), gateway.now());
    let make = move |t: &mut Transaction<'_>| {
        let made = t.create_bucket(&name, &account, now)?;
        t.change_bucket((&name, made.id), |bucket| {
            bucket.grants = grants;
            bucket.ownership = ownership;
            if has_lock {
                bucket.lock = Some(LockRule::default());
                bucket.versioning = Versioning::Enabled;
            }
        })
    };
    gateway.index.change(make).await.map_err(failed)?;
    Ok(S3Response::new(CreateBucketOutput {
        location: Some(location),
    }))
}

pub(super) async fn delete(
    gateway: &Gateway,
    request: Request<DeleteBucketInput>,
) -> Answer<DeleteBucketOutput> {
    gateway.admit(&Asked::of(
        &request,
        &request.input.bucket,
        Action::DeleteBucket,
    )?)?;
    let name = request.input.bucket;
    let delete = move |t: &mut Transaction<'_>| t.delete_bucket(&name);
    gateway.index.change(delete).await.map_err(failed)?;
    Ok(S3Response::new(DeleteBucketOutput::default()))
}

pub(super) fn head(
    gateway: &Gateway,
    request: &Request<HeadBucketInput>,
) -> Answer<HeadBucketOutput> {
    gateway.admit(&Asked::of(
        request,
        &request.input.bucket,
        Action::ListBucket,
    )?)?;
    Ok(S3Response::new(HeadBucketOutput {
        bucket_region: Some(gateway.terms.region.clone()),
        ..HeadBucketOutput::default()
    }))
}

pub(super) fn list(
    gateway: &Gateway,
    request: &Request<ListBucketsInput>,
) -> Answer<ListBucketsOutput> {
    let account = Caller::of(request)?.account;
    let input = &request.input;
    let found = gateway.index.buckets(Some(&account)).map_err(failed)?;
    let prefix = input.prefix.clone().unwrap_or_default();
    let after = input.continuation_token.clone().unwrap_or_default();
    let wanted = |name: &str| name.starts_with(&prefix) && (after.is_empty() || name > &*after);
    let mut buckets: Vec<Bucket> = (found.into_iter())
        .filter(|(name, _)| wanted(name))
        .map(|(name, bucket)| Bucket {
            bucket_region: Some(gateway.terms.region.clone()),
            creation_date: Some(moment(bucket.created)),
            name: Some(name),
        })
        .collect();
    let most = input.max_buckets.and_then(|it| usize::try_from(it).ok());
    let more = most.is_some_and(|most| buckets.len() > most);
    buckets.truncate(most.unwrap_or(usize::MAX));
    let last = buckets.last().and_then(|it| it.name.clone());
    Ok(S3Response::new(ListBucketsOutput {
        buckets: Some(buckets),
        continuation_token: last.filter(|_| more),
        owner: Some(owner(&account)),
        prefix: input.prefix.clone(),
    }))
}

pub(super) fn location(
    gateway: &Gateway,
    request: &Request<GetBucketLocationInput>,
) -> Answer<GetBucketLocationOutput> {
    gateway.admit(&Asked::of(
        request,
        &request.input.bucket,
        Action::GetBucketLocation,
    )?)?;
    // S3's first region has no name here.
    let region = &gateway.terms.region;
    let named = (region != "us-east-1").then(|| BucketLocationConstraint::from(region.clone()));
    Ok(S3Response::new(GetBucketLocationOutput {
        location_constraint: named,
    }))
}

pub(super) fn versioning(
    gateway: &Gateway,
    request: &Request<GetBucketVersioningInput>,
) -> Answer<GetBucketVersioningOutput> {
    let bucket = gateway.admit(&Asked::of(
        request,
        &request.input.bucket,
        Action::GetBucketVersioning,
    )?)?;
    let status = match bucket.versioning {
        Versioning::Off => None,
        Versioning::Enabled => Some(BucketVersioningStatus::ENABLED),
        Versioning::Suspended => Some(BucketVersioningStatus::SUSPENDED),
    };
    Ok(S3Response::new(GetBucketVersioningOutput {
        status: status.map(BucketVersioningStatus::from_static),
        ..GetBucketVersioningOutput::default()
    }))
}

pub(super) async fn set_versioning(
    gateway: &Gateway,
    request: Request<PutBucketVersioningInput>,
) -> Answer<PutBucketVersioningOutput> {
    let bucket = gateway.admit(&Asked::of(
        &request,
        &request.input.bucket,
        Action::PutBucketVersioning,
    )?)?;
    let id = bucket.id;
    let input = request.input;
    let status = input.versioning_configuration.status;
    let versioning = match status.as_ref().map(BucketVersioningStatus::as_str) {
        Some(BucketVersioningStatus::ENABLED) => Versioning::Enabled,
        Some(BucketVersioningStatus::SUSPENDED) => Versioning::Suspended,
        _ => {
            return Err(s3_error!(
                IllegalVersioningConfigurationException,
                "Status is Enabled or Suspended"
            ));
        }
    };
    let change = move |t: &mut Transaction<'_>| {
        t.try_bucket((&input.bucket, id), |bucket| {
            if bucket.lock.is_some() && versioning != Versioning::Enabled {
                return Err(Refused::LockNeedsVersions);
            }
            bucket.versioning = versioning;
            Ok(())
        })
    };
    gateway.index.change(change).await.map_err(failed)?;
    Ok(S3Response::new(PutBucketVersioningOutput::default()))
}
