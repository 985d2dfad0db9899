//! The addresses of a data thread, all listened at before anything else of it is opened.

use env::net::{Address, Listener};
use front::nbd;

use super::entrances::listen::{
    listen, listen_for_clients, listen_for_machines, listen_for_objects, read_tls,
};
use super::plan::Plan;
use super::thread::unserved::Unserved;

/// Where clients of a data thread come. Opened first: a port that is taken is found before any disk is touched.
pub struct Listeners {
    pub exports: Vec<(Address, Listener, Option<nbd::Tls>)>,
    /// Where virtual machines connect.
    pub sockets: Unserved,
    /// Those of each store.
    pub stores: Vec<Vec<(Address, Listener)>>,
    pub cluster: (Option<nbd::Tls>, Vec<(Address, Listener)>),
}

impl Listeners {
    pub async fn open(plan: &Plan) -> anyhow::Result<Listeners> {
        let mut exports: Vec<(Address, Listener, Option<nbd::Tls>)> = Vec::new();
        for export in &plan.exports {
            for address in &export.nbd {
                if exports.iter().all(|(known, _, _)| known != address) {
                    let tls = export.tls.as_ref().map(read_tls).transpose()?;
                    let listener = listen_for_clients(address, plan.socket_mode).await?;
                    exports.push((address.clone(), listener, tls));
                }
            }
        }
        let mut sockets = Unserved::default();
        for export in &plan.exports {
            if let Some(address) = &export.vhost_user {
                let listener = listen_for_machines(address, plan.socket_mode).await?;
                sockets.put(address, listener);
            }
        }
        let mut stores = Vec::new();
        for store in &plan.stores {
            let mut listeners = Vec::new();
            for address in &store.listen {
                let listener = listen_for_objects(address, plan.socket_mode).await?;
                listeners.push((address.clone(), listener));
            }
            stores.push(listeners);
        }
        let tls = plan.cluster.as_ref().and_then(|it| it.tls.as_ref());
        let tls = tls.map(read_tls).transpose()?;
        let mut entrances = Vec::new();
        for address in plan.cluster.iter().flat_map(|cluster| &cluster.nbd) {
            let what = ("NBD clients", "[cluster] nbd");
            let listener = listen(address, plan.socket_mode, what).await?;
            entrances.push((address.clone(), listener));
        }
        Ok(Listeners {
            exports,
            sockets,
            stores,
            cluster: (tls, entrances),
        })
    }
}
