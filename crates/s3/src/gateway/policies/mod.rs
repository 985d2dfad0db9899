//! Policies of buckets: what an account may do there, in Amazon's JSON.
//!
//! ```text
//! JSON -> Policy, or why it is not understood
//! Policy + facts of a request -> a statement denies? Deny : one allows? Allow : Silent
//! ```
//!
//! - `json` the text, `action` names of what is done, `condition` comparisons, `pattern` wildcards.
//!
//! Pure: no index, no clock, no request. The gateway asks it beside the access control lists.
//!
//! Source: the IAM policy language of 2012-10-17, and what of it Amazon S3 lets a bucket's policy have.
//!
//! Always true:
//! 1. What is not understood is refused when a policy is put: nothing in a policy is ignored.
//! 2. A statement that denies wins over all that allow.
//! 3. Where a fact is missing that a condition asks for, what denies holds and what allows does not.

mod action;
mod condition;
mod json;
mod pattern;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

pub use action::Action;
use condition::Condition;
pub use condition::{REQUEST_TAG, SECURE, SOURCE_IP};
use json::{Document, Named, Principal, Written};
pub use pattern::matches;

/// The longest policy, in bytes.
pub const POLICY_MAX: usize = 20 << 10;
/// The most bytes of all patterns behind their first `*`: a request is compared with each of them.
const PATTERNS_MAX: usize = 1 << 10;
/// Of all resources.
const ARN: &str = "arn:aws:s3:::";

/// Why a text is no policy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the policy is not understood: {0}")]
pub struct PolicyError(pub String);

/// What a policy says of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// A statement allows it, and none denies it.
    Allow,
    /// A statement denies it.
    Deny,
    /// No statement is about it.
    Silent,
}

/// What is asked, and what the request says beside.
pub struct Facts<'a> {
    /// Of the caller.
    pub account: &'a str,
    /// What is done.
    pub action: Action,
    /// The name of the bucket, or that, a slash and the key of the object.
    pub resource: &'a str,
    /// By the key of a condition; what is not in it was left out of the request.
    pub said: &'a BTreeMap<String, String>,
    /// Of the object that there is; `None`: it was not looked at.
    pub tags: Option<&'a BTreeMap<String, String>>,
}

impl Facts<'_> {
    /// What a condition compares: the outer `None` says that it is not known, the inner one that the request has none.
    fn value(&self, key: &str) -> Option<Option<String>> {
        if let Some(tag) = key.strip_prefix(condition::EXISTING_TAG) {
            return self.tags.map(|tags| tags.get(tag).cloned());
        }
        let said = self.said.get(key).cloned();
        match key {
            // Each request comes from somewhere: what is not there was not passed on.
            SOURCE_IP | SECURE => said.map(Some),
            _ => Some(said),
        }
    }
}

/// A policy that is understood.
#[derive(Debug, Clone)]
pub struct Policy(Vec<Statement>);

#[derive(Debug, Clone)]
struct Statement {
    denies: bool,
    /// `None`: every account.
    accounts: Option<Vec<String>>,
    /// In lower case.
    actions: Vec<String>,
    /// All but these.
    not_actions: bool,
    resources: Vec<String>,
    conditions: Vec<Condition>,
}

/// The account that a policy names, as it is to be found by.
pub type FindAccount<'a> = &'a dyn Fn(&str) -> Option<String>;

impl Policy {
    /// Reads a policy of `bucket`; `find` has the accounts that it may name.
    ///
    /// # Errors
    /// What of it is not understood.
    pub fn parse(text: &str, bucket: &str, find: FindAccount<'_>) -> Result<Policy, PolicyError> {
        let bad = |why: String| PolicyError(why);
        if text.len() > POLICY_MAX {
            let len = text.len();
            return Err(bad(format!("{len} bytes are more than {POLICY_MAX}")));
        }
        let document: Document =
            serde_json::from_str(text).map_err(|error| bad(error.to_string()))?;
        let version = document.version.as_deref().unwrap_or("2008-10-17");
        if !["2012-10-17", "2008-10-17"].contains(&version) {
            return Err(bad(format!("Version is 2012-10-17, not {version:?}")));
        }
        let written = document.statement.0.into_iter();
        let statements = written.map(|it| Statement::of(it, bucket, find));
        let policy = Policy(statements.collect::<Result<_, _>>()?);
        if policy.0.is_empty() {
            return Err(bad("it has no statement".to_owned()));
        }
        let cost: usize = policy.0.iter().map(Statement::cost).sum();
        match cost > PATTERNS_MAX {
            true => Err(bad(format!(
                "its patterns have {cost} bytes behind their first *, and {PATTERNS_MAX} are the most"
            ))),
            false => Ok(policy),
        }
    }

    /// What it says of this.
    pub fn judge(&self, facts: &Facts<'_>) -> Verdict {
        let concerned = |denies| {
            let mut of_kind = self.0.iter().filter(move |it| it.denies == denies);
            of_kind.any(|it| it.concerns(facts) && it.is_met(facts))
        };
        match (concerned(true), concerned(false)) {
            (true, _) => Verdict::Deny,
            (false, true) => Verdict::Allow,
            (false, false) => Verdict::Silent,
        }
    }

    /// Does it allow something to all accounts, wherever they are?
    pub fn is_public(&self) -> bool {
        let narrow = |it: &Statement| it.conditions.iter().any(Condition::is_narrow);
        let mut all = self.0.iter();
        all.any(|it| !it.denies && it.accounts.is_none() && !narrow(it))
    }
}

impl Statement {
    fn of(written: Written, bucket: &str, find: FindAccount<'_>) -> Result<Statement, PolicyError> {
        let bad = |why: String| PolicyError(why);
        let denies = match &*written.effect {
            "Allow" => false,
            "Deny" => true,
            other => return Err(bad(format!("Effect is Allow or Deny, not {other:?}"))),
        };
        let (actions, not_actions) = match (written.action, written.not_action) {
            (Some(actions), None) => (actions, false),
            (None, Some(actions)) => (actions, true),
            _ => return Err(bad("a statement has Action or NotAction".to_owned())),
        };
        let actions = actions.0.into_iter().map(|it| action(&it.0));
        let resources = written
            .resource
            .0
            .into_iter()
            .map(|it| resource(&it.0, bucket));
        let statement = Statement {
            denies,
            accounts: accounts(written.principal, find)?,
            actions: actions.collect::<Result<_, _>>()?,
            not_actions,
            resources: resources.collect::<Result<_, _>>()?,
            conditions: conditions(written.condition)?,
        };
        match statement.actions.is_empty() || statement.resources.is_empty() {
            true => Err(bad("a list of actions or resources is empty".to_owned())),
            false => Ok(statement),
        }
    }

    fn concerns(&self, facts: &Facts<'_>) -> bool {
        let name = facts.action.name().to_ascii_lowercase();
        let named = self.actions.iter().any(|it| matches(it, &name));
        let is_one = |all: &Vec<String>| all.iter().any(|it| it == facts.account);
        named != self.not_actions
            && self.accounts.as_ref().is_none_or(is_one)
            && self.resources.iter().any(|it| matches(it, facts.resource))
    }

    /// Do all conditions hold? What is not known counts against the request.
    fn is_met(&self, facts: &Facts<'_>) -> bool {
        let mut conditions = self.conditions.iter();
        conditions.all(|it| it.holds(facts).unwrap_or(self.denies))
    }

    fn cost(&self) -> usize {
        let patterns = self.actions.iter().chain(&self.resources);
        let patterns: usize = patterns.map(|it| pattern::cost(it)).sum();
        patterns + self.conditions.iter().map(Condition::cost).sum::<usize>()
    }
}

/// A pattern of actions, in lower case.
fn action(text: &str) -> Result<String, PolicyError> {
    let lower = text.to_ascii_lowercase();
    let mut all = Action::ALL.iter();
    match all.any(|it| matches(&lower, &it.name().to_ascii_lowercase())) {
        true => Ok(lower),
        false => Err(PolicyError(format!(
            "no action of this gateway is called {text:?}"
        ))),
    }
}

/// A pattern of a bucket, or of objects in it.
fn resource(text: &str, bucket: &str) -> Result<String, PolicyError> {
    let pattern = text.strip_prefix(ARN).filter(|it| !it.contains("${"));
    match pattern.filter(|it| pattern::reaches(it, bucket)) {
        Some(pattern) => Ok(pattern.to_owned()),
        None => Err(PolicyError(format!(
            "resource {text:?} is nothing of this bucket: write {ARN}{bucket} or {ARN}{bucket}/KEY"
        ))),
    }
}

/// The accounts that are named; `None`: all.
fn accounts(
    principal: Principal,
    find: FindAccount<'_>,
) -> Result<Option<Vec<String>>, PolicyError> {
    let bad = |text: &str| {
        PolicyError(format!(
            "principal {text:?}: write \"*\", or {{\"AWS\": \"arn:aws:iam::ACCOUNT:root\"}} of an account with an access key"
        ))
    };
    let named = match principal {
        Principal::Word(word) if word == "*" => return Ok(None),
        Principal::Word(word) => return Err(bad(&word)),
        Principal::Of(Named(named)) => named,
    };
    let (mut found, mut every) = (Vec::new(), false);
    for (kind, texts) in named {
        for text in texts.0 {
            if kind == "AWS" && text.0 == "*" {
                every = true;
                continue;
            }
            let name = match &*kind {
                "AWS" => name_of(&text.0),
                "CanonicalUser" => Some(&*text.0),
                _ => None,
            };
            let account = name.and_then(find);
            found.push(account.ok_or_else(|| bad(&text.0))?);
        }
    }
    match (every, found.is_empty()) {
        (true, _) => Ok(None),
        (false, true) => Err(bad("")),
        (false, false) => Ok(Some(found)),
    }
}

/// The name in `arn:aws:iam::NAME:root`, `arn:aws:iam:::user/NAME` or `NAME`.
fn name_of(text: &str) -> Option<&str> {
    let Some(rest) = text.strip_prefix("arn:aws:iam::") else {
        return (!text.starts_with("arn:")).then_some(text);
    };
    rest.strip_suffix(":root").or(rest.strip_prefix(":user/"))
}

/// What is written under `Condition`.
type Comparisons = Named<Named<json::Many<json::Text>>>;

fn conditions(written: Option<Comparisons>) -> Result<Vec<Condition>, PolicyError> {
    let mut all = Vec::new();
    for (operator, keys) in written.into_iter().flat_map(|it| it.0) {
        for (key, values) in keys.0 {
            let values = values.0.into_iter().map(|it| it.0).collect();
            all.push(Condition::parse(&operator, &key, values)?);
        }
    }
    Ok(all)
}
