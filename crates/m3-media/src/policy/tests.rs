//! The tables: addresses, domains, and what a policy says to an address's text.

use super::{Domain, Policy, Remote, address::is_public, shown};
use crate::source::Source;
use reqwest::Url;

fn any() -> Policy {
    Policy { remote: Remote::Any, ..Policy::default() }
}

fn refusal(policy: &Policy, text: &str) -> String {
    match Source::parse(text).expect(text) {
        Source::Url(url) => policy.check_url(&url).expect_err(text).to_string(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn addresses_of_inner_networks_are_not_public() {
    for text in [
        "0.0.0.0",
        "0.1.2.3",
        "10.0.0.1",
        "10.255.255.255",
        "100.64.0.1",
        "100.127.255.255",
        "100.100.100.200",
        "127.0.0.1",
        "127.255.255.254",
        "168.63.129.16",
        "169.254.169.254",
        "169.254.170.2",
        "172.16.0.1",
        "172.31.255.255",
        "192.0.0.192",
        "192.0.2.1",
        "192.88.99.1",
        "192.168.0.1",
        "198.18.0.1",
        "198.19.255.255",
        "198.51.100.7",
        "203.0.113.9",
        "224.0.0.1",
        "239.255.255.255",
        "240.0.0.1",
        "255.255.255.255",
        "::",
        "::1",
        "::ffff:127.0.0.1",
        "::ffff:10.0.0.1",
        "::ffff:169.254.169.254",
        "::127.0.0.1",
        "::ffff:0:127.0.0.1",
        "64:ff9b::7f00:1",
        "64:ff9b::a9fe:a9fe",
        "64:ff9b:1::1",
        "100::1",
        "2001::1",
        "2001:0:7f00:1::",
        "2001:db8::1",
        "2002:7f00:1::",
        "2002:a9fe:a9fe::1",
        "3fff::1",
        "5f00::1",
        "fc00::1",
        "fd00:ec2::254",
        "fe80::1",
        "febf::1",
        "fec0::1",
        "ff02::1",
        "ff0e::1",
        "4000::1",
    ] {
        assert!(!is_public(text.parse().expect(text)), "{text}");
    }
}

#[test]
fn public_addresses_are_public() {
    for text in [
        "1.1.1.1",
        "8.8.8.8",
        "9.255.255.255",
        "11.0.0.0",
        "100.63.255.255",
        "100.128.0.0",
        "126.255.255.255",
        "128.0.0.1",
        "168.63.129.15",
        "169.253.255.255",
        "172.15.255.255",
        "172.32.0.0",
        "192.0.1.0",
        "192.167.255.255",
        "192.169.0.0",
        "198.17.255.255",
        "198.20.0.0",
        "223.255.255.255",
        "::ffff:8.8.8.8",
        "2001:200::1",
        "2001:4860:4860::8888",
        "2606:4700::1111",
        "2a00::1",
        "3ffe::1",
    ] {
        assert!(is_public(text.parse().expect(text)), "{text}");
    }
}

#[test]
fn without_flags_no_remote_address_is_asked() {
    let sentence = refusal(&Policy::default(), "https://example.com/a.png");
    assert!(sentence.contains("fetches no remote media") && sentence.contains("--allowed-media-domains"));
}

#[test]
fn literal_addresses_are_judged_in_every_spelling() {
    for text in [
        "http://127.0.0.1/",
        "http://0x7f.1/",
        "http://2130706433/",
        "http://017700000001/",
        "http://127.1/",
        "http://0/",
        "http://0x7f000001/",
        "http://127.0.0.1./",
        "http://[::1]/",
        "http://[::ffff:127.0.0.1]/",
        "http://[::ffff:7f00:1]/",
        "http://[0:0:0:0:0:ffff:127.0.0.1]/",
        "http://[64:ff9b::127.0.0.1]/",
        "http://[::]/",
        "http://169.254.169.254/latest/meta-data",
        "http://0xa9fea9fe/",
        "http://100.100.100.200/",
        "http://[fd00:ec2::254]/",
        "http://168.63.129.16/",
        "http://\u{2460}27.0.0.1/",
        "http://127\u{3002}0.0.1/",
        "http://localhost/",
        "http://LOCALHOST./",
        "http://a.localhost/",
        "http://metadata.google.internal/",
        "http://metadata/",
        "http://printer.local/",
        "http://db.corp/",
    ] {
        let sentence = refusal(&any(), text);
        assert!(sentence.contains("is not on the public internet"), "{text}: {sentence}");
    }
}

#[test]
fn a_list_of_domains_is_exact() {
    let domains = ["example.com", "*.images.example.net", "B\u{fc}cher.example"]
        .map(|text| Domain::parse(text).expect(text));
    let policy = Policy { remote: Remote::Domains(domains.to_vec()), ..Policy::default() };
    let allowed = |text: &str| policy.check_url(&Url::parse(text).expect(text)).is_ok();
    for text in [
        "https://example.com/a",
        "https://EXAMPLE.COM./a",
        "http://example.com:80/",
        "https://a.images.example.net/",
        "https://a.b.images.example.net/",
        "https://b\u{fc}cher.example/",
        "https://xn--bcher-kva.example/",
    ] {
        assert!(allowed(text), "{text}");
    }
    for text in [
        "https://www.example.com/",
        "https://example.com.evil.org/",
        "https://evilexample.com/",
        "https://example.co/",
        "https://images.example.net/",
        "https://evilimages.example.net/",
        "https://127.0.0.1/",
        "https://example.org/",
    ] {
        let sentence = policy.check_url(&Url::parse(text).expect(text)).expect_err(text).to_string();
        assert!(sentence.contains("not one of the allowed media domains"), "{text}: {sentence}");
    }
}

#[test]
fn an_allowed_domain_does_not_allow_its_inner_addresses() {
    let policy =
        Policy { remote: Remote::Domains(vec![Domain::parse("127.0.0.1").expect("a host")]), ..any() };
    assert!(refusal(&policy, "http://127.0.0.1/").contains("is not on the public internet"));
    let network = "127.0.0.0/8".parse().expect("a network");
    let policy = Policy { networks: vec![network], ..policy };
    let url = Url::parse("http://127.0.0.1/").expect("an address");
    assert_eq!(policy.check_url(&url), Ok(()));
    assert!(policy.check_address("a", "::ffff:127.0.0.1".parse().expect("an address")).is_ok());
    assert!(policy.check_address("a", "10.0.0.1".parse().expect("an address")).is_err());
}

#[test]
fn entries_that_are_no_hosts_are_refused() {
    for text in [
        "",
        "*",
        "*.",
        "https://example.com",
        "example.com/a",
        "example.com:443",
        "example.com:80",
        "a*.example.com",
        "a b",
        "user@example.com",
    ] {
        let sentence = Domain::parse(text).expect_err(text).to_string();
        assert!(sentence.contains("is not a media domain"), "{sentence}");
    }
}

#[test]
fn other_ports_are_refused() {
    let sentence = refusal(&any(), "http://example.com:6379/");
    assert_eq!(sentence, "port 6379 of a medium's address is not one of the allowed ports: 80, 443");
    assert!(any().check_url(&Url::parse("http://example.com:443/").expect("an address")).is_ok());
}

#[test]
fn other_schemes_and_credentials_are_refused_on_every_hop() {
    for (text, rule) in [
        ("ftp://example.com/", "https and http only"),
        ("file:///etc/passwd", "https and http only"),
        ("http://user@example.com/", "user name or a password"),
    ] {
        let sentence = any().check_url(&Url::parse(text).expect(text)).expect_err(text).to_string();
        assert!(sentence.contains(rule), "{sentence}");
    }
}

#[test]
fn queries_are_not_shown() {
    let url = Url::parse("https://example.com/a.png?signature=secret#x").expect("an address");
    assert_eq!(shown(&url), "https://example.com/a.png");
    let url = Url::parse(&format!("https://example.com/{}", "a".repeat(500))).expect("an address");
    assert_eq!(shown(&url).len(), 203);
}
