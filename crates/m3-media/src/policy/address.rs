//! Which IP addresses are on the public internet. A table, from IANA's registries of special-purpose addresses, with the
//! clouds' metadata services that have public-looking ones; no input or output.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// IPv4 networks that are not the public internet: address, length of the prefix.
const RESERVED_V4: &[([u8; 4], u32)] = &[
    ([0, 0, 0, 0], 8),        // this network
    ([10, 0, 0, 0], 8),       // private
    ([100, 64, 0, 0], 10),    // carrier-grade NAT, and Alibaba's metadata (100.100.100.200)
    ([127, 0, 0, 0], 8),      // loopback
    ([168, 63, 129, 16], 32), // Azure's wire server
    ([169, 254, 0, 0], 16),   // link-local, and most clouds' metadata
    ([172, 16, 0, 0], 12),    // private
    ([192, 0, 0, 0], 24),     // protocol assignments, and Oracle's metadata (192.0.0.192)
    ([192, 0, 2, 0], 24),     // documentation
    ([192, 31, 196, 0], 24),  // AS112
    ([192, 52, 193, 0], 24),  // AMT
    ([192, 88, 99, 0], 24),   // 6to4 relays
    ([192, 168, 0, 0], 16),   // private
    ([192, 175, 48, 0], 24),  // AS112
    ([198, 18, 0, 0], 15),    // benchmarks
    ([198, 51, 100, 0], 24),  // documentation
    ([203, 0, 113, 0], 24),   // documentation
    ([224, 0, 0, 0], 4),      // multicast
    ([240, 0, 0, 0], 4),      // reserved, broadcast
];

/// IPv6 networks inside 2000::/3 that are not the public internet: first two groups, length of the prefix (at most 32).
const RESERVED_V6: &[([u16; 2], u32)] = &[
    ([0x2001, 0x0000], 23), // protocol assignments, Teredo and its embedded IPv4 among them
    ([0x2001, 0x0db8], 32), // documentation
    ([0x2002, 0x0000], 16), // 6to4: any IPv4 address inside
    ([0x3fff, 0x0000], 20), // documentation
];

/// Whether `address` can be a host of the public internet. IPv4 in the dress of IPv6 is judged as IPv4.
pub fn is_public(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(address) => public_v4(address),
        IpAddr::V6(address) => public_v6(address),
    }
}

fn public_v4(address: Ipv4Addr) -> bool {
    let bits = address.to_bits();
    !RESERVED_V4.iter().any(|(network, length)| (bits ^ u32::from_be_bytes(*network)) >> (32 - length) == 0)
}

/// Global unicast is 2000::/3; everything else (loopback, unique-local, link-local, multicast, NAT64, discard) is not.
fn public_v6(address: Ipv6Addr) -> bool {
    let groups = address.segments();
    let start = u32::from(groups[0]) << 16 | u32::from(groups[1]);
    groups[0] >> 13 == 1
        && !RESERVED_V6.iter().any(|(network, length)| {
            (start ^ (u32::from(network[0]) << 16 | u32::from(network[1]))) >> (32 - length) == 0
        })
}
