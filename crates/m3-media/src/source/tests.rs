//! Sources in every spelling that clients send, and the ones that are refused.

use super::Source;
use crate::error::{Error, Kind};

fn bytes(text: &str) -> Vec<u8> {
    match Source::parse(text) {
        Ok(Source::DataUri(bytes)) => bytes.to_vec(),
        other => panic!("{text:?} is {other:?}"),
    }
}

fn refused(text: &str) -> String {
    let error = Source::parse(text).expect_err(text);
    assert_ne!(error.kind(), Kind::Internal);
    error.to_string()
}

#[test]
fn data_uris_in_every_spelling_are_the_same_bytes() {
    let wanted = [0xfb, 0xff, 0xfe, 0x01];
    for text in [
        "data:image/png;base64,+//+AQ==",
        "data:image/png;base64,+//+AQ",
        "data:image/png;base64,-__-AQ==",
        "data:image/png;base64,-__-AQ",
        "DATA:IMAGE/PNG;BASE64,+//+AQ==",
        "Data:image/png;Base64,+//+AQ==",
        "data:;base64,+//+AQ==",
        "data:image/jpeg;base64,+//+AQ==",
        "data:text/plain;base64,+//+AQ==",
        "data:image/png;charset=utf-8;base64,+//+AQ==",
        "data:image/png;name=\"a,b\";base64,+//+AQ==",
        "data:image/png; base64,+//+AQ==",
        "data:image/png;base64, +//+\r\nAQ==\r\n",
        "  data:image/png;base64,+//\n+A\tQ==  ",
        "data:image/png;base64,%2B%2F%2F%2BAQ%3D%3D",
        "data:image/png;base64,%2b//%2bAQ%3d%3d",
        "data:image/png;base64,+//+AQ=",
        "data:image/png;base64,+//+AR==",
        "data:image/png,%fb%ff%fe%01",
    ] {
        assert_eq!(bytes(text), wanted, "{text:?}");
    }
    assert_eq!(Source::base64("+//+\nAQ"), Source::parse("data:,%fb%ff%fe%01"));
    assert!(bytes("data:image/png;base64,").is_empty());
}

#[test]
fn broken_data_uris_say_what_is_wrong() {
    assert_eq!(
        refused("data:image/png;base64,ab*d"),
        "base64 has the byte 0x2a at 2, which is not in its alphabet"
    );
    assert_eq!(refused("data:image/png;base64,abcde"), "base64 of 5 characters is cut off");
    assert_eq!(refused("data:image/png;base64,ab====="), "base64 ends in 5 padding signs, more than 2");
    assert!(refused("data:image/png;base64").contains("needs a comma"));
}

#[test]
fn addresses_mean_what_the_network_will_use() {
    for (text, host) in [
        ("http://0x7f.1/a", "127.0.0.1"),
        ("http://2130706433/a", "127.0.0.1"),
        ("http://017700000001/a", "127.0.0.1"),
        ("http://127.1/a", "127.0.0.1"),
        ("http://127.0.0.1./a", "127.0.0.1"),
        ("http://[::ffff:127.0.0.1]/a", "[::ffff:7f00:1]"),
        ("HTTPS://EXAMPLE.com/a#part", "example.com"),
        ("http://\u{ff11}27.0.0.1/", "127.0.0.1"),
        ("http://127.0.0.1\\@example.com/", "127.0.0.1"),
    ] {
        match Source::parse(text) {
            Ok(Source::Url(url)) => {
                assert_eq!(url.host_str(), Some(host), "{text}");
                assert_eq!(url.fragment(), None);
            }
            other => panic!("{text} is {other:?}"),
        }
    }
}

#[test]
fn addresses_with_credentials_or_without_a_host_are_refused() {
    for text in [
        "http://user@example.com/",
        "http://user:secret@example.com/",
        "http://:secret@example.com/",
        "http://example.com@127.0.0.1/",
    ] {
        assert_eq!(refused(text), "the address of a medium carries a user name or a password");
    }
    assert!(refused("http://").contains("cannot be read"));
    assert!(refused("https:///").contains("cannot be read"));
    assert!(refused("http://[::1").contains("cannot be read"));
    assert!(refused("http://example.com:99999/").contains("cannot be read"));
}

#[test]
fn other_schemes_are_named() {
    for scheme in ["ftp", "gopher", "javascript", "blob", "s3", "jar"] {
        let sentence = refused(&format!("{scheme}://example.com/a"));
        assert!(sentence.contains(&format!("\"{scheme}\"")), "{sentence}");
    }
    assert_eq!(refused(""), "the address of a medium is empty");
    assert!(refused("iVBORw0KGgo").contains("(11 characters) has no scheme"));
    let long = format!("https://example.com/{}", "a".repeat(9000));
    assert_eq!(
        Source::parse(&long).expect_err("too long"),
        Error::too_large("the address of a medium in characters", 9020, 8192)
    );
}

#[test]
fn file_addresses_keep_their_dots() {
    let file = |text: &str| match Source::parse(text) {
        Ok(Source::File(path)) => path,
        other => panic!("{text} is {other:?}"),
    };
    assert_eq!(file("file:///media/a%20b.png"), "/media/a b.png");
    assert_eq!(file("FILE://LOCALHOST/media/a.png"), "/media/a.png");
    assert_eq!(file("file:/media/a.png"), "/media/a.png");
    assert_eq!(file("file:///media/../etc/passwd"), "/media/../etc/passwd");
    assert_eq!(file("file:///media/%2e%2e/etc/passwd"), "/media/../etc/passwd");
    assert!(refused("file://other/media/a.png").contains("another host"));
    assert!(refused("file:media/a.png").contains("absolute"));
    assert!(refused("file:///a%00b").contains("absolute"));
    assert!(refused("file:///a%ffb").contains("UTF-8"));
}

#[test]
fn nothing_of_a_medium_is_shown_in_logs() {
    let shown = |text: &str| format!("{:?}", Source::parse(text).expect(text));
    assert_eq!(shown("data:image/png;base64,AAAA"), "DataUri(3 bytes)");
    assert_eq!(shown("https://example.com/a.png?sig=secret"), "Url(https://example.com/a.png)");
    assert_eq!(shown("file:///home/me/a.png"), "File");
}
