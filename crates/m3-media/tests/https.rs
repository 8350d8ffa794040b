//! The fetcher over TLS: servers on this machine with certificates made here. The root that signs them is trusted as
//! an operator would do it, by `SSL_CERT_FILE`, so each fetch is a process of its own; nothing turns verification off.
//! Addresses of 127.1.0.0/16 play the public internet, 127.0.0.1 the inner network.

use futures_util::future::BoxFuture;
use m3_media::fetch::Lookup;
use m3_media::policy::Remote;
use m3_media::{Fetcher, Policy, Source, Wanted};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

/// An authority, its certificate in a file, and what it signs.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    root: tempfile::NamedTempFile,
}

impl Authority {
    fn new() -> Authority {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new(Vec::new()).expect("parameters");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let root = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(root.path(), params.self_signed(&key).expect("a root").pem()).expect("written");
        Authority { issuer: Issuer::new(params, key), root }
    }

    /// What a server of these names (or literal addresses) answers with; `last_year` is when it ends.
    fn sign(&self, names: &[&str], last_year: i32) -> TlsAcceptor {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).expect("parameters");
        params.not_after = rcgen::date_time_ymd(last_year, 1, 1);
        let key = KeyPair::generate().expect("a key");
        let signed = params.signed_by(&key, &self.issuer).expect("a certificate");
        acceptor(signed.der().clone(), &key)
    }
}

fn acceptor(certificate: CertificateDer<'static>, key: &KeyPair) -> TlsAcceptor {
    let key = PrivatePkcs8KeyDer::from(key.serialize_der());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(vec![certificate], key.into()));
    TlsAcceptor::from(Arc::new(config.expect("a server's configuration")))
}

/// A TLS server that counts connections and keeps, of each request, the name in the TLS greeting and the path.
struct Server {
    port: u16,
    connections: Arc<AtomicUsize>,
    asked: Arc<Mutex<Vec<(String, String)>>>,
}

impl Server {
    /// `answer` maps a path to where it redirects; `None` is the picture.
    async fn start(
        at: (&str, u16),
        tls: TlsAcceptor,
        answer: impl Fn(&str) -> Option<String> + Send + Sync + 'static,
    ) -> Server {
        let listener = TcpListener::bind(at).await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let (connections, asked) = (Arc::new(AtomicUsize::new(0)), Arc::new(Mutex::new(Vec::new())));
        let server = Server { port, connections: connections.clone(), asked: asked.clone() };
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                connections.fetch_add(1, Ordering::Relaxed);
                let Ok(mut stream) = tls.accept(stream).await else { continue };
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    match stream.read_u8().await {
                        Ok(byte) => head.push(byte),
                        Err(_) => break,
                    }
                }
                let head = String::from_utf8_lossy(&head).into_owned();
                let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
                let name = stream.get_ref().1.server_name().unwrap_or_default().to_owned();
                asked.lock().expect("the list").push((name, path.clone()));
                let reply = match answer(&path) {
                    Some(to) => format!("HTTP/1.1 302 Found\r\nLocation: {to}\r\nContent-Length: 0\r\n\r\n"),
                    None => "HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\nthe picture".to_owned(),
                };
                let _ = stream.write_all(reply.as_bytes()).await;
                let _ = stream.shutdown().await;
            }
        });
        server
    }

    async fn plain(at: (&str, u16), tls: TlsAcceptor) -> Server {
        Server::start(at, tls, |_| None).await
    }

    fn asked(&self) -> Vec<(String, String)> {
        self.asked.lock().expect("the list").clone()
    }

    /// Whether nobody has even connected.
    fn is_untouched(&self) -> bool {
        self.connections.load(Ordering::Relaxed) == 0
    }
}

/// What a process that trusts the certificates of `roots` gets from `address`: the bytes or the sentence.
async fn fetch(roots: &Path, address: &str) -> Result<String, String> {
    let me = std::env::current_exe().expect("this test");
    let output = tokio::process::Command::new(me)
        .args(["--exact", "fetches_from_a_child", "--nocapture"])
        .env("M3_TEST_ADDRESS", address)
        .env("SSL_CERT_FILE", roots)
        .env_remove("SSL_CERT_DIR")
        .output()
        .await
        .expect("a child");
    let text = String::from_utf8_lossy(&output.stdout);
    // The test harness writes its own words before ours without ending the line.
    let found = |mark: &str| text.lines().find_map(|line| Some(line.split_once(mark)?.1.to_owned()));
    match (found("fetched: "), found("refused: ")) {
        (Some(bytes), None) => Ok(bytes),
        (None, Some(sentence)) => Err(sentence),
        _ => panic!("the child says neither what it fetched nor why not: {text}"),
    }
}

/// The other half of the tests, which run it with variables set; alone it has nothing to fetch.
#[tokio::test]
async fn fetches_from_a_child() {
    let Ok(address) = std::env::var("M3_TEST_ADDRESS") else { return };
    let policy = Policy {
        remote: Remote::Any,
        // Any port: which ports may be named is tried elsewhere.
        ports: (1..=u16::MAX).collect(),
        networks: vec!["127.1.0.0/16".parse().expect("a network")],
        ..Policy::default()
    };
    let fetcher = Fetcher::with_lookup(policy, Arc::new(Names::default())).expect("a fetcher");
    let source = Source::parse(&address).expect("a source");
    match fetcher.fetch(&source, Wanted::Image).await {
        Ok(bytes) => println!("fetched: {}", String::from_utf8_lossy(&bytes)),
        Err(error) => println!("refused: {error}"),
    }
}

/// `*.public.example` is public, `inner.example` is not, `moving.example` is public when it is first asked for.
#[derive(Default)]
struct Names(AtomicUsize);

impl Lookup for Names {
    fn lookup(&self, host: String) -> BoxFuture<'static, std::io::Result<Vec<IpAddr>>> {
        let address = match host.as_str() {
            "moving.example" if self.0.fetch_add(1, Ordering::Relaxed) == 0 => "127.1.0.1",
            "moving.example" | "inner.example" => "127.0.0.1",
            _ => "127.1.0.1",
        };
        Box::pin(async move { Ok(vec![address.parse().expect("an address")]) })
    }
}

const PUBLIC: (&str, u16) = ("127.1.0.1", 0);
const NOT_TRUSTED: &str = "is not trusted, so the image was not fetched";

/// The connection goes to the checked address and the certificate is asked for the host that the client wrote.
#[tokio::test]
async fn a_picture_comes_over_https_from_a_trusted_server() {
    let authority = Authority::new();
    let server = Server::plain(PUBLIC, authority.sign(&["public.example"], 4000)).await;
    let address = format!("https://public.example:{}/picture", server.port);
    assert_eq!(fetch(authority.root.path(), &address).await.as_deref(), Ok("the picture"));
    assert_eq!(server.asked(), [("public.example".to_owned(), "/picture".to_owned())]);
}

#[tokio::test]
async fn certificates_that_do_not_vouch_for_the_host_are_refused() {
    let (trusted, other) = (Authority::new(), Authority::new());
    let own = KeyPair::generate().expect("a key");
    let alone = CertificateParams::new(vec!["public.example".to_owned()]).expect("parameters");
    let alone = acceptor(alone.self_signed(&own).expect("a certificate").der().clone(), &own);
    for (case, tls) in [
        ("signed by itself", alone),
        ("signed by an authority that is not trusted", other.sign(&["public.example"], 4000)),
        ("for another host", trusted.sign(&["other.example"], 4000)),
        ("for the address that the connection goes to", trusted.sign(&["127.1.0.1"], 4000)),
        ("for names one level up and down", trusted.sign(&["example", "*.public.example"], 4000)),
        ("run out", trusted.sign(&["public.example"], 2020)),
    ] {
        let server = Server::plain(PUBLIC, tls).await;
        let address = format!("https://public.example:{}/picture", server.port);
        let sentence = fetch(trusted.root.path(), &address).await.expect_err(case);
        assert_eq!(sentence, format!("the certificate of public.example {NOT_TRUSTED}"), "{case}");
        assert!(!server.is_untouched(), "{case}: the refusal must be the certificate's");
        assert_eq!(
            server.asked(),
            [],
            "{case}: nothing may be asked of a server that is not who it should be"
        );
    }
}

/// The same server and certificate, and a process that does not trust the root.
#[tokio::test]
async fn without_its_root_the_same_certificate_is_refused() {
    let (authority, other) = (Authority::new(), Authority::new());
    let server = Server::plain(PUBLIC, authority.sign(&["public.example"], 4000)).await;
    let address = format!("https://public.example:{}/", server.port);
    let sentence = fetch(other.root.path(), &address).await.expect_err("no root");
    assert_eq!(sentence, format!("the certificate of public.example {NOT_TRUSTED}"));
    assert!(fetch(authority.root.path(), &address).await.is_ok());
}

/// Every hop is checked like the first: the address, the scheme, the certificate.
#[tokio::test]
async fn redirects_over_https_are_checked_again() {
    let authority = Authority::new();
    let all = ["public.example", "b.example", "inner.example", "127.0.0.1"];
    let inner = Server::plain(("127.0.0.1", 0), authority.sign(&all, 4000)).await;
    let wrong = Server::plain(PUBLIC, authority.sign(&["somebody.example"], 4000)).await;
    let right = Server::plain(PUBLIC, authority.sign(&["b.example"], 4000)).await;
    let refused = "public.example redirects to an address that is not allowed";
    for (to, wanted) in [
        (format!("https://b.example:{}/", right.port), Ok("the picture".to_owned())),
        (
            format!("https://b.example:{}/", wrong.port),
            Err("public.example redirects to an address that gives nothing usable".to_owned()),
        ),
        (format!("https://inner.example:{}/", inner.port), Err(refused.to_owned())),
        (format!("https://127.0.0.1:{}/", inner.port), Err(refused.to_owned())),
        (format!("https://0x7f.1:{}/", inner.port), Err(refused.to_owned())),
        (
            format!("http://b.example:{}/", right.port),
            Err("public.example redirects from https to http".to_owned()),
        ),
    ] {
        let (tls, target) = (authority.sign(&["public.example"], 4000), to.clone());
        let first = Server::start(PUBLIC, tls, move |_| Some(target.clone())).await;
        let address = format!("https://public.example:{}/", first.port);
        assert_eq!(fetch(authority.root.path(), &address).await, wanted, "{to}");
        assert_eq!(first.asked().len(), 1, "{to}");
    }
    assert!(inner.is_untouched());
    assert_eq!(wrong.asked(), []);
    assert_eq!(right.asked(), [("b.example".to_owned(), "/".to_owned())]);
}

/// The inner server has a good certificate for the name as well, so only the checked address keeps it out.
#[tokio::test]
async fn a_rebinding_resolver_gains_nothing_over_https() {
    let authority = Authority::new();
    let tls = || authority.sign(&["moving.example"], 4000);
    let inner = Server::plain(("127.0.0.1", 0), tls()).await;
    let public = Server::start(("127.1.0.1", inner.port), tls(), |path| {
        (path == "/again").then(|| "/picture".to_owned())
    })
    .await;
    let address = |path: &str| format!("https://moving.example:{}{path}", public.port);
    assert_eq!(fetch(authority.root.path(), &address("/")).await.as_deref(), Ok("the picture"));
    let sentence = fetch(authority.root.path(), &address("/again")).await.expect_err("the second answer");
    assert_eq!(sentence, "moving.example redirects to an address that is not allowed");
    assert_eq!(public.asked().len(), 2);
    assert!(inner.is_untouched());
}

/// A file of roots that is not there is no reason to trust anybody.
#[tokio::test]
async fn a_missing_file_of_roots_trusts_nobody() {
    let authority = Authority::new();
    let server = Server::plain(PUBLIC, authority.sign(&["public.example"], 4000)).await;
    let address = format!("https://public.example:{}/", server.port);
    let sentence = fetch(&PathBuf::from("/nowhere/roots.pem"), &address).await.expect_err("no root");
    assert_eq!(sentence, format!("the certificate of public.example {NOT_TRUSTED}"));
}
