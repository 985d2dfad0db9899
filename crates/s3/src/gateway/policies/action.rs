//! What a request does, by the name that a policy has for it.
//!
//! Always true: an action that the gateway never asks for has no name here, so a policy that names it is refused.

/// Makes the actions, with their names behind `s3:`.
macro_rules! actions {
    ($($name:ident)*) => {
        /// What is done to a bucket, or to an object.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Action { $($name),* }

        impl Action {
            /// All there are.
            pub const ALL: &'static [Action] = &[$(Action::$name),*];

            /// As policies write it.
            pub fn name(self) -> &'static str {
                match self { $(Action::$name => concat!("s3:", stringify!($name))),* }
            }
        }
    };
}

actions! {
    ListBucket ListBucketVersions ListBucketMultipartUploads DeleteBucket
    GetBucketLocation GetBucketVersioning PutBucketVersioning GetBucketTagging PutBucketTagging
    GetBucketPublicAccessBlock PutBucketPublicAccessBlock GetBucketAcl PutBucketAcl
    GetBucketPolicy PutBucketPolicy DeleteBucketPolicy GetBucketPolicyStatus
    GetBucketOwnershipControls PutBucketOwnershipControls GetBucketCORS PutBucketCORS
    GetBucketObjectLockConfiguration PutBucketObjectLockConfiguration
    GetObject GetObjectVersion GetObjectAttributes GetObjectVersionAttributes
    GetObjectAcl GetObjectVersionAcl PutObjectAcl PutObjectVersionAcl
    GetObjectTagging GetObjectVersionTagging PutObjectTagging PutObjectVersionTagging
    DeleteObjectTagging DeleteObjectVersionTagging
    PutObject DeleteObject DeleteObjectVersion AbortMultipartUpload ListMultipartUploadParts
    GetObjectRetention PutObjectRetention GetObjectLegalHold PutObjectLegalHold BypassGovernanceRetention
}

impl Action {
    /// The same, of a version that is named.
    #[must_use]
    pub fn of_version(self) -> Action {
        match self {
            Action::GetObject => Action::GetObjectVersion,
            Action::GetObjectAttributes => Action::GetObjectVersionAttributes,
            Action::GetObjectAcl => Action::GetObjectVersionAcl,
            Action::PutObjectAcl => Action::PutObjectVersionAcl,
            Action::GetObjectTagging => Action::GetObjectVersionTagging,
            Action::PutObjectTagging => Action::PutObjectVersionTagging,
            Action::DeleteObjectTagging => Action::DeleteObjectVersionTagging,
            Action::DeleteObject => Action::DeleteObjectVersion,
            other => other,
        }
    }

    /// Is it about the policy itself? The owner of a bucket always may.
    pub fn is_of_policy(self) -> bool {
        matches!(
            self,
            Action::GetBucketPolicy | Action::PutBucketPolicy | Action::DeleteBucketPolicy
        )
    }
}
