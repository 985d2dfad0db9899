//! The policy of a bucket: put, shown, deleted, and whether it opens the bucket to all.
//!
//! Always true: a policy that is put was understood whole, and is the text that is given back.

use std::collections::BTreeMap;

use s3s::dto::*;
use s3s::{S3Response, S3Result, s3_error};

use super::asked::Asked;
use super::core::{Answer, Gateway, Request};
use super::failure::failed;
use super::policies::{Action, Policy};
use crate::index::Transaction;
use crate::index::settings::BucketPolicy;

/// Reads a policy, and whom it names.
fn read(
    text: String,
    bucket: &str,
    find: impl Fn(&str) -> Option<String>,
) -> S3Result<(Policy, BucketPolicy)> {
    let named = std::cell::RefCell::new(BTreeMap::new());
    let note = |name: &str| {
        let account = find(name)?;
        named.borrow_mut().insert(name.to_owned(), account.clone());
        Some(account)
    };
    let policy = Policy::parse(&text, bucket, &note);
    let policy = policy.map_err(|error| s3_error!(MalformedPolicy, "{error}"))?;
    let accounts = named.into_inner();
    Ok((policy, BucketPolicy { text, accounts }))
}

pub(super) async fn set(
    gateway: &Gateway,
    request: Request<PutBucketPolicyInput>,
) -> Answer<PutBucketPolicyOutput> {
    let asked = Asked::of(&request, &request.input.bucket, Action::PutBucketPolicy)?;
    let id = gateway.admit(&asked)?.id;
    let input = request.input;
    let (policy, record) = read(input.policy, &input.bucket, |it| gateway.account(it))?;
    let is_public = policy.is_public();
    let change = move |t: &mut Transaction<'_>| {
        let mut refused = false;
        t.change_bucket((&input.bucket, id), |bucket| {
            // Asked where it is set: a block that comes meanwhile counts.
            refused = is_public && bucket.public_block.is_some_and(|it| it.refuses_policies);
            if !refused {
                bucket.policy = Some(record);
            }
        })?;
        Ok(refused)
    };
    match gateway.index.change(change).await.map_err(failed)? {
        true => Err(s3_error!(
            AccessDenied,
            "the policy lets in all accounts, and the bucket's public access block refuses that"
        )),
        false => Ok(S3Response::new(PutBucketPolicyOutput::default())),
    }
}

pub(super) fn get(
    gateway: &Gateway,
    request: &Request<GetBucketPolicyInput>,
) -> Answer<GetBucketPolicyOutput> {
    let asked = Asked::of(request, &request.input.bucket, Action::GetBucketPolicy)?;
    let policy = gateway.admit(&asked)?.policy;
    let policy = policy.ok_or_else(|| s3_error!(NoSuchBucketPolicy, "the bucket has no policy"))?;
    Ok(S3Response::new(GetBucketPolicyOutput {
        policy: Some(policy.text),
    }))
}

pub(super) async fn delete(
    gateway: &Gateway,
    request: Request<DeleteBucketPolicyInput>,
) -> Answer<DeleteBucketPolicyOutput> {
    let asked = Asked::of(&request, &request.input.bucket, Action::DeleteBucketPolicy)?;
    let id = gateway.admit(&asked)?.id;
    let name = request.input.bucket;
    let change =
        move |t: &mut Transaction<'_>| t.change_bucket((&name, id), |bucket| bucket.policy = None);
    gateway.index.change(change).await.map_err(failed)?;
    Ok(S3Response::new(DeleteBucketPolicyOutput::default()))
}

pub(super) fn status(
    gateway: &Gateway,
    request: &Request<GetBucketPolicyStatusInput>,
) -> Answer<GetBucketPolicyStatusOutput> {
    let name = &request.input.bucket;
    gateway.admit(&Asked::of(request, name, Action::GetBucketPolicyStatus)?)?;
    let is_public = gateway.judged(name, |judge, _| judge.is_public())?;
    Ok(S3Response::new(GetBucketPolicyStatusOutput {
        policy_status: Some(PolicyStatus {
            is_public: Some(is_public),
        }),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_goes_on_naming_the_account_that_was_there_when_it_was_put() {
        let text = r#"{"Statement":{"Effect":"Allow","Principal":{"AWS":["arn:aws:iam::astro:root","bio.2"]},
            "Action":"s3:GetObject","Resource":"arn:aws:s3:::photos/*"}}"#;
        let find = |name: &str| match name {
            "astro" => Some("astro.1".to_owned()),
            "bio.2" => Some("bio.2".to_owned()),
            _ => None,
        };
        let (_, record) = read(text.to_owned(), "photos", find).unwrap();
        let named: Vec<(&str, &str)> = (record.accounts.iter())
            .map(|(name, account)| (&**name, &**account))
            .collect();
        assert_eq!(named, [("astro", "astro.1"), ("bio.2", "bio.2")]);
        assert_eq!(record.text, text);
        let error = read(text.replace("astro", "geo"), "photos", find).unwrap_err();
        assert_eq!(error.code().as_str(), "MalformedPolicy");
    }
}
