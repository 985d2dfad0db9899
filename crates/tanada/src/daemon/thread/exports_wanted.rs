//! What is different between the exports there are and those that are wanted. Pure.

use config::ExportConfig;
use env::net::Address;

use super::caps::is_but_capped;

/// What becomes of exports.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Difference {
    /// They end.
    pub gone: Vec<Gone>,
    /// They begin.
    pub new: Vec<ExportConfig>,
}

/// An export that ends.
#[derive(Debug, Clone, PartialEq)]
pub struct Gone {
    pub export: ExportConfig,
    /// NBD clients that come again find the same under its name, on other terms.
    pub returns: bool,
}

impl Difference {
    pub fn between(before: &[ExportConfig], after: &[ExportConfig]) -> Difference {
        let stays = |one: &ExportConfig, all: &[ExportConfig]| {
            all.iter().any(|other| is_but_capped(one, other))
        };
        let gone = before.iter().filter(|it| !stays(it, after));
        let gone = gone.map(|export| Gone {
            export: export.clone(),
            returns: after.iter().any(|other| is_found_again(export, other)),
        });
        Difference {
            gone: gone.collect(),
            new: (after.iter().filter(|it| !stays(it, before)).cloned()).collect(),
        }
    }
}

/// Do clients of the one that come again, wherever they came, find the same data at the other?
fn is_found_again(one: &ExportConfig, other: &ExportConfig) -> bool {
    one.name == other.name
        && one.device == other.device
        && one.nbd.iter().all(|address| other.nbd.contains(address))
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

    fn names(before: &str, after: &str) -> (Vec<(String, bool)>, Vec<String>) {
        let found = Difference::between(&exports(before), &exports(after));
        let gone = found.gone.into_iter();
        (
            gone.map(|it| (it.export.name, it.returns)).collect(),
            found.new.into_iter().map(|it| it.name).collect(),
        )
    }

    const BEFORE: &str =
        "device = \"a\"; nbd = \"unix:x\"; max_read = \"10MB/s\"\ndevice = \"b\"; nbd = \"unix:x\"";

    #[test]
    fn an_export_that_differs_in_its_caps_alone_stays() {
        let nothing = (vec![], vec![]);
        assert_eq!(names(BEFORE, BEFORE), nothing);
        let other = BEFORE.replace("10MB/s", "20MB/s");
        assert_eq!(names(BEFORE, &other), nothing);
        let none = BEFORE.replace("; max_read = \"10MB/s\"", "");
        let again = (vec![("a".to_owned(), true)], vec!["a".to_owned()]);
        assert_eq!(names(BEFORE, &none), again, "its clients pass no cap");
    }

    #[test]
    fn clients_find_an_export_again_where_name_data_and_address_are_the_same() {
        let second = "device = \"b\"; nbd = \"unix:x\"";
        let with = |other: &str| names(BEFORE, &BEFORE.replace(second, other));
        let gone = |returns| vec![("b".to_owned(), returns)];
        for (other, returns) in [
            ("device = \"b\"; nbd = \"unix:x\"; read_only = true", true),
            ("device = \"b\"; nbd = [\"unix:x\", \"unix:y\"]", true),
            ("device = \"b\"; nbd = \"unix:y\"", false),
            ("device = \"c\"; nbd = \"unix:x\"; name = \"b\"", false),
        ] {
            assert_eq!(
                with(other),
                (gone(returns), vec!["b".to_owned()]),
                "{other}"
            );
        }
        let one = BEFORE.lines().next().unwrap();
        assert_eq!(names(BEFORE, one), (gone(false), vec![]));
        assert_eq!(names(one, BEFORE), (vec![], vec!["b".to_owned()]));
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
