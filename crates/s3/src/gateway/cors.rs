//! Rules of a bucket for pages of other origins: put, shown, deleted. What they mean is in `cross`.

use s3s::dto::*;
use s3s::{S3Response, S3Result, s3_error};

use super::asked::Asked;
use super::core::{Answer, Gateway, Request};
use super::cross::rules_of;
use super::failure::failed;
use super::policies::Action;
use crate::index::Transaction;
use crate::index::settings::CorsRule;

pub(super) fn get(
    gateway: &Gateway,
    request: &Request<GetBucketCorsInput>,
) -> Answer<GetBucketCorsOutput> {
    let asked = Asked::of(request, &request.input.bucket, Action::GetBucketCORS)?;
    let rules = gateway.admit(&asked)?.cors;
    if rules.is_empty() {
        return Err(s3_error!(
            NoSuchCORSConfiguration,
            "the bucket has no rules for other origins"
        ));
    }
    let some = |list: Vec<String>| (!list.is_empty()).then_some(list);
    let shown = rules.into_iter().map(|rule| CORSRule {
        allowed_headers: some(rule.headers),
        allowed_methods: rule.methods,
        allowed_origins: rule.origins,
        expose_headers: some(rule.exposed),
        id: rule.id,
        max_age_seconds: rule.seconds.and_then(|it| i32::try_from(it).ok()),
    });
    Ok(S3Response::new(GetBucketCorsOutput {
        cors_rules: Some(shown.collect()),
    }))
}

pub(super) async fn set(
    gateway: &Gateway,
    request: Request<PutBucketCorsInput>,
) -> Answer<PutBucketCorsOutput> {
    let name = &request.input.bucket;
    let bucket = gateway.admit(&Asked::of(&request, name, Action::PutBucketCORS)?)?;
    let rules = rules_of(request.input.cors_configuration)?;
    change(gateway, (request.input.bucket, bucket.id), rules).await?;
    Ok(S3Response::new(PutBucketCorsOutput::default()))
}

pub(super) async fn delete(
    gateway: &Gateway,
    request: Request<DeleteBucketCorsInput>,
) -> Answer<DeleteBucketCorsOutput> {
    let name = &request.input.bucket;
    let bucket = gateway.admit(&Asked::of(&request, name, Action::PutBucketCORS)?)?;
    change(gateway, (request.input.bucket, bucket.id), Vec::new()).await?;
    Ok(S3Response::new(DeleteBucketCorsOutput::default()))
}

async fn change(
    gateway: &Gateway,
    (name, id): (String, u64),
    rules: Vec<CorsRule>,
) -> S3Result<()> {
    let change = move |t: &mut Transaction<'_>| t.change_bucket((&name, id), |it| it.cors = rules);
    gateway.index.change(change).await.map_err(failed)
}
