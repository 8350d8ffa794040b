//! Names to addresses, each address checked. What this returns is what the connection is made to: between check and
//! connection there is no second lookup that could answer otherwise.

use crate::error::{Error, Result};
use crate::policy::Policy;
use futures_util::future::BoxFuture;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// Finds the addresses of a name; tests put their own here.
pub trait Lookup: Send + Sync {
    /// All addresses of `host`; an empty list means that there are none.
    fn lookup(&self, host: String) -> BoxFuture<'static, std::io::Result<Vec<IpAddr>>>;
}

/// The system's resolver.
pub struct SystemLookup;

impl Lookup for SystemLookup {
    fn lookup(&self, host: String) -> BoxFuture<'static, std::io::Result<Vec<IpAddr>>> {
        Box::pin(async move {
            let found = tokio::net::lookup_host((host.as_str(), 0)).await?;
            Ok(found.map(|address| address.ip()).collect())
        })
    }
}

/// A resolver that refuses a name if any of its addresses is refused: a name with a public and a private answer is an
/// attack or a mistake, not half of a good one.
pub(super) struct Checked {
    policy: Arc<Policy>,
    lookup: Arc<dyn Lookup>,
}

impl Checked {
    pub(super) fn new(policy: Arc<Policy>, lookup: Arc<dyn Lookup>) -> Checked {
        Checked { policy, lookup }
    }
}

impl Resolve for Checked {
    fn resolve(&self, name: Name) -> Resolving {
        let host = name.as_str().trim_end_matches('.').to_ascii_lowercase();
        let (policy, found) = (self.policy.clone(), self.lookup.lookup(host.clone()));
        Box::pin(async move {
            let addresses = checked(&policy, &host, found.await)?;
            Ok(Box::new(addresses.into_iter().map(|address| SocketAddr::new(address, 0))) as Addrs)
        })
    }
}

fn checked(policy: &Policy, host: &str, found: std::io::Result<Vec<IpAddr>>) -> Result<Vec<IpAddr>> {
    let addresses = found.unwrap_or_default();
    if addresses.is_empty() {
        return Err(Error::Refused(format!("the host \"{host}\" has no address")));
    }
    for address in &addresses {
        policy.check_address(host, *address)?;
    }
    Ok(addresses)
}
