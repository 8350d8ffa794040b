//! The port to listen on, and the cards that move pages between machines.

use std::net::{SocketAddr, TcpListener};

use super::{Check, Machine};
use crate::args::Options;

pub(super) fn checks(machine: &Machine, plan: &Options) -> Vec<Check> {
    let address = SocketAddr::new(plan.http.host, plan.http.port);
    let mut checks = vec![port(address)];
    if !address.ip().is_loopback() && plan.http.access.api_keys.is_empty() {
        let finding = format!("{} is reachable from outside, and no key is set", address.ip());
        checks.push(Check::warning(
            "network",
            "keys",
            finding,
            "give --api-key-file, or listen on 127.0.0.1",
        ));
    }
    let cards = machine.names("/sys/class/infiniband");
    if !cards.is_empty() {
        checks.push(Check::good("network", "RDMA cards", cards.join(", ")));
    }
    checks
}

/// Taken for a moment and given back.
fn port(address: SocketAddr) -> Check {
    match TcpListener::bind(address) {
        Ok(_) => Check::good("network", "port", format!("{address} is free")),
        Err(error) => {
            let remedy = "end what listens there, or give another --port (0 takes a free one)";
            Check::problem("network", "port", format!("cannot listen on {address}: {error}"), remedy)
        }
    }
}
