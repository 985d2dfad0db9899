//! What the data threads, the admin API and the commands share: files of the data directory, addresses, words.

pub mod address;
pub mod certificates;
pub mod differences;
pub mod disk_identity;
pub mod guests;
pub mod heartbeat;
pub mod http_tls;
pub mod level_file;
pub mod log;
pub mod pairs;
pub mod polling;
pub mod registry;
pub mod repair_text;
pub mod restart;
pub mod revocation;
pub mod saved_settings;
pub mod secrets;
pub mod socket_folder;
pub mod starts;
pub mod users;
pub mod volume_mode;
pub mod waiting;
pub mod when;
pub mod whole_file;
