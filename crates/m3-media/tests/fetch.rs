//! The one door to the network, against servers on this machine and a resolver of our own: what is refused must never
//! reach a server. Addresses of 127.1.0.0/16 play the public internet, the rest of loopback the inner network.

use bytes::Bytes;
use futures_util::future::BoxFuture;
use m3_media::fetch::{Lookup, SystemLookup};
use m3_media::policy::{Domain, Remote};
use m3_media::{Error, Fetcher, Kind, Limits, Policy, Source, Wanted};
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

/// What a server does once the request's head has arrived.
#[derive(Clone)]
enum Answer {
    /// Sends these bytes and closes.
    Bytes(Vec<u8>),
    /// Sends the head, then zeros without end.
    Endless(&'static str),
    /// Sends the bytes one by one with this pause.
    Slow(Vec<u8>, Duration),
    /// Sends nothing.
    Silence,
}

/// A server at an address of loopback; counts connections and keeps what was asked.
struct Server {
    port: u16,
    asked: Arc<Mutex<Vec<String>>>,
    sent: Arc<AtomicUsize>,
}

impl Server {
    async fn start(
        address: &str,
        port: u16,
        answer: impl Fn(&str) -> Answer + Send + Sync + 'static,
    ) -> Server {
        let listener = TcpListener::bind((address, port)).await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let (asked, sent) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicUsize::new(0)));
        let server = Server { port, asked: asked.clone(), sent: sent.clone() };
        let answer = Arc::new(answer);
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let (asked, sent, answer) = (asked.clone(), sent.clone(), answer.clone());
                tokio::spawn(async move {
                    let mut head = Vec::new();
                    while !head.ends_with(b"\r\n\r\n") {
                        match stream.read_u8().await {
                            Ok(byte) => head.push(byte),
                            Err(_) => break,
                        }
                    }
                    let head = String::from_utf8_lossy(&head).into_owned();
                    let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
                    asked.lock().expect("the list").push(head);
                    match answer(&path) {
                        Answer::Bytes(bytes) => drop(stream.write_all(&bytes).await),
                        Answer::Endless(head) => {
                            let _ = stream.write_all(head.as_bytes()).await;
                            let zeros = vec![0; 1 << 14];
                            while stream.write_all(&zeros).await.is_ok() {
                                sent.fetch_add(zeros.len(), Ordering::Relaxed);
                            }
                        }
                        Answer::Slow(bytes, pause) => {
                            for byte in bytes {
                                if stream.write_all(&[byte]).await.is_err() {
                                    break;
                                }
                                tokio::time::sleep(pause).await;
                            }
                        }
                        Answer::Silence => tokio::time::sleep(Duration::from_secs(60)).await,
                    }
                });
            }
        });
        server
    }

    fn asked(&self) -> Vec<String> {
        self.asked.lock().expect("the list").clone()
    }
}

fn ok(body: &[u8]) -> Answer {
    let mut bytes = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len())
        .into_bytes();
    bytes.extend_from_slice(body);
    Answer::Bytes(bytes)
}

fn redirect(to: &str) -> Answer {
    Answer::Bytes(
        format!("HTTP/1.1 302 Found\r\nLocation: {to}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            .into_bytes(),
    )
}

/// A resolver that knows what it is told; each question takes the next of a name's answers, the last one stays.
#[derive(Default)]
struct Names(Mutex<HashMap<String, Vec<Vec<IpAddr>>>>, AtomicUsize);

impl Names {
    fn with(self, host: &str, answers: &[&[&str]]) -> Names {
        let parse =
            |list: &&[&str]| list.iter().map(|address| address.parse().expect("an address")).collect();
        self.0.lock().expect("names").insert(host.into(), answers.iter().map(parse).collect());
        self
    }
}

impl Lookup for Names {
    fn lookup(&self, host: String) -> BoxFuture<'static, std::io::Result<Vec<IpAddr>>> {
        self.1.fetch_add(1, Ordering::Relaxed);
        let mut names = self.0.lock().expect("names");
        let found = match names.get_mut(&host) {
            Some(answers) if answers.len() > 1 => answers.remove(0),
            Some(answers) => answers.first().cloned().unwrap_or_default(),
            None => Vec::new(),
        };
        Box::pin(async move { Ok(found) })
    }
}

/// Public: 127.1.0.0/16. Ports: those given.
fn policy(ports: &[u16]) -> Policy {
    Policy {
        remote: Remote::Any,
        ports: ports.to_vec(),
        networks: vec!["127.1.0.0/16".parse().expect("a network")],
        limits: Limits { max_image_bytes: 1 << 20, ..Limits::default() },
        ..Policy::default()
    }
}

async fn fetch(policy: Policy, names: Names, address: &str) -> Result<Bytes, Error> {
    let fetcher = Fetcher::with_lookup(policy, Arc::new(names)).expect("a fetcher");
    fetcher.fetch(&Source::parse(address)?, Wanted::Image).await
}

fn names() -> Names {
    Names::default()
        .with("public.example", &[&["127.1.0.1"]])
        .with("inner.example", &[&["127.0.0.1"]])
        .with("cloud.example", &[&["169.254.169.254"]])
        .with("mixed.example", &[&["127.1.0.1", "127.0.0.1"]])
        .with("mapped.example", &[&["::ffff:127.0.0.1"]])
}

#[tokio::test]
async fn a_public_picture_is_fetched_as_it_is() {
    let server = Server::start("127.1.0.1", 0, |_| ok(b"the picture")).await;
    let address = format!("http://public.example:{}/a.png?size=1#top", server.port);
    assert_eq!(
        fetch(policy(&[server.port]), names(), &address).await,
        Ok(Bytes::from_static(b"the picture"))
    );
    let head = server.asked().concat().to_ascii_lowercase();
    assert!(head.starts_with("get /a.png?size=1 http/1.1\r\n"), "{head}");
    assert!(head.contains("accept-encoding: identity") && head.contains("user-agent: m3-media/"), "{head}");
    for absent in ["cookie", "referer", "authorization", "#top"] {
        assert!(!head.contains(absent), "{head}");
    }
}

#[tokio::test]
async fn names_of_inner_addresses_reach_no_server() {
    let server = Server::start("127.0.0.1", 0, |_| ok(b"secret")).await;
    for host in ["inner.example", "cloud.example", "mapped.example", "mixed.example"] {
        let address = format!("http://{host}:{}/", server.port);
        let error = fetch(policy(&[server.port]), names(), &address).await.expect_err(host);
        assert_eq!(
            error.to_string(),
            format!(
                "the host \"{host}\" is not on the public internet, and media are fetched only from there"
            )
        );
        assert_eq!(error.kind(), Kind::Invalid);
    }
    assert!(server.asked().is_empty(), "{:?}", server.asked());
}

#[tokio::test]
async fn literal_inner_addresses_reach_no_server() {
    let server = Server::start("127.0.0.1", 0, |_| ok(b"secret")).await;
    for host in [
        "127.0.0.1",
        "0x7f.1",
        "2130706433",
        "017700000001",
        "127.1",
        "0",
        "127.0.0.1.",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "[::]",
        "[64:ff9b::7f00:1]",
        "localhost",
        "LOCALHOST.",
        "a.localhost",
        "100.64.0.1",
        "169.254.169.254",
        "metadata.google.internal",
    ] {
        let address = format!("http://{host}:{}/", server.port);
        let error = fetch(policy(&[server.port]), names(), &address).await.expect_err(host);
        assert!(error.to_string().contains("is not on the public internet"), "{host}: {error}");
    }
    for address in [
        "http://public.example@127.0.0.1/",
        "http://127.0.0.1:80\\@public.example/",
        "http://a:b@public.example/",
    ] {
        assert!(fetch(policy(&[80]), names(), address).await.is_err(), "{address}");
    }
    assert!(server.asked().is_empty(), "{:?}", server.asked());
}

#[tokio::test]
async fn redirects_are_checked_like_first_addresses() {
    let inner = Server::start("127.0.0.1", 0, |_| ok(b"secret")).await;
    let port = inner.port;
    let elsewhere = "public.example redirects to an address that is not allowed";
    for (to, rule) in [
        (format!("http://127.0.0.1:{port}/"), elsewhere),
        (format!("http://0x7f.1:{port}/"), elsewhere),
        (format!("http://[::ffff:127.0.0.1]:{port}/"), elsewhere),
        (format!("//inner.example:{port}/"), elsewhere),
        (format!("http://user:pass@public.example:{port}/"), "a user name or a password"),
        ("http://public.example:22/".into(), elsewhere),
        ("file:///etc/passwd".into(), "something else than https or http"),
        ("gopher://inner.example/".into(), "something else than https or http"),
        ("data:image/png;base64,AAAA".into(), "something else than https or http"),
        ("http://[broken/".into(), "cannot be read"),
    ] {
        let target = to.clone();
        let public = Server::start("127.1.0.1", 0, move |_| redirect(&target)).await;
        let address = format!("http://public.example:{}/", public.port);
        let error = fetch(policy(&[public.port, port]), names(), &address).await.expect_err(&to);
        assert!(error.to_string().contains(rule), "{to}: {error}");
        let told =
            ["127.0.0.1", "inner.example", "broken"].iter().any(|inner| error.to_string().contains(inner));
        assert!(!told, "where a redirect leads is not told: {error}");
        assert_eq!(public.asked().len(), 1);
    }
    assert!(inner.asked().is_empty(), "{:?}", inner.asked());
}

#[tokio::test]
async fn redirects_are_counted() {
    let server = Server::start("127.1.0.1", 0, |path| match path {
        "/0" => ok(b"the picture"),
        _ => redirect(&format!("/{}", path[1..].parse::<u32>().expect("a number") - 1)),
    })
    .await;
    let address = |count: u32| format!("http://public.example:{}/{count}", server.port);
    assert!(fetch(policy(&[server.port]), names(), &address(3)).await.is_ok());
    let error = fetch(policy(&[server.port]), names(), &address(4)).await.expect_err("four");
    assert_eq!(error.to_string(), "fetching the image takes more than 3 redirects");
    assert_eq!(server.asked().len(), 8);
}

#[tokio::test]
async fn a_redirect_leaves_the_allowed_domains_no_more_than_a_first_address() {
    let server = Server::start("127.1.0.1", 0, |path| match path {
        "/there" => ok(b"the picture"),
        path => redirect(&format!("http://{}/there", &path[1..])),
    })
    .await;
    let port = server.port;
    let names =
        || names().with("other.example", &[&["127.1.0.1"]]).with("a.public.example", &[&["127.1.0.1"]]);
    let domains =
        ["public.example", "*.public.example"].map(|text| Domain::parse(text).expect(text)).to_vec();
    let policy = || Policy { remote: Remote::Domains(domains.clone()), ..policy(&[port]) };
    let address = |host: &str| format!("http://public.example:{port}/{host}:{port}");
    assert!(fetch(policy(), names(), &address("a.public.example")).await.is_ok());
    let error = fetch(policy(), names(), &address("other.example")).await.expect_err("elsewhere");
    assert_eq!(error.to_string(), "public.example redirects to an address that is not allowed");
}

/// The first answer is public, every later one is not: the connection goes to the checked address, and the next hop's
/// new answer is checked again.
#[tokio::test]
async fn a_rebinding_resolver_gains_nothing() {
    let inner = Server::start("127.0.0.1", 0, |_| ok(b"secret")).await;
    let port = inner.port;
    let public = Server::start("127.1.0.1", port, |path| match path {
        "/again" => redirect("/picture"),
        _ => ok(b"the picture"),
    })
    .await;
    let names = || Names::default().with("moving.example", &[&["127.1.0.1"], &["127.0.0.1"]]);
    let address = format!("http://moving.example:{port}/");
    assert_eq!(fetch(policy(&[port]), names(), &address).await, Ok(Bytes::from_static(b"the picture")));
    let error =
        fetch(policy(&[port]), names(), &format!("{address}again")).await.expect_err("the second answer");
    assert_eq!(error.to_string(), "moving.example redirects to an address that is not allowed");
    assert_eq!((public.asked().len(), inner.asked().len()), (2, 0));
}

/// One lookup per connection: nothing asks again between the check and the connection.
#[tokio::test]
async fn a_name_is_looked_up_once_per_connection() {
    let server = Server::start("127.1.0.1", 0, |_| ok(b"the picture")).await;
    let names = Arc::new(names());
    let fetcher = Fetcher::with_lookup(policy(&[server.port]), names.clone()).expect("a fetcher");
    let source = Source::parse(&format!("http://public.example:{}/", server.port)).expect("a source");
    for count in 1..=3 {
        assert!(fetcher.fetch(&source, Wanted::Image).await.is_ok());
        assert_eq!(names.1.load(Ordering::Relaxed), count);
    }
}

#[tokio::test]
async fn without_permission_nothing_is_asked() {
    let server = Server::start("127.1.0.1", 0, |_| ok(b"the picture")).await;
    let address = format!("http://public.example:{}/", server.port);
    let closed = Policy { remote: Remote::Refused, ..policy(&[server.port]) };
    let error = fetch(closed, names(), &address).await.expect_err("refused");
    assert!(error.to_string().contains("fetches no remote media"), "{error}");
    let error = fetch(policy(&[80, 443]), names(), &address).await.expect_err("another port");
    assert!(error.to_string().starts_with(&format!("port {} of a medium's address", server.port)), "{error}");
    assert!(server.asked().is_empty());
}

#[tokio::test]
async fn bytes_are_limited_announced_or_not() {
    let announced = "HTTP/1.1 200 OK\r\nContent-Length: 9999999999\r\n\r\n";
    let open = "HTTP/1.1 200 OK\r\n\r\n";
    let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n7fffffff\r\n";
    for (head, value) in [(announced, Some(9_999_999_999)), (open, None), (chunked, None)] {
        let server = Server::start("127.1.0.1", 0, move |_| Answer::Endless(head)).await;
        let address = format!("http://public.example:{}/", server.port);
        let error = fetch(policy(&[server.port]), names(), &address).await.expect_err(head);
        assert_eq!(error.kind(), Kind::TooLarge, "{error}");
        match (error, value) {
            (Error::TooLarge { value, .. }, Some(wanted)) => assert_eq!(value, wanted),
            (Error::TooLarge { value, limit, .. }, None) => {
                assert!(value > limit && value < limit + (1 << 20))
            }
            (other, _) => panic!("{other}"),
        }
        let sent = server.sent.load(Ordering::Relaxed);
        assert!(sent < 16 << 20, "{sent} bytes were taken");
    }
}

#[tokio::test]
async fn compressed_bodies_are_refused() {
    for encoding in ["gzip", "br", "zstd", "deflate", "identity, gzip"] {
        let head = format!("HTTP/1.1 200 OK\r\nContent-Encoding: {encoding}\r\nContent-Length: 3\r\n\r\nabc");
        let server = Server::start("127.1.0.1", 0, move |_| Answer::Bytes(head.clone().into_bytes())).await;
        let address = format!("http://public.example:{}/", server.port);
        let error = fetch(policy(&[server.port]), names(), &address).await.expect_err(encoding);
        assert!(error.to_string().contains("a content encoding that was not asked for"), "{error}");
    }
    let head = b"HTTP/1.1 200 OK\r\nContent-Encoding: identity\r\nContent-Length: 3\r\n\r\nabc".to_vec();
    let server = Server::start("127.1.0.1", 0, move |_| Answer::Bytes(head.clone())).await;
    let address = format!("http://public.example:{}/", server.port);
    assert_eq!(fetch(policy(&[server.port]), names(), &address).await, Ok(Bytes::from_static(b"abc")));
}

#[tokio::test]
async fn slow_and_silent_servers_end_at_the_deadline() {
    let dribble = b"HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n".to_vec();
    for answer in [Answer::Silence, Answer::Slow(dribble, Duration::from_millis(30))] {
        let server = Server::start("127.1.0.1", 0, move |_| answer.clone()).await;
        let address = format!("http://public.example:{}/", server.port);
        let policy = Policy { fetch_time: Duration::from_millis(1200), ..policy(&[server.port]) };
        let begun = Instant::now();
        let error = fetch(policy, names(), &address).await.expect_err("late");
        assert_eq!(error.to_string(), "fetching the image from public.example took longer than 1 s");
        assert_eq!(error.kind(), Kind::Timeout);
        assert!(begun.elapsed() < Duration::from_secs(5));
    }
}

#[tokio::test]
async fn failures_of_the_other_server_name_it_and_no_address() {
    for (answer, kind, wanted) in [
        (
            "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n",
            Kind::Invalid,
            "public.example answers with status 404 instead of the image",
        ),
        (
            "HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n",
            Kind::Upstream,
            "public.example answers with status 503 instead of the image",
        ),
        (
            "HTTP/1.1 204 Nothing\r\n\r\n",
            Kind::Upstream,
            "public.example answers with status 204 instead of the image",
        ),
        (
            "HTTP/1.1 302 Found\r\nContent-Length: 0\r\n\r\n",
            Kind::Upstream,
            "public.example answers with a redirect without a location",
        ),
        (
            "SSH-2.0-OpenSSH_9.2\r\n",
            Kind::Upstream,
            "public.example gives no proper answer, so the image was not fetched",
        ),
        ("", Kind::Upstream, "public.example gives no proper answer, so the image was not fetched"),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\nabc",
            Kind::Upstream,
            "public.example broke off while sending the image",
        ),
    ] {
        let server = Server::start("127.1.0.1", 0, move |_| Answer::Bytes(answer.into())).await;
        let address = format!("http://public.example:{}/", server.port);
        let error = fetch(policy(&[server.port]), names(), &address).await.expect_err(wanted);
        assert_eq!((error.kind(), error.to_string().as_str()), (kind, wanted));
    }
    let error = fetch(policy(&[80]), names(), "http://nowhere.example/").await.expect_err("no address");
    assert_eq!(error.to_string(), "the host \"nowhere.example\" has no address");
    let closed = TcpListener::bind("127.1.0.1:0").await.expect("a port");
    let port = closed.local_addr().expect("an address").port();
    drop(closed);
    let error =
        fetch(policy(&[port]), names(), &format!("http://public.example:{port}/")).await.expect_err("closed");
    assert_eq!(error.to_string(), "public.example cannot be reached, so the image was not fetched");
}

#[tokio::test]
async fn a_plain_server_behind_https_is_a_failure_of_the_connection() {
    let listener = TcpListener::bind("127.1.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("an address").port();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
        }
    });
    let error = fetch(policy(&[port]), names(), &format!("https://public.example:{port}/"))
        .await
        .expect_err("no TLS");
    assert_eq!(error.kind(), Kind::Upstream, "{error}");
    assert_eq!(error.to_string(), "public.example cannot be reached, so the image was not fetched");
}

#[tokio::test]
async fn fetches_at_once_are_bounded() {
    let server = Server::start("127.1.0.1", 0, |_| Answer::Silence).await;
    let policy = Policy { fetches: 2, fetch_time: Duration::from_millis(700), ..policy(&[server.port]) };
    let fetcher = Fetcher::with_lookup(policy, Arc::new(names())).expect("a fetcher");
    let source = Source::parse(&format!("http://public.example:{}/", server.port)).expect("a source");
    let all = futures_util::future::join_all((0..9).map(|_| fetcher.fetch(&source, Wanted::Image))).await;
    assert!(all.iter().all(|outcome| outcome.as_ref().is_err_and(|error| error.kind() == Kind::Timeout)));
    assert_eq!(server.asked().len(), 2);
}

#[tokio::test]
async fn the_environment_s_proxies_are_not_used() {
    let proxy = Server::start("127.0.0.1", 0, |_| ok(b"from the proxy")).await;
    let server = Server::start("127.1.0.1", 0, |_| ok(b"the picture")).await;
    // A process of its own: variables of this one are shared with the other tests.
    let me = std::env::current_exe().expect("this test");
    let output = tokio::process::Command::new(me)
        .args(["--exact", "fetches_one_address_from_a_child", "--nocapture"])
        .env("M3_TEST_ADDRESS", format!("http://public.example:{}/", server.port))
        .envs(
            ["http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"]
                .map(|name| (name, format!("http://127.0.0.1:{}", proxy.port))),
        )
        .output()
        .await
        .expect("a child");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    assert_eq!((proxy.asked().len(), server.asked().len()), (0, 1));
}

/// The other half of the test above, which runs it with variables set; alone it has nothing to fetch.
#[tokio::test]
async fn fetches_one_address_from_a_child() {
    let Ok(address) = std::env::var("M3_TEST_ADDRESS") else { return };
    let port =
        address.rsplit(':').next().and_then(|rest| rest.trim_end_matches('/').parse().ok()).expect("a port");
    assert_eq!(fetch(policy(&[port]), names(), &address).await, Ok(Bytes::from_static(b"the picture")));
}

#[tokio::test]
async fn the_system_s_resolver_is_checked_too() {
    let found = SystemLookup.lookup("localhost".into()).await.expect("an answer");
    assert!(found.iter().all(IpAddr::is_loopback), "{found:?}");
    let domains = vec![Domain::parse("localhost").expect("a host")];
    let policy = Policy { remote: Remote::Domains(domains), ..policy(&[80]) };
    let fetcher = Fetcher::new(policy).expect("a fetcher");
    let source = Source::parse("http://localhost/").expect("a source");
    let error = fetcher.fetch(&source, Wanted::Image).await.expect_err("loopback");
    assert!(error.to_string().contains("is not on the public internet"), "{error}");
}

#[tokio::test]
async fn data_uris_are_limited_too() {
    let fetcher = Fetcher::new(policy(&[80])).expect("a fetcher");
    let source = Source::parse("data:image/png,abc").expect("a source");
    assert_eq!(fetcher.fetch(&source, Wanted::Image).await, Ok(Bytes::from_static(b"abc")));
    let source = Source::parse(&format!("data:image/png,{}", "a".repeat((1 << 20) + 1))).expect("a source");
    let error = fetcher.fetch(&source, Wanted::Image).await.expect_err("too large");
    assert_eq!(error, Error::too_large("the image in bytes", (1 << 20) + 1, 1 << 20));
    assert!(fetcher.fetch(&source, Wanted::Video).await.is_ok());
}
