//! What an S3 client asks, done with the index and the stores.
//!
//! ```text
//! request -> s3s: signature -> Entrance: which account? -> Gateway: is the bucket its own? -> buckets | objects | ...
//! ```
//!
//! - `entrance` who comes in; `failure` what S3 calls an error; `incoming` bytes that come; `outgoing` bytes that go.
//! - `asked` what a request asks; `policies` what a bucket's policy says of it; `access` the decision, with lists and owners.
//! - `buckets`, `objects`, `copies`, `listings`, `uploads`, `tags`, `locks`: what is asked of each.
//! - `endpoint` what browsers ask before, by the rules of `cross`; `ours` does this node still have the disk?
//!
//! Always true:
//! 1. No request without a good signature reaches a function here, but preflights of browsers.
//! 2. An account reaches its own buckets, and of others what they grant it.

mod access;
mod account;
mod acls;
mod asked;
mod attributes;
mod bucket_policy;
mod buckets;
mod conditions;
mod copies;
mod core;
mod cors;
mod cross;
mod deletions;
mod endpoint;
mod entrance;
mod failure;
mod grants;
mod headers;
mod incoming;
mod listings;
mod locks;
mod look;
mod objects;
mod ours;
mod outgoing;
mod owners;
mod ownership;
mod policies;
mod public_access;
mod service;
mod tag_set;
mod tags;
mod turns;
mod uploads;

use s3s::S3;
use s3s::dto::*;

use self::core::{Answer, Request};

pub use self::core::{FORM_MAX, Gateway, TRANSFERS, Terms};
pub use endpoint::Endpoint;
pub use entrance::{AccessKey, Keys, is_form};
pub use service::{Reserved, ServiceTerms};

/// Each operation stands in a module of its own kind.
#[async_trait::async_trait]
impl S3 for Gateway {
    async fn create_bucket(
        &self,
        request: Request<CreateBucketInput>,
    ) -> Answer<CreateBucketOutput> {
        buckets::create(self, request).await
    }
    async fn delete_bucket(
        &self,
        request: Request<DeleteBucketInput>,
    ) -> Answer<DeleteBucketOutput> {
        buckets::delete(self, request).await
    }
    async fn head_bucket(&self, request: Request<HeadBucketInput>) -> Answer<HeadBucketOutput> {
        buckets::head(self, &request)
    }
    async fn list_buckets(&self, request: Request<ListBucketsInput>) -> Answer<ListBucketsOutput> {
        buckets::list(self, &request)
    }
    async fn get_bucket_location(
        &self,
        request: Request<GetBucketLocationInput>,
    ) -> Answer<GetBucketLocationOutput> {
        buckets::location(self, &request)
    }
    async fn get_bucket_versioning(
        &self,
        request: Request<GetBucketVersioningInput>,
    ) -> Answer<GetBucketVersioningOutput> {
        buckets::versioning(self, &request)
    }
    async fn put_bucket_versioning(
        &self,
        request: Request<PutBucketVersioningInput>,
    ) -> Answer<PutBucketVersioningOutput> {
        buckets::set_versioning(self, request).await
    }
    async fn get_bucket_tagging(
        &self,
        request: Request<GetBucketTaggingInput>,
    ) -> Answer<GetBucketTaggingOutput> {
        tags::of_bucket(self, &request)
    }
    async fn put_bucket_tagging(
        &self,
        request: Request<PutBucketTaggingInput>,
    ) -> Answer<PutBucketTaggingOutput> {
        tags::set_of_bucket(self, request).await
    }
    async fn delete_bucket_tagging(
        &self,
        request: Request<DeleteBucketTaggingInput>,
    ) -> Answer<DeleteBucketTaggingOutput> {
        tags::delete_of_bucket(self, request).await
    }
    async fn get_public_access_block(
        &self,
        request: Request<GetPublicAccessBlockInput>,
    ) -> Answer<GetPublicAccessBlockOutput> {
        public_access::get(self, &request)
    }
    async fn put_public_access_block(
        &self,
        request: Request<PutPublicAccessBlockInput>,
    ) -> Answer<PutPublicAccessBlockOutput> {
        public_access::set(self, request).await
    }
    async fn delete_public_access_block(
        &self,
        request: Request<DeletePublicAccessBlockInput>,
    ) -> Answer<DeletePublicAccessBlockOutput> {
        public_access::delete(self, request).await
    }
    async fn get_bucket_policy(
        &self,
        request: Request<GetBucketPolicyInput>,
    ) -> Answer<GetBucketPolicyOutput> {
        bucket_policy::get(self, &request)
    }
    async fn get_bucket_policy_status(
        &self,
        request: Request<GetBucketPolicyStatusInput>,
    ) -> Answer<GetBucketPolicyStatusOutput> {
        bucket_policy::status(self, &request)
    }
    async fn put_bucket_policy(
        &self,
        request: Request<PutBucketPolicyInput>,
    ) -> Answer<PutBucketPolicyOutput> {
        bucket_policy::set(self, request).await
    }
    async fn delete_bucket_policy(
        &self,
        request: Request<DeleteBucketPolicyInput>,
    ) -> Answer<DeleteBucketPolicyOutput> {
        bucket_policy::delete(self, request).await
    }
    async fn get_bucket_ownership_controls(
        &self,
        request: Request<GetBucketOwnershipControlsInput>,
    ) -> Answer<GetBucketOwnershipControlsOutput> {
        ownership::get(self, &request)
    }
    async fn put_bucket_ownership_controls(
        &self,
        request: Request<PutBucketOwnershipControlsInput>,
    ) -> Answer<PutBucketOwnershipControlsOutput> {
        ownership::set(self, request).await
    }
    async fn delete_bucket_ownership_controls(
        &self,
        request: Request<DeleteBucketOwnershipControlsInput>,
    ) -> Answer<DeleteBucketOwnershipControlsOutput> {
        ownership::delete(self, request).await
    }
    async fn get_bucket_cors(
        &self,
        request: Request<GetBucketCorsInput>,
    ) -> Answer<GetBucketCorsOutput> {
        cors::get(self, &request)
    }
    async fn put_bucket_cors(
        &self,
        request: Request<PutBucketCorsInput>,
    ) -> Answer<PutBucketCorsOutput> {
        cors::set(self, request).await
    }
    async fn delete_bucket_cors(
        &self,
        request: Request<DeleteBucketCorsInput>,
    ) -> Answer<DeleteBucketCorsOutput> {
        cors::delete(self, request).await
    }
    async fn get_object_lock_configuration(
        &self,
        request: Request<GetObjectLockConfigurationInput>,
    ) -> Answer<GetObjectLockConfigurationOutput> {
        locks::of_bucket(self, &request)
    }
    async fn put_object_lock_configuration(
        &self,
        request: Request<PutObjectLockConfigurationInput>,
    ) -> Answer<PutObjectLockConfigurationOutput> {
        locks::set_of_bucket(self, request).await
    }
    async fn get_object_retention(
        &self,
        request: Request<GetObjectRetentionInput>,
    ) -> Answer<GetObjectRetentionOutput> {
        locks::retention(self, &request)
    }
    async fn put_object_retention(
        &self,
        request: Request<PutObjectRetentionInput>,
    ) -> Answer<PutObjectRetentionOutput> {
        locks::set_retention(self, request).await
    }
    async fn get_object_legal_hold(
        &self,
        request: Request<GetObjectLegalHoldInput>,
    ) -> Answer<GetObjectLegalHoldOutput> {
        locks::legal_hold(self, &request)
    }
    async fn put_object_legal_hold(
        &self,
        request: Request<PutObjectLegalHoldInput>,
    ) -> Answer<PutObjectLegalHoldOutput> {
        locks::set_legal_hold(self, request).await
    }
    async fn get_object_attributes(
        &self,
        request: Request<GetObjectAttributesInput>,
    ) -> Answer<GetObjectAttributesOutput> {
        attributes::get(self, request)
    }
    async fn get_bucket_acl(
        &self,
        request: Request<GetBucketAclInput>,
    ) -> Answer<GetBucketAclOutput> {
        acls::of_bucket(self, &request)
    }
    async fn put_bucket_acl(
        &self,
        request: Request<PutBucketAclInput>,
    ) -> Answer<PutBucketAclOutput> {
        acls::set_of_bucket(self, request).await
    }
    async fn get_object_acl(
        &self,
        request: Request<GetObjectAclInput>,
    ) -> Answer<GetObjectAclOutput> {
        acls::of_object(self, &request)
    }
    async fn put_object_acl(
        &self,
        request: Request<PutObjectAclInput>,
    ) -> Answer<PutObjectAclOutput> {
        acls::set_of_object(self, request).await
    }
    async fn put_object(&self, request: Request<PutObjectInput>) -> Answer<PutObjectOutput> {
        objects::put(self, request).await
    }
    async fn get_object(&self, request: Request<GetObjectInput>) -> Answer<GetObjectOutput> {
        objects::get(self, request).await
    }
    async fn head_object(&self, request: Request<HeadObjectInput>) -> Answer<HeadObjectOutput> {
        objects::head(self, request).await
    }
    async fn delete_object(
        &self,
        request: Request<DeleteObjectInput>,
    ) -> Answer<DeleteObjectOutput> {
        deletions::delete(self, request).await
    }
    async fn delete_objects(
        &self,
        request: Request<DeleteObjectsInput>,
    ) -> Answer<DeleteObjectsOutput> {
        deletions::delete_many(self, request).await
    }
    async fn copy_object(&self, request: Request<CopyObjectInput>) -> Answer<CopyObjectOutput> {
        copies::copy(self, request).await
    }
    async fn list_objects(&self, request: Request<ListObjectsInput>) -> Answer<ListObjectsOutput> {
        listings::first(self, request)
    }
    async fn list_objects_v2(
        &self,
        request: Request<ListObjectsV2Input>,
    ) -> Answer<ListObjectsV2Output> {
        listings::second(self, request)
    }
    async fn list_object_versions(
        &self,
        request: Request<ListObjectVersionsInput>,
    ) -> Answer<ListObjectVersionsOutput> {
        listings::versions(self, request)
    }
    async fn get_object_tagging(
        &self,
        request: Request<GetObjectTaggingInput>,
    ) -> Answer<GetObjectTaggingOutput> {
        tags::of_object(self, &request)
    }
    async fn put_object_tagging(
        &self,
        request: Request<PutObjectTaggingInput>,
    ) -> Answer<PutObjectTaggingOutput> {
        tags::set_of_object(self, request).await
    }
    async fn delete_object_tagging(
        &self,
        request: Request<DeleteObjectTaggingInput>,
    ) -> Answer<DeleteObjectTaggingOutput> {
        tags::delete_of_object(self, request).await
    }
    async fn create_multipart_upload(
        &self,
        request: Request<CreateMultipartUploadInput>,
    ) -> Answer<CreateMultipartUploadOutput> {
        uploads::create(self, request).await
    }
    async fn upload_part(&self, request: Request<UploadPartInput>) -> Answer<UploadPartOutput> {
        uploads::put_part(self, request).await
    }
    async fn upload_part_copy(
        &self,
        request: Request<UploadPartCopyInput>,
    ) -> Answer<UploadPartCopyOutput> {
        copies::copy_part(self, request).await
    }
    async fn complete_multipart_upload(
        &self,
        request: Request<CompleteMultipartUploadInput>,
    ) -> Answer<CompleteMultipartUploadOutput> {
        uploads::complete(self, request).await
    }
    async fn abort_multipart_upload(
        &self,
        request: Request<AbortMultipartUploadInput>,
    ) -> Answer<AbortMultipartUploadOutput> {
        uploads::abort(self, request).await
    }
    async fn list_parts(&self, request: Request<ListPartsInput>) -> Answer<ListPartsOutput> {
        uploads::parts(self, request)
    }
    async fn list_multipart_uploads(
        &self,
        request: Request<ListMultipartUploadsInput>,
    ) -> Answer<ListMultipartUploadsOutput> {
        uploads::list(self, request)
    }
}
