//! What accounts are called: `astro`, and its projects `astro/lsst`.
//!
//! Always true of an [`AccountName`]: it is one or two names of volumes' kind, so it fits into a key, a path and a line.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use vdisk::record::Name;

/// The name of an account, `a`, or of a project of it, `a/b`.
///
/// # Example
/// ```
/// use access::name::AccountName;
/// let project: AccountName = "astro/lsst".parse()?;
/// assert_eq!(project.parent().unwrap().as_str(), "astro");
/// assert!("astro//x".parse::<AccountName>().is_err());
/// # Ok::<(), access::name::BadAccountName>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct AccountName(String);

/// Why something is no name of an account.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is no account: write NAME, or ACCOUNT/PROJECT, each 1 to 64 of a-z A-Z 0-9 . _ - that begin with a letter \
     or digit"
)]
pub struct BadAccountName(pub String);

impl AccountName {
    /// As text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The account that a project belongs to.
    pub fn parent(&self) -> Option<AccountName> {
        let (account, _) = self.0.split_once('/')?;
        Some(AccountName(account.to_owned()))
    }

    /// Itself, then the account it belongs to: all whose quotas count.
    pub fn chain(&self) -> Vec<AccountName> {
        let parent = self.parent();
        [Some(self.clone()), parent].into_iter().flatten().collect()
    }
}

impl fmt::Display for AccountName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for AccountName {
    type Err = BadAccountName;

    fn from_str(text: &str) -> Result<AccountName, BadAccountName> {
        let is_name = |part: &str| part.parse::<Name>().is_ok();
        let good = match text.split_once('/') {
            None => is_name(text),
            Some((account, project)) => is_name(account) && is_name(project),
        };
        match good {
            true => Ok(AccountName(text.to_owned())),
            false => Err(BadAccountName(text.chars().take(140).collect())),
        }
    }
}

impl TryFrom<String> for AccountName {
    type Error = BadAccountName;

    fn try_from(text: String) -> Result<AccountName, BadAccountName> {
        text.parse()
    }
}

impl From<AccountName> for String {
    fn from(name: AccountName) -> String {
        name.0
    }
}
