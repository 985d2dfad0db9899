//! What is set for a bucket beside its objects, as its record has it: policy, ownership, rules for browsers.
//!
//! Always true: a field that a later program adds has a default, so that older records are read.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The policy of a bucket.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct BucketPolicy {
    /// As it was put.
    pub text: String,
    /// The accounts that it names, by how it names them: an account of the same name that is made later is another one.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub accounts: BTreeMap<String, String>,
}

/// Whose objects are that another account puts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ownership {
    /// The bucket's owner's; access control lists count for nothing.
    BucketOwnerEnforced,
    /// The bucket's owner's, where the request grants that owner all.
    BucketOwnerPreferred,
    /// The account's that put it.
    ObjectWriter,
}

/// Which pages of other origins a browser lets ask for objects of a bucket.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct CorsRule {
    /// As the client named it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Where such pages are from; each with at most one `*`.
    pub origins: Vec<String>,
    /// `GET`, `PUT`, `POST`, `DELETE`, `HEAD`.
    pub methods: Vec<String>,
    /// Headers that they may send; each with at most one `*`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<String>,
    /// Headers of answers that they may read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exposed: Vec<String>,
    /// How long a browser need not ask again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds: Option<u32>,
}
