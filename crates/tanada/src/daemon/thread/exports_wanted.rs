//! What is different between the exports there are and those that are wanted. Pure.

use config::ExportConfig;
use env::net::Address;

use super::caps::is_but_capped;

/// What becomes of exports.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Difference {
    /// They end.
    pub gone: Vec<ExportConfig>,
    /// They begin.
    pub new: Vec<ExportConfig>,
}

impl Difference {
    pub fn between(before: &[ExportConfig], after: &[ExportConfig]) -> Difference {
        let only_in = |one: &[ExportConfig], other: &[ExportConfig]| {
            let stays = |it: &&ExportConfig| other.iter().any(|other| is_but_capped(it, other));
            one.iter().filter(|it| !stays(it)).cloned().collect()
        };
        Difference {
            gone: only_in(before, after),
            new: only_in(after, before),
        }
    }
}

/// The export of clients that ask for none by its name: the first device, else the first volume.
pub fn default_at<'a>(
    exports: &'a [ExportConfig],
    address: &Address,
) -> Option<(&'a str, &'a str)> {
    let here = exports.iter().filter(|export| export.nbd.contains(address));
    let first = here.min_by_key(|export| export.volume.is_some())?;
    Some((&first.name, &first.device))
}

/// Those of `exports` that NBD clients find at an address.
pub fn at<'a>(
    exports: &'a [ExportConfig],
    address: &'a Address,
) -> impl Iterator<Item = &'a ExportConfig> {
    exports.iter().filter(|export| export.nbd.contains(address))
}

/// How many gates an address has: as many as the export with the most of them says.
pub fn gates_at(exports: &[ExportConfig], address: &Address) -> u32 {
    let gates = at(exports, address).map(|export| export.gates);
    gates.max().unwrap_or(0)
}

/// All addresses of NBD, each once.
pub fn addresses(exports: &[ExportConfig]) -> Vec<&Address> {
    let mut all: Vec<&Address> = Vec::new();
    for address in exports.iter().flat_map(|export| &export.nbd) {
        if !all.contains(&address) {
            all.push(address);
        }
    }
    all
}

/// Where the number of gates would be another one: threads are there from the start on.
pub fn other_gates(before: &[ExportConfig], after: &[ExportConfig]) -> Option<Address> {
    let stays = |address: &&Address| at(after, address).next().is_some();
    let differs = |address: &&Address| gates_at(before, address) != gates_at(after, address);
    let mut all = addresses(before).into_iter().filter(stays);
    all.find(differs).cloned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exports(text: &str) -> Vec<ExportConfig> {
        let mut whole = String::new();
        for name in ["a", "b", "c"] {
            whole.push_str(&format!(
                "[[device]]\nname = \"{name}\"\nmemory = true\nsize = \"8MiB\"\n"
            ));
        }
        for line in text.lines() {
            whole.push_str(&format!("[[export]]\n{}\n", line.replace("; ", "\n")));
        }
        config::read(&whole, "test", None).unwrap().exports
    }

    fn names(before: &str, after: &str) -> [Vec<String>; 2] {
        let found = Difference::between(&exports(before), &exports(after));
        [found.gone, found.new].map(|all| all.into_iter().map(|it| it.name).collect())
    }

    const BEFORE: &str =
        "device = \"a\"; nbd = \"unix:x\"; max_read = \"10MB/s\"\ndevice = \"b\"; nbd = \"unix:x\"";

    #[test]
    fn an_export_that_differs_in_its_caps_alone_stays() {
        let nothing: [Vec<String>; 2] = [vec![], vec![]];
        assert_eq!(names(BEFORE, BEFORE), nothing);
        let other = BEFORE.replace("10MB/s", "20MB/s");
        assert_eq!(names(BEFORE, &other), nothing);
        let none = BEFORE.replace("; max_read = \"10MB/s\"", "");
        let again = [["a"], ["a"]];
        assert_eq!(names(BEFORE, &none), again, "its clients pass no cap");
        let second = "device = \"b\"; nbd = \"unix:x\"";
        let only = BEFORE.replace(second, "device = \"b\"; nbd = \"unix:x\"; read_only = true");
        assert_eq!(names(BEFORE, &only), [["b"], ["b"]]);
        let one = BEFORE.lines().next().unwrap();
        assert_eq!(names(BEFORE, one), [vec!["b"], vec![]]);
        assert_eq!(names(one, BEFORE), [vec![], vec!["b"]]);
    }

    #[test]
    fn who_names_no_export_gets_the_first_device_of_the_address() {
        let at = "unix:x".parse().unwrap();
        let (both, one) = (exports(BEFORE), exports(BEFORE.lines().next().unwrap()));
        assert_eq!(default_at(&both, &at), Some(("a", "a")));
        assert_eq!(default_at(&both, &at), default_at(&one, &at));
        assert_eq!(default_at(&both[1..], &at), Some(("b", "b")));
        assert_eq!(default_at(&both, &"unix:y".parse().unwrap()), None);
    }

    #[test]
    fn an_address_has_its_gates_from_the_start_on() {
        let other = |before: &str, after: &str| other_gates(&exports(before), &exports(after));
        let (two, one) = (BEFORE, BEFORE.lines().next().unwrap());
        let gates = BEFORE.replace("max_read", "gates = 2; max_read");
        assert_eq!(other(two, one), None);
        assert_eq!(other(&gates, &gates), None);
        assert_eq!(other(two, &gates), Some("unix:x".parse().unwrap()));
        let elsewhere = gates.replacen("unix:x", "unix:y", 1);
        assert_eq!(other(two, &elsewhere), None, "a new address may have any");
    }
}
