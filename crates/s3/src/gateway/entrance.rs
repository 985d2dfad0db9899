//! Who comes in: access key -> secret, to compare signatures; and its account.
//!
//! Always true: without a signature nothing is answered, and a key that ended opens nothing from then on.

use std::sync::Arc;

use s3s::access::{S3Access, S3AccessContext};
use s3s::auth::{S3Auth, SecretKey};
use s3s::{S3Request, S3Result, s3_error};

/// What an access key is good for. Its secret is in no `Debug`.
#[derive(Clone)]
pub struct AccessKey {
    /// With which requests are signed.
    pub secret: String,
    /// Whose it is.
    pub account: String,
}

impl std::fmt::Debug for AccessKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "AccessKey(of {}, secret)", self.account)
    }
}

/// The access keys that are good now.
pub trait Keys: Send + Sync + 'static {
    /// What the key of this name is good for; `None`: nothing.
    fn find(&self, name: &str) -> Option<AccessKey>;

    /// Has an account of this name a key that is good?
    fn is_account(&self, name: &str) -> bool;
}

/// Whose a request is, once its signature is verified.
#[derive(Debug, Clone)]
pub(super) struct Caller {
    pub account: String,
}

impl Caller {
    pub fn of<T>(request: &S3Request<T>) -> S3Result<Caller> {
        let caller = request.extensions.get::<Caller>();
        caller.cloned().ok_or_else(unsigned)
    }
}

fn unsigned() -> s3s::S3Error {
    s3_error!(
        AccessDenied,
        "sign the request with an access key: `tanada s3 key create`"
    )
}

pub(super) struct Entrance(pub Arc<dyn Keys>);

impl Entrance {
    fn find(&self, name: &str) -> S3Result<AccessKey> {
        self.0.find(name).ok_or_else(|| {
            s3_error!(
                InvalidAccessKeyId,
                "no access key is called so, or it was deleted"
            )
        })
    }
}

#[async_trait::async_trait]
impl S3Auth for Entrance {
    async fn get_secret_key(&self, access_key: &str) -> S3Result<SecretKey> {
        Ok(SecretKey::from(self.find(access_key)?.secret))
    }
}

#[async_trait::async_trait]
impl S3Access for Entrance {
    async fn check(&self, cx: &mut S3AccessContext<'_>) -> S3Result<()> {
        let shown = cx.credentials().ok_or_else(unsigned)?;
        let account = self.find(&shown.access_key)?.account;
        cx.extensions_mut().insert(Caller { account });
        Ok(())
    }
}
