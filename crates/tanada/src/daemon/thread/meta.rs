//! The meta store of this node's cluster, opened as its configuration says.

use std::rc::Rc;

use anyhow::Context;
use config::cluster::{self, MetaConfig};
use vdisk::meta::{Etcd, EtcdConfig, EtcdTls, MetaStore, Redb};

use crate::daemon::common::secrets;

/// The meta store, as long as it is used.
pub enum Meta {
    Redb(Redb),
    Etcd(Etcd),
}

impl Meta {
    pub fn open(config: &MetaConfig) -> anyhow::Result<Meta> {
        let etcd = match config {
            MetaConfig::Redb(path) => {
                if let Some(dir) = path.parent().filter(|dir| !dir.as_os_str().is_empty()) {
                    std::fs::create_dir_all(dir).with_context(|| {
                        format!("[cluster] meta: cannot make {}", dir.display())
                    })?;
                }
                return Ok(Meta::Redb(Redb::open(path)?));
            }
            MetaConfig::Etcd(etcd) => etcd,
        };
        Ok(Meta::Etcd(Etcd::new(&etcd_config(etcd)?)?))
    }

    pub fn client(&self) -> Rc<dyn MetaStore> {
        match self {
            Meta::Redb(redb) => redb.handle().client(),
            Meta::Etcd(etcd) => etcd.handle().client(),
        }
    }
}

fn etcd_config(etcd: &cluster::EtcdConfig) -> anyhow::Result<EtcdConfig> {
    let read = |path: &std::path::PathBuf| {
        let said = || format!("[cluster] meta: cannot read {}", path.display());
        std::fs::read(path).with_context(said)
    };
    let private = |path: &std::path::Path, what: &str| {
        secrets::read_private(path, what).context("[cluster] meta")
    };
    let own = match &etcd.own {
        Some((certificate, key)) => Some((read(certificate)?, private(key, "the key")?)),
        None => None,
    };
    let tls = match &etcd.authority {
        Some(authority) => Some(EtcdTls {
            authority: read(authority)?,
            own,
        }),
        None => None,
    };
    let user = match &etcd.user {
        Some((user, file)) => {
            let password = String::from_utf8(private(file, "the password file")?)
                .with_context(|| format!("[cluster] meta: {} is no text", file.display()))?;
            Some((user.clone(), password.trim_end().to_owned()))
        }
        None => None,
    };
    Ok(EtcdConfig {
        endpoints: etcd.endpoints.clone(),
        prefix: etcd.prefix.clone(),
        tls,
        user,
        ..EtcdConfig::default()
    })
}
