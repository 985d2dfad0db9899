//! Users and groups of this machine: their numbers and names, as the system's name service has them.
//!
//! ```text
//! ann | 1001 -> 1001 -> ann, or 1001 where no name is known
//! ```
//!
//! Records hold numbers: they are what the kernel says of a peer.

use nix::unistd::{Gid, Group, Uid, User};

/// The number of a user, by its name or number.
///
/// # Errors
/// No such user, or the name service does not answer.
pub fn user(text: &str) -> Result<u32, String> {
    if let Ok(number) = text.parse() {
        return Ok(number);
    }
    match User::from_name(text) {
        Ok(Some(user)) => Ok(user.uid.as_raw()),
        Ok(None) => Err(format!("this machine knows no user {text:?}")),
        Err(error) => Err(format!("user {text:?} cannot be looked up: {error}")),
    }
}

/// The number of a group, by its name or number.
///
/// # Errors
/// As for [`user`].
pub fn group(text: &str) -> Result<u32, String> {
    if let Ok(number) = text.parse() {
        return Ok(number);
    }
    match Group::from_name(text) {
        Ok(Some(group)) => Ok(group.gid.as_raw()),
        Ok(None) => Err(format!("this machine knows no group {text:?}")),
        Err(error) => Err(format!("group {text:?} cannot be looked up: {error}")),
    }
}

/// A user's name, else its number.
pub fn user_name(number: u32) -> String {
    let known = User::from_uid(Uid::from_raw(number)).ok().flatten();
    known.map_or_else(|| number.to_string(), |user| user.name)
}

/// A group's name, else its number.
pub fn group_name(number: u32) -> String {
    let known = Group::from_gid(Gid::from_raw(number)).ok().flatten();
    known.map_or_else(|| number.to_string(), |group| group.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_has_number_0_and_a_stranger_none() {
        assert_eq!(user("root"), Ok(0));
        assert_eq!(group("root"), Ok(0));
        assert_eq!((user("1001"), user_name(0)), (Ok(1001), "root".to_owned()));
        assert_eq!(group_name(0), "root");
        assert!(user("no such user").unwrap_err().contains("knows no user"));
        assert!(
            group("no such group")
                .unwrap_err()
                .contains("knows no group")
        );
        assert_eq!(user_name(4_000_000_000), "4000000000");
    }
}
