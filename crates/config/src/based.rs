//! Where do relative paths of a configuration begin? At the folder of its file, wherever the program was started.
//!
//! ```text
//! key that holds a path, or a text unix:PATH -> relative? -> FOLDER/PATH
//! ```

use std::borrow::Cow;
use std::path::Path;

use toml::de::DeValue;

use crate::keys::Keys;

/// Keys of any table whose value is a path.
const PATHS: [&str; 13] = [
    "authority",
    "certificate",
    "client_ca",
    "data_dir",
    "file",
    "key",
    "key_file",
    "node_key_file",
    "password_file",
    "path",
    "redb",
    "trace",
    "vhost-user",
];

/// The folder of the file `origin`; empty for what is in this one, or in no file.
pub(crate) fn folder(origin: &str) -> &Path {
    Path::new(origin).parent().unwrap_or(Path::new(""))
}

/// Has the relative paths in the value of `key` begin at `folder`.
pub(crate) fn begin(folder: &Path, key: &str, value: &mut DeValue<'_>) {
    match value {
        DeValue::String(text) => {
            if let Some(begun) = begun(folder, key, text) {
                *text = Cow::Owned(begun);
            }
        }
        DeValue::Array(all) => {
            for one in all.iter_mut() {
                begin(folder, key, one.get_mut());
            }
        }
        _ => {}
    }
}

/// The text of `key` with its path begun at `folder`; `None`: it stays as it is.
fn begun(folder: &Path, key: &str, text: &str) -> Option<String> {
    let own_model = key == "model" && (text.ends_with(".toml") || text.contains('/'));
    let (scheme, path) = match text.strip_prefix("unix:") {
        Some(path) => ("unix:", path),
        None if own_model || PATHS.contains(&key) => ("", text),
        None => return None,
    };
    let stays = path.is_empty() || Path::new(path).is_absolute() || folder.as_os_str().is_empty();
    (!stays).then(|| format!("{scheme}{}", folder.join(path).display()))
}

/// Complains where the record of a hybrid's cache lies in the data directory that a relative path meant before: at the folder
/// that the program was started in.
pub(crate) fn check_moved(keys: &Keys<'_, '_>, data_dir: &Path, hybrid: &str) {
    let folder = keys.folder();
    let record = Path::new("pairs").join(format!("{hybrid}.json"));
    let Some(before) = data_dir
        .strip_prefix(folder)
        .ok()
        .filter(|_| !folder.as_os_str().is_empty())
    else {
        return;
    };
    let has = |dir: &Path| dir.join(&record).exists();
    if before.is_absolute() || has(data_dir) || !has(before) {
        return;
    }
    let before = std::path::absolute(before).unwrap_or_else(|_| before.to_owned());
    let what = format!(
        "relative paths begin at the folder of this file, which makes it {}, but the record of {hybrid}'s cache is in {}: \
         write that, or move it",
        data_dir.display(),
        before.display()
    );
    keys.complain("data_dir", what);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_relative_path_begins_at_the_folder_of_its_file() {
        let at = |origin: &str, key: &str, text: &str| {
            begun(folder(origin), key, text).unwrap_or(text.to_owned())
        };
        let file = "/etc/x/t.toml";
        for (key, text, expected) in [
            ("path", "a.img", "/etc/x/a.img"),
            ("path", "/dev/sdb", "/dev/sdb"),
            ("nbd", "unix:run/a.sock", "unix:/etc/x/run/a.sock"),
            ("nbd", "unix:/run/a.sock", "unix:/run/a.sock"),
            ("nbd", "127.0.0.1:10809", "127.0.0.1:10809"),
            ("model", "hdd-7200-sata", "hdd-7200-sata"),
            ("model", "own.toml", "/etc/x/own.toml"),
            ("name", "a", "a"),
            ("path", "", ""),
        ] {
            assert_eq!(at(file, key, text), expected, "{key} = {text}");
        }
        for here in ["t.toml", "the built-in configuration", ""] {
            assert_eq!(at(here, "path", "a.img"), "a.img", "{here}");
        }
        assert_eq!(at("conf/t.toml", "path", "a.img"), "conf/a.img");
    }
}
